"""Predicted against measured on the H200, burst: cuBLAS dense and a prototype of the tile kernel.

    python -m benchmarks.h200

Neither table was used for fitting, except that the SM clock under load was read in the prototype (a number in
`hardware/data/h200-sxm.toml` that says so).
"""

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from benchmarks.goals import Goal, print_goal
from benchmarks.tile_maps import equal_tiles
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan, plan_dense, plan_stspmm
from prunecast.models import estimate
from prunecast.simulator import simulate

MEASURED = Path(__file__).parent / "measured"
MEAN = Goal(name="dense fp16, H200, burst: mean |error| of twelve layers", limit=15.0, unit="%")
WORST = Goal(name="dense fp16, H200, burst: worst |error| of twelve layers", limit=30.0, unit="%")


def rows_of(name: str) -> Iterator[dict[str, float]]:
    """Rows of a table in `measured/`, all columns as numbers."""
    with (MEASURED / name).open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            yield {column: float(value) for column, value in row.items()}


def plan_of(row: dict[str, float], gpu: GpuSpec) -> KernelPlan:
    """The plan of one row: dense, or STSpMM on equal tiles where the row has a density."""
    m, k, n = int(row["m"]), int(row["k"]), int(row["n"])
    if "density" not in row:
        return plan_dense(m, k, n, "fp16", gpu)
    return plan_stspmm(equal_tiles(m, k, round(k * row["density"])), n, "fp16", gpu)


def compare(name: str, gpu: GpuSpec) -> dict[str, list[float]]:
    """Print a table; signed log errors by engine."""
    errors: dict[str, list[float]] = {"simulator": [], "model": []}
    print(f"\n{name}")
    print(f"{'M x K x N':>18} {'density':>8} {'measured us':>12} {'simulator us':>20} {'model us':>20}")
    for row in rows_of(name):
        plan, measured_s = plan_of(row, gpu), row["measured_us"] * 1e-6
        predicted_s = {"simulator": simulate(plan, gpu).seconds, "model": estimate(plan, gpu).seconds}
        cells = ""
        for engine, seconds in predicted_s.items():
            errors[engine].append(math.log(seconds / measured_s))
            cells += f" {seconds * 1e6:10.1f} {100 * (seconds / measured_s - 1):+6.1f} %"
        print(f"{f'{plan.m}x{plan.k}x{plan.n}':>18} {plan.density:8.2f} {row['measured_us']:12.1f}{cells}")
    return errors


def percent(errors: list[float]) -> list[float]:
    """Absolute log errors as percentages."""
    return [100 * math.expm1(abs(error)) for error in errors]


def main() -> None:
    """Print both tables, then the errors beside their goals."""
    gpu = load_gpu("h200-sxm")
    dense = compare("h200-sxm-dense-burst-2026-11-20.csv", gpu)
    tile = compare("h200-sxm-tile-prototype-2026-11-20.csv", gpu)
    for engine in dense:
        errors = percent(dense[engine])
        print(f"\n{engine}")
        print_goal(MEAN, sum(errors) / len(errors))
        print_goal(WORST, max(errors))
        errors = percent(tile[engine])
        bias = 100 * math.expm1(sum(tile[engine]) / len(errors))
        print(f"tile prototype: mean |error| {sum(errors) / len(errors):.1f} %, bias {bias:+.1f} %")


if __name__ == "__main__":
    main()
