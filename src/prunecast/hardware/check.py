"""Check the quantities of a GPU file: each one separately, and all of them for consistency.

A message is one line with the file, the quantity, and the wanted and actual values.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any, NamedTuple

from prunecast.errors import BadInput, short_text
from prunecast.hardware.spec import KINDS, GpuSpec, QuantitySource, quantity_units

KEYS = ("value", "unit", "kind", "source")
UNITS = quantity_units()

_TYPES = {f.name: f.type for f in fields(GpuSpec) if f.name in UNITS}
"""Quantity -> annotation of its field in `GpuSpec`: `int` for counts, `float` for other numbers, and
`tuple[float, ...]` for measured curves, which a GPU file stores as lists. A new quantity needs one of these
three types."""

MAY_BE_ZERO = frozenset(f.name for f in fields(GpuSpec) if f.metadata.get("may_be_zero"))
"""Quantities that may be 0, usually because the GPU lacks a feature; all other quantities are positive."""

NOT_ABOVE = (
    ("shared_bytes_per_block", "shared_bytes_per_sm"),
    ("registers_per_thread", "registers_per_sm"),
    ("l2_usable_bytes", "l2_bytes"),
    ("dram_bytes_per_s", "dram_peak_bytes_per_s"),
    ("shared_latency_cycles", "l2_latency_cycles"),
    ("l1_latency_cycles", "l2_latency_cycles"),
    ("l2_latency_cycles", "dram_latency_cycles"),
    ("graph_launch_s", "stream_launch_s"),
    ("overlapped_launch_s", "graph_launch_s"),
    ("dram_write_bytes_per_s", "dram_peak_bytes_per_s"),
    ("dram_copy_bytes_per_s", "dram_peak_bytes_per_s"),
    ("l2_latency_cycles", "gather_latency_cycles"),
)
"""Pairs of quantities of which the first cannot exceed the second."""

CLOCKS = ("clock_burst_hz", "clock_sustained_hz")

FAR, FAR_COUNT = 100.0, 10.0
"""Largest accepted factor by which a value may be outside the range of the bundled GPUs: `FAR_COUNT` for
counts, which differ less between GPUs, and `FAR` for all other quantities."""

LARGEST = 1e18
"""Bound above every quantity in its unit; it also refuses infinity and NaN."""


class CheckedQuantity(NamedTuple):
    """Checked value of one quantity of a GPU file, with its unit, kind and source (`provenance`)."""

    value: int | float | tuple[float, ...]
    provenance: QuantitySource


def read_quantity(entry: object, quantity: str, where: str) -> CheckedQuantity:
    """Check one table of a GPU file and return its value and provenance.

    Parameters
    ----------
    entry : table of the file with the name `quantity`
    where : name of the file, with which the message begins

    Raises
    ------
    BadInput : a key is missing, unknown or invalid, or the value is not a finite number in its allowed range
    """
    at = f"{where}: {quantity}"
    table, unit = check_table(entry, KEYS, KINDS, at), UNITS[quantity]
    if table["unit"] != unit:
        raise BadInput(f"{at}: unit must be {unit!r}, got {short_text(table['unit'])}")
    check_text(table["source"], "source must name a document or a measurement", at)
    source = QuantitySource(unit=unit, kind=table["kind"], source=table["source"])
    return CheckedQuantity(_read_value(table["value"], quantity, at), source)


def check_table(
    entry: object, keys: tuple[str, ...], kinds: tuple[str, ...], at: str, may_have: Container[str] = ()
) -> dict[str, Any]:
    """Return `entry`, a table of a file, after checking its keys and its kind.

    Raises BadInput unless `entry` is a table that has all `keys`, no other keys except those of `may_have`,
    and one of `kinds` as its `kind`. The message begins with `at`, the position in the file.
    """
    if not isinstance(entry, dict):
        raise BadInput(f"{at}: wanted a table with {', '.join(keys)}, got {short_text(entry)}")
    for key in (*keys, *entry):
        if key not in entry:
            raise BadInput(f"{at}: {key} is missing")
        if key not in keys and key not in may_have:
            raise BadInput(f"{at}: unknown key {key!r}, wanted {', '.join(keys)}")
    if entry["kind"] not in kinds:
        raise BadInput(f"{at}: kind must be one of {', '.join(kinds)}, got {short_text(entry['kind'])}")
    return entry


def check_together(values: Mapping[str, Any], where: str) -> None:
    """Raise BadInput for values that contradict each other, such as an L2 smaller than its usable part."""
    complaint = next(_complaints(values), None)
    if complaint is not None:
        raise BadInput(f"{where}: {complaint}")


def check_ranges(values: Mapping[str, Any], known: Mapping[str, tuple[float, float]], where: str) -> None:
    """Raise BadInput for values far outside the range of known GPUs, which are probably typing errors.

    Parameters
    ----------
    values : quantity -> value of the checked GPU
    known : quantity -> lowest and highest value of the bundled GPUs
    where : name of the file, with which the message begins
    """
    for quantity, (least, most) in known.items():
        factor = FAR_COUNT if UNITS[quantity] == "count" else FAR
        value = values[quantity]
        for point in value if isinstance(value, tuple) else (value,):
            if point and not least / factor <= point <= most * factor:
                raise BadInput(
                    f"{where}: {quantity}: {point:g} is far from what GPUs have, {least:g} to {most:g}"
                )


def check_text(text: object, wanted: str, at: str) -> None:
    """Raise BadInput unless `text` is a string that is not blank.

    Parameters
    ----------
    wanted : requirement that the message states, e.g. `source must name a document`
    at : position in the file, with which the message begins
    """
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f"{at}: {wanted}, got {short_text(text)}")


def _read_value(value: object, quantity: str, at: str) -> int | float | tuple[float, ...]:
    """Return a value of a GPU file in the type that the quantity has in `GpuSpec` (see `_TYPES`).

    Raises BadInput for a value of another type or outside the allowed range. The message begins with `at`.
    """
    wanted, zero = _TYPES[quantity], quantity in MAY_BE_ZERO
    if wanted is int:
        number = check_number(value, at, zero=zero)
        if number != int(number):
            raise BadInput(f"{at}: value must be a whole number, got {short_text(value)}")
        return int(number)
    if wanted is float:
        return float(check_number(value, at, zero=zero))
    if not isinstance(value, list) or len(value) < 2:
        raise BadInput(f"{at}: value must be a list of two or more numbers, got {short_text(value)}")
    return tuple(float(check_number(point, at, zero=zero)) for point in value)


def check_number(value: object, at: str, *, zero: bool) -> int | float:
    """Return `value` if it is a finite number above 0 and below `LARGEST`; 0 is accepted if `zero` is True.

    Raises BadInput for any other value. The message begins with `at`, the position in the file.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadInput(f"{at}: value must be a number, got {short_text(value)}")
    if not abs(value) < LARGEST:
        raise BadInput(f"{at}: value must be finite and below {LARGEST:g}, got {short_text(value)}")
    if value < 0 or (value == 0 and not zero):
        raise BadInput(f"{at}: value must be {'0 or more' if zero else 'above 0'}, got {short_text(value)}")
    return value


