"""Token ranges that the tile kernel walks together: 1, 2, 4 or 8, on an H200, beside what is predicted.

    PRUNECAST_CACHE=build/walk python -m benchmarks.gpu_walk build    without a GPU: cubins, predictions
    PRUNECAST_CACHE=build/walk python -m benchmarks.gpu_walk run --out DIR

Weights that do not stay in L2 from one range to the next are read again; several ranges together read them
less often, and more of B at a time. Bursts, inputs rotated over twice the L2, all walks of a layer in turn;
outputs of all walks are compared. Writes DIR/walk.json.
"""

import argparse
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.gpu_cases import Case, tile_map
from benchmarks.own_kernels import build_beside, build_own
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, plan_stspmm
from prunecast.kernels.tile import tile_plan
from prunecast.simulator import simulate

GPU = load_gpu("h200-sxm")
WALKS = (1, 2, 4, 8)
CASES = (
    Case(11008, 4096, 4096, 0.5),
    Case(11008, 4096, 4096, 0.25),
    Case(11008, 4096, 4096, 0.1),
    Case(4096, 11008, 4096, 0.5),
    Case(4096, 11008, 4096, 0.25),
    Case(4096, 4096, 4096, 0.5),
    Case(11008, 4096, 2048, 0.5),
    Case(4096, 11008, 2048, 0.5),
    Case(8192, 8192, 4096, 0.25),
    Case(8192, 8192, 4096, 0.5),
    Case(5120, 5120, 4096, 0.5),
)
FOUR_ABREAST = (
    Case(4096, 11008, 16384, 0.5),
    Case(4096, 11008, 16384, 0.1),
    Case(4096, 11008, 4096, 0.1),
    Case(4096, 4096, 16384, 0.5),
    Case(11008, 4096, 512, 0.5),
    Case(768, 3072, 16384, 0.5),
    Case(256, 2304, 12544, 0.5),
)
"""Where one wave of blocks holds four token ranges already, and one with two ranges in all."""
GROUPS = {"lost": CASES, "four-abreast": FOUR_ABREAST}


def plan_of(case: Case, together: int) -> KernelPlan:
    """The planner's choice, walked so."""
    with patch.object(tile_plan, "ranges_together", return_value=together):
        return plan_stspmm(tile_map(case), case.n, "fp16", GPU)


def build(cases: tuple[Case, ...]) -> None:
    """Cubins of all forms, and what the simulator says."""
    build_beside()
    for case in cases:
        for together in WALKS:
            plan = plan_of(case, together)
            build_own(plan)
            found = simulate(plan, GPU)
            print(_line(case, together, plan, found.seconds * 1e6, found.clock_hz * 1e-6), flush=True)


def _line(case: Case, together: int, plan: KernelPlan, us: float, mhz: float) -> str:
    form = f"{plan.shape.block_m}x{plan.shape.block_n} cluster {plan.cluster}"
    return f"{case.name:36s} {form:20s} together {together} {us:7.2f} us {mhz:5.0f} MHz"


def run(out: Path, seconds: float, cases: tuple[Case, ...]) -> None:
    """Time every case while time is left."""
    from benchmarks.on_gpu.alike import run_cases

    run_cases(cases, out / "walk.json", seconds, _time)


def _time(case: Case, stream: Any) -> dict[str, Any]:
    from benchmarks.on_gpu.alike import time_alike

    plans = {together: plan_of(case, together) for together in WALKS}
    samples = time_alike(case, {f"together {t}": plan for t, plan in plans.items()}, stream)
    rows = []
    for together, plan in plans.items():
        sample = samples[f"together {together}"]
        mhz = float(np.median(sample.clock_mhz))
        rows.append({"together": together, "us": sample.median * 1e6, "mhz": mhz})
        print(_line(case, together, plan, sample.median * 1e6, mhz), flush=True)
    return {**case._asdict(), "walks": rows}


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--cases", choices=tuple(GROUPS), default="lost")
    options = parser.parse_args()
    cases = GROUPS[options.cases]
    build(cases) if options.what == "build" else run(options.out, options.seconds, cases)


if __name__ == "__main__":
    main()
