"""Predicted against measured on the H200, burst: cuBLAS dense, the tile kernel, and a prototype of it.

    python -m benchmarks.h200

No table was used for fitting, except that the SM clock under load was read in the prototype (a number in
`hardware/data/h200-sxm.toml` that says so), and that the planner's cost of a hand-over between blocks comes
from records of the tile kernel.
"""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.goals import Goal, print_goal
from benchmarks.gpu_cases import GPU, Case, tile_map
from benchmarks.tile_maps import equal_tiles
from prunecast.hardware import GpuSpec
from prunecast.kernels import KernelPlan, plan_dense, plan_stspmm
from prunecast.models import estimate
from prunecast.simulator import simulate

MEASURED = Path(__file__).parent / "measured"
TILE_KERNEL = "h200-sxm-tile-kernel-2026-11-20-version-3.json"
MEAN = Goal(name="dense fp16, H200, burst: mean |error| of twelve layers", limit=15.0, unit="%")
WORST = Goal(name="dense fp16, H200, burst: worst |error| of twelve layers", limit=30.0, unit="%")


class Row(NamedTuple):
    """One measured case."""

    label: str
    plan: KernelPlan
    measured_s: float


def tile_kernel_rows() -> Iterator[Row]:
    """Cases of the newest record of the tile kernel: its own plan of each, and the measured time."""
    record = json.loads((MEASURED / TILE_KERNEL).read_text())
    for entry in record["cases"]:
        case = Case(**entry["case"])
        yield Row(case.name, plan_stspmm(tile_map(case), case.n, "fp16", GPU), entry["burst"]["us"] * 1e-6)


def table_rows(name: str, gpu: GpuSpec) -> Iterator[Row]:
    """Cases of a table in `measured/`."""
    for row in rows_of(name):
        plan = plan_of(row, gpu)
        label = f"{plan.m}x{plan.k}x{plan.n} d={row.get('density', 1):g}"
        yield Row(label, plan, row["measured_us"] * 1e-6)


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


def compare(title: str, rows: Iterator[Row], gpu: GpuSpec) -> dict[str, list[float]]:
    """Print a table; signed log errors by engine."""
    errors: dict[str, list[float]] = {"simulator": [], "model": []}
    print(f"\n{title}\n{'M x K x N':>36} {'measured us':>12} {'simulator us':>20} {'model us':>20}")
    for row in rows:
        predicted_s = {
            "simulator": simulate(row.plan, gpu).seconds,
            "model": estimate(row.plan, gpu).seconds,
        }
        cells = ""
        for engine, seconds in predicted_s.items():
            errors[engine].append(math.log(seconds / row.measured_s))
            cells += f" {seconds * 1e6:10.1f} {100 * (seconds / row.measured_s - 1):+6.1f} %"
        print(f"{row.label:>36} {row.measured_s * 1e6:12.1f}{cells}")
    return errors


def percent(errors: list[float]) -> list[float]:
    """Absolute log errors as percentages."""
    return [100 * math.expm1(abs(error)) for error in errors]


def print_errors(title: str, errors: list[float]) -> None:
    """Mean, worst and bias on one line."""
    bias = 100 * math.expm1(sum(errors) / len(errors))
    worst = 100 * math.expm1(max(errors, key=abs))
    mean = sum(percent(errors)) / len(errors)
    print(
        f"{title} ({len(errors)} cases): mean |error| {mean:.1f} %, worst {worst:+.0f} %, bias {bias:+.1f} %"
    )


def main() -> None:
    """Print all tables, then the errors, those of dense beside their goals."""
    dense = compare("cuBLAS dense", table_rows("h200-sxm-dense-burst-2026-11-20.csv", GPU), GPU)
    prototype = compare("prototype", table_rows("h200-sxm-tile-prototype-2026-11-20.csv", GPU), GPU)
    kernel = compare("tile kernel, version 3", tile_kernel_rows(), GPU)
    for engine in dense:
        errors = percent(dense[engine])
        print(f"\n{engine}")
        print_goal(MEAN, sum(errors) / len(errors))
        print_goal(WORST, max(errors))
        print_errors("prototype of the tile kernel", prototype[engine])
        print_errors("tile kernel", kernel[engine])


if __name__ == "__main__":
    main()
