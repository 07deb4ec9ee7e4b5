"""Forms of the tile kernel on the same layer, timed in turn on an H200, beside what both engines predict.

    PRUNECAST_CACHE=build/forms python -m benchmarks.gpu_forms build    without a GPU: cubins, predictions
    PRUNECAST_CACHE=build/forms python -m benchmarks.gpu_forms run --out DIR

Asks whether forms are chosen well where they come close: two short items to an SM or one long one, blocks
that leave SMs to the next launch or none. Bursts, inputs rotated over twice the L2; outputs are compared.
Writes DIR/forms.json.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_cases import Case, tile_map
from benchmarks.own_kernels import build_beside, build_own
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, plan_stspmm
from prunecast.kernels.tiles.stspmm import choose_stspmm
from prunecast.models import estimate
from prunecast.simulator import simulate

GPU = load_gpu("h200-sxm")
MOST_FORMS = 4
CASES = (
    Case(128, 256, 25088, 0.5),
    Case(64, 256, 25088, 0.5, rows=64),
    Case(64, 576, 25088, 0.25, rows=64),
    Case(512, 256, 6272, 0.5),
    Case(768, 768, 4096, 0.1),
    Case(768, 768, 4096, 0.25),
    Case(1280, 1280, 3072, 0.05),
    Case(1280, 1280, 1024, 0.15),
    Case(3072, 768, 512, 0.25),
    Case(4096, 1024, 512, 0.1),
    Case(2048, 512, 392, 0.5),
    Case(2304, 768, 4096, 0.25),
    Case(768, 768, 4096, 656 / 768),
    Case(5120, 1280, 3072, 0.3),
    Case(14336, 4096, 1536, 0.2),
)


def plans_of(case: Case) -> list[KernelPlan]:
    """One for each of the forms that are thought fastest."""
    tiles = tile_map(case)
    forms = choose_stspmm(tiles, case.n, "fp16", GPU)[:MOST_FORMS]
    return [plan_stspmm(tiles, case.n, "fp16", GPU, form=form) for form in forms]


def build() -> None:
    """Cubins of all forms."""
    build_beside()
    for case in CASES:
        for plan in plans_of(case):
            build_own(plan)


def run(out: Path, seconds: float) -> None:
    """Time every case while time is left."""
    from benchmarks.on_gpu.alike import run_cases

    run_cases(CASES, out / "forms.json", seconds, _time)


def _time(case: Case, stream: Any) -> dict[str, Any]:
    from benchmarks.on_gpu.alike import time_alike

    plans = plans_of(case)
    samples = time_alike(case, {str(number): plan for number, plan in enumerate(plans)}, stream)
    rows = [_row(case, plan, samples[str(number)]) for number, plan in enumerate(plans)]
    return {**case._asdict(), "forms": rows}


def _row(case: Case, plan: KernelPlan, sample: Any) -> dict[str, Any]:
    mhz, us = float(np.median(sample.clock_mhz)), sample.median * 1e6
    said = [1e6 * engine(plan, GPU).seconds for engine in (simulate, estimate)]
    form = f"{plan.shape.block_m}x{plan.shape.block_n}"
    print(
        f"{case.name:36s} {form:8s} {plan.item_count:5d} items {us:7.2f} us {mhz:5.0f} MHz"
        f"  simulator {100 * (said[0] / us - 1):+5.1f} %  closed form {100 * (said[1] / us - 1):+5.1f} %",
        flush=True,
    )
    row = {"form": form, "items": plan.item_count, "blocks": plan.blocks, "us": us, "mhz": mhz}
    return {**row, "simulator_us": said[0], "closed_form_us": said[1]}


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    build() if options.what == "build" else run(options.out, options.seconds)


if __name__ == "__main__":
    main()
