"""Forms of the tile kernel on the same layer, timed in turn on an H200, and who would choose which.

    PRUNECAST_CACHE=build/forms python -m benchmarks.gpu_forms build [--drawn 36]    without a GPU: cubins
    PRUNECAST_CACHE=build/forms python -m benchmarks.gpu_forms run [--drawn 36] --out DIR
    python -m benchmarks.gpu_forms said DIR/forms.json                               without a GPU

Asks whether forms are chosen well where they come close: two short items to an SM or one long one, blocks
that leave SMs to the next launch or none. Bursts, inputs rotated over twice the L2; outputs are compared.
`run` writes DIR/forms.json; `said` lists what both engines say of each form, and what each choice loses.
"""

import argparse
import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_cases import Case, tile_map
from benchmarks.gpu_forms_cases import CASES, draws
from benchmarks.own_kernels import build_beside, build_own
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, plan_stspmm
from prunecast.kernels.tile.choose import Candidate
from prunecast.kernels.tile.stspmm import choose_stspmm
from prunecast.models import estimate
from prunecast.simulator import simulate

GPU = load_gpu("h200-sxm")
MOST_FORMS = 5
WORTH_TIMING = 1.3
"""Times the fastest form's cycles, as the planner thinks."""
FEWEST_FORMS = 3
"""Of a drawn product: where the planner sees fewer, it hardly errs."""


def forms_of(case: Case) -> list[Candidate]:
    """Those that are thought fastest, or not much slower."""
    forms = choose_stspmm(tile_map(case), case.n, "fp16", GPU)[:MOST_FORMS]
    return [form for form in forms if form.cycles <= WORTH_TIMING * forms[0].cycles]


def plans_of(case: Case) -> list[KernelPlan]:
    """One for each of the forms."""
    tiles = tile_map(case)
    return [plan_stspmm(tiles, case.n, "fp16", GPU, config=form.config) for form in forms_of(case)]


def cases_of(drawn: int) -> list[Case]:
    """So many that were drawn, or those that were chosen."""
    if not drawn:
        return list(CASES)
    return list(islice((case for case in draws() if len(forms_of(case)) >= FEWEST_FORMS), drawn))


def build(cases: list[Case]) -> None:
    """Cubins of all forms."""
    build_beside()
    for case in cases:
        for plan in plans_of(case):
            build_own(plan)


def run(cases: list[Case], out: Path, seconds: float) -> None:
    """Time every case while time is left."""
    from benchmarks.on_gpu.alike import run_cases

    run_cases(cases, out / "forms.json", seconds, _time)


def _time(case: Case, stream: Any) -> dict[str, Any]:
    from benchmarks.on_gpu.alike import time_alike

    plans = plans_of(case)
    samples = time_alike(case, {str(number): plan for number, plan in enumerate(plans)}, stream)
    rows = [_row(case, plan, samples[str(number)]) for number, plan in enumerate(plans)]
    return {**case._asdict(), "forms": rows}


def _row(case: Case, plan: KernelPlan, sample: Any) -> dict[str, Any]:
    mhz, us = float(np.median(sample.clock_mhz)), sample.median * 1e6
    print(
        f"{case.name:40s} {form_name(plan):8s} {plan.item_count:5d} items {us:7.2f} us {mhz:5.0f} MHz",
        flush=True,
    )
    return {"form": form_name(plan), "items": plan.item_count, "blocks": plan.blocks, "us": us, "mhz": mhz}


def form_name(plan: KernelPlan) -> str:
    """Rows and tokens of a block."""
    return f"{plan.shape.block_m}x{plan.shape.block_n}"


def said(file: Path) -> None:
    """Errors of the planner and of both engines on every form that was timed, and what each choice loses."""
    losses = np.array([_said_of(record) for record in json.loads(file.read_text())])
    for who, loss in zip(("planner", "simulator", "closed form"), losses.T, strict=True):
        print(f"chosen by the {who}: {100 * np.mean(loss):.2f} % lost, at worst {100 * loss.max():.1f} %")


def _said_of(record: dict[str, Any]) -> list[float]:
    """Losses by the choice of the planner, the simulator and the closed form."""
    case = Case(**{key: record[key] for key in Case._fields})
    tiles, timed = tile_map(case), {row["form"]: row for row in record["forms"]}
    us, all_said = [], []
    for form in choose_stspmm(tiles, case.n, "fp16", GPU):
        plan = plan_stspmm(tiles, case.n, "fp16", GPU, config=form.config)
        row = timed.get(form_name(plan))
        if row is None or row["items"] != plan.item_count:
            continue
        seconds = (form.cycles / GPU.max_clock_hz, simulate(plan, GPU).seconds, estimate(plan, GPU).seconds)
        us.append(row["us"])
        all_said.append([1e6 * each for each in seconds])
        apart = "  ".join(f"{100 * (1e6 * each / row['us'] - 1):+5.1f}" for each in seconds)
        print(f"{case.name:40s} {form_name(plan):8s} {row['items']:5d} items {row['us']:7.2f} us  {apart}")
    return [us[int(choice)] / min(us) - 1.0 for choice in np.argmin(all_said, axis=0)]


def main() -> None:
    """Build, run, or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run", "said"))
    parser.add_argument("file", type=Path, nargs="?", default=Path("forms.json"))
    parser.add_argument("--drawn", type=int, default=0, help="so many random products; else chosen ones")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    if options.what == "said":
        said(options.file)
    elif options.what == "build":
        build(cases_of(options.drawn))
    else:
        run(cases_of(options.drawn), options.out, options.seconds)


if __name__ == "__main__":
    main()