def _complaints(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the contradictions between values of a GPU file, as messages without the file's name."""
    for small, large in NOT_ABOVE:
        if values[small] > values[large]:
            yield f"{small}: {values[small]} exceeds {large}, {values[large]}"
    if values["threads_per_block"] > 32 * values["warps_per_sm"]:
        yield f"threads_per_block: {values['threads_per_block']} do not fit in {values['warps_per_sm']} warps"
    for name in ("mma_sync_share", "l2_store_read_share"):
        if values[name] > 1.0:
            yield f"{name}: must be at most 1, got {values[name]}"
    if 0.0 < values["sparse_tensor_factor"] < 1.0:
        yield f"sparse_tensor_factor: must be 0 or at least 1, got {values['sparse_tensor_factor']}"
    ports = values["sm_count"] * values["l2_port_bytes_per_clk_per_sm"] * values["max_clock_hz"]
    if values["l2_bytes_per_s"] > ports:
        yield f"l2_bytes_per_s: {values['l2_bytes_per_s']:g} exceeds {ports:g}, what the SMs' ports take"
    sizes, cycles = values["l2_same_row_bytes"], values["l2_same_row_cycles"]
    if any(left >= right for left, right in pairwise(sizes)) or len(sizes) != len(cycles):
        yield f"l2_same_row_bytes: must ascend, with {len(cycles)} points, got {list(sizes)}"
    yield from _clock_complaints(values)


def _clock_complaints(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the contradictions in the curves of the SM clock, which falls with the power that activity needs.

    `clock_activity` has the points at which the clocks in `CLOCKS` were measured.
    """
    activity = values["clock_activity"]
    if any(left >= right for left, right in pairwise(activity)):
        yield f"clock_activity: must ascend, got {list(activity)}"
    for name in CLOCKS:
        clocks = values[name]
        if len(clocks) != len(activity):
            yield f"{name}: has {len(clocks)} points, clock_activity {len(activity)}"
        if any(left < right for left, right in pairwise(clocks)):
            yield f"{name}: must not rise with activity, got {list(clocks)}"
        if clocks[0] > values["max_clock_hz"]:
            yield f"{name}: {clocks[0]:g} exceeds max_clock_hz, {values['max_clock_hz']:g}"
