"""GPU files that say only what sets a GPU apart: `like = "NAME"` carries the rest over from a bundled GPU.

Of the same compute capability the vendor's limits hold as they are. Everything else that is not in the file
is a guess, in proportion to what the vendor prints where it grows with that.
"""

from collections.abc import Mapping
from typing import Any

from prunecast.errors import BadInput

OWN = (
    *("sm_count", "max_clock_hz", "power_limit_w", "l2_bytes"),
    *("dram_bytes", "dram_peak_bytes_per_s"),
)
"""Quantities that such a file must give: the vendor prints them of every GPU."""
IN_PROPORTION = {
    "dram_bytes_per_s": ("dram_peak_bytes_per_s",),
    "dram_write_bytes_per_s": ("dram_peak_bytes_per_s",),
    "dram_copy_bytes_per_s": ("dram_peak_bytes_per_s",),
    "l2_usable_bytes": ("l2_bytes",),
    "l2_bytes_per_s": ("sm_count", "max_clock_hz"),
    "l2_store_bytes_per_s": ("sm_count", "max_clock_hz"),
    "clock_burst_hz": ("max_clock_hz",),
    "clock_sustained_hz": ("max_clock_hz",),
    "clock_activity": ("power_limit_w", "1 / sm_count", "1 / max_clock_hz"),
}
"""Quantity -> those it grows with. Activity from which clocks fall goes with the power of an SM's cycle."""


def with_relative(document: Mapping[str, Any], relative: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Tables of all quantities of a file: its own, else the relative's as guesses.

    Parameters
    ----------
    relative : the tables of the GPU that the file names

    Raises
    ------
    BadInput : the file lacks one of `OWN`
    """
    missing = next((name for name in OWN if name not in document), None)
    if missing is not None:
        raise BadInput(f"{where}: {missing}: quantity is missing, which a file with 'like' has to give")
    carried = {
        name: _carried(name, entry, document, relative)
        for name, entry in relative.items()
        if isinstance(entry, Mapping) and name not in document
    }
    return {**carried, **document}


def _carried(
    name: str, entry: Mapping[str, Any], document: Mapping[str, Any], relative: Mapping[str, Any]
) -> dict[str, Any]:
    same = document.get("compute_capability") == relative["compute_capability"]
    if name not in IN_PROPORTION and same and entry["kind"] == "datasheet":
        return dict(entry)
    factor, grows_with = 1.0, ""
    for measure in IN_PROPORTION.get(name, ()):
        own, its = (_number(table, measure.removeprefix("1 / ")) for table in (document, relative))
        factor *= its / own if measure.startswith("1 / ") else own / its
        grows_with = f", in proportion to {' and '.join(IN_PROPORTION[name])}"
    value = entry["value"]
    if grows_with:
        value = (
            [_scaled(point, factor) for point in value] if isinstance(value, list) else _scaled(value, factor)
        )
    return {
        **entry,
        "value": value,
        "kind": "guess",
        "source": f"Carried over from {relative['name']}{grows_with}",
    }


def _scaled(value: float, factor: float) -> float:
    """A whole number stays one; others to six digits."""
    return round(factor * value) if isinstance(value, int) else float(f"{factor * value:.6g}")


def _number(document: Mapping[str, Any], name: str) -> float:
    """A value of the file, or 1 where it is none, which reading it refuses."""
    entry = document[name]
    value = entry.get("value") if isinstance(entry, Mapping) else None
    return float(value) if isinstance(value, int | float) and value > 0 else 1.0
