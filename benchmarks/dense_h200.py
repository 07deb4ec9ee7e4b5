"""Predicted against measured: dense fp16 on the H200, twelve layers, burst, nothing fitted to them.

python -m benchmarks.dense_h200
"""

import csv
import math
from pathlib import Path

from benchmarks.goals import Goal, print_goal
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_dense
from prunecast.models import estimate
from prunecast.simulator import simulate

MEASURED = Path(__file__).parent / "measured" / "h200-sxm-dense-burst-2026-11-20.csv"
MEAN = Goal(name="dense fp16, H200, burst: mean |error| of twelve layers", limit=15.0, unit="%")
WORST = Goal(name="dense fp16, H200, burst: worst |error| of twelve layers", limit=30.0, unit="%")


def main() -> None:
    """Print the table, one row per layer, then both engines' mean and worst error."""
    gpu = load_gpu("h200-sxm")
    errors: dict[str, list[float]] = {"simulator": [], "model": []}
    print(f"{'M x K x N':>18} {'measured us':>12} {'simulator us':>20} {'model us':>18}")
    with MEASURED.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            m, k, n, measured_us = int(row["m"]), int(row["k"]), int(row["n"]), float(row["measured_us"])
            plan = plan_dense(m, k, n, "fp16", gpu)
            predicted_us = {
                "simulator": simulate(plan, gpu).seconds * 1e6,
                "model": estimate(plan, gpu).seconds * 1e6,
            }
            cells = []
            for engine, time_us in predicted_us.items():
                errors[engine].append(100 * math.expm1(abs(math.log(time_us / measured_us))))
                cells.append(f"{time_us:10.1f} {100 * (time_us / measured_us - 1):+6.1f} %")
            print(f"{f'{m}x{k}x{n}':>18} {measured_us:12.1f} {cells[0]:>20} {cells[1]:>18}")
    for engine, column in errors.items():
        print(engine)
        print_goal(MEAN, sum(column) / len(column))
        print_goal(WORST, max(column))


if __name__ == "__main__":
    main()
