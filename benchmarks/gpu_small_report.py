"""The table of a run of `gpu_small`, from its record; needs no GPU.

python -m benchmarks.gpu_small_report DIR/small.json
"""

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["entry_of", "print_table", "table_lines"]

HEADER = (
    f"{'N':>3} {'layer':<11} {'keeps':>5} {'dense':>7} {'linear':>7} {'tile':>7} {'small':>7} {'no-pdl':>7}"
    f" {'first':>7} {'speedup':>8} {'said':>6} {'TB/s':>5}  best form"
)


def entry_of(case: dict[str, Any], forms: list[dict[str, Any]], us: dict[str, float]) -> dict[str, Any]:
    """What the table says of one case.

    Parameters
    ----------
    case : from the preparation: sizes, density, predictions
    forms : of the small-n kernel: name, prediction, `screen_us` where it was right, bytes read
    us : median microseconds by contestant: dense ones by their own names; `linear`, `tile`, `small NAME`,
        `no-pdl NAME`
    """
    dense = {name: t for name, t in us.items() if name.startswith("cublas") or name == "torch"}
    small = {name.removeprefix("small "): t for name, t in us.items() if name.startswith("small ")}
    best = min(small, key=small.__getitem__, default=None)
    own = next((form for form in forms if form["name"] == best), {"us": None, "bytes": 0})
    dense_us, small_us = min(dense.values()), small.get(best or "")
    return {
        **{key: case[key] for key in ("m", "k", "n", "density")},
        "dense": dense,
        "dense_us": dense_us,
        "linear_us": us.get("linear"),
        "tile_us": us.get("tile"),
        "predicted_dense_us": case["dense_us"],
        "predicted_tile_us": case["tile_us"],
        "forms": forms,
        "small": small,
        "best": best,
        "small_us": small_us,
        "no_pdl_us": next((t for name, t in us.items() if name.startswith("no-pdl ")), None),
        "first_us": small.get(case["forms"][0]["name"]),
        "speedup": dense_us / small_us if small_us else None,
        "predicted_us": own["us"],
        "tb_per_s": own["bytes"] / small_us * 1e-6 if small_us else None,
    }


def table_lines(record: dict[str, Any]) -> list[str]:
    """Microseconds; `first` is the planner's first form, `said` the simulator's word on the best one."""
    lines = [HEADER]
    for e in sorted(record["cases"], key=lambda e: (e["n"], -e["m"] * e["k"], -e["m"], -e["density"])):
        times = " ".join(
            f"{_number(e[key]):>7}"
            for key in ("dense_us", "linear_us", "tile_us", "small_us", "no_pdl_us", "first_us")
        )
        layer = f"{e['m']}x{e['k']}"
        rest = f"{_number(e['speedup']):>7}x {_number(e['predicted_us']):>6} {_number(e['tb_per_s']):>5}"
        lines.append(f"{e['n']:>3} {layer:<11} {e['density']:>5.0%} {times} {rest}  {e['best']}")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def print_table(record: dict[str, Any]) -> None:
    """Checks on a line, then the table."""
    checks = record["checks"]
    print(f"\n{record['device']['nvidia-smi']}")
    print(f"checks: {sum(c['passes'] for c in checks)} of {len(checks)} right")
    print("\n".join(table_lines(record)), flush=True)


if __name__ == "__main__":
    print_table(json.loads(Path(sys.argv[1]).read_text()))
