"""The mma.sync tile kernel on an H200 against cuBLAS: checked first, then timed, beside what was predicted.

    python -m benchmarks.gpu_mma_cases build/gpu_mma       # anywhere: cubins, plans, predictions
    python -m benchmarks.gpu_mma --prepared build/gpu_mma --out DIR

Nothing is compiled here. Protocol as in `gpu.py`: fp16, random normal data, bursts, everything rotated over
twice the L2, all contestants of a layer in turn, overlapping launches; a form is timed once it was right for
its own case. At 75 % the planner's first form also runs with three slots, with the other number of sets of
fragments, and without overlapping launches. Writes DIR/mma.json; the table comes last.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_cases import Case
from benchmarks.gpu_check import Verdict, check, check_ending, random_inputs
from benchmarks.gpu_mma_cases import (
    ARCH,
    Check,
    Timed,
    cases,
    changes_of,
    check_plan,
    checks,
    ending_checks,
    guarded_checks,
    plans_from,
    timed_variants,
)
from benchmarks.gpu_time import Contestant
from benchmarks.on_gpu.mma_bench import (
    RUNS,
    Entries,
    MmaBench,
    mma_checks,
    mma_parser,
    print_best,
    print_said,
    run_mma,
)
from benchmarks.on_gpu.rotation import Sets, operator_contestant
from prunecast.kernels import KernelPlan
from prunecast.kernels.compile import compile
from prunecast.kernels.cuda.layer_operator import load_kernel
from prunecast.kernels.cuda.mma.forms import build_mma, mma_defines
from prunecast.kernels.cuda.mma.operator import MmaOperator, compile_mma


def main() -> int:
    """Check, time, print, write."""
    options = mma_parser(__doc__, turns=9, seconds=420.0).parse_args()
    return run_mma(
        MmaBench(
            file="mma.json",
            checks=mma_checks(
                _check, _check_ending, guarded=guarded_checks(), plain=checks(), endings=ending_checks()
            ),
            cases=cases(),
            contestants=partial(_contestants, options.prepared),
            print_table=_print_table,
        ),
        options,
    )


def _check(given: Check, changes: dict[str, int]) -> Verdict:
    plan = check_plan(given)
    inputs = random_inputs(plan, seed=given.n + given.blocks)
    operator = compile_mma(plan, inputs.a, changes=changes)
    return check(f"{given.name} {changes or ''}", operator, inputs, runs=RUNS if given.blocks else 2)


def _check_ending(given: Check, activation: str) -> Verdict:
    """Through `compile`, as users call it."""
    plan = check_plan(given)
    return check_ending(f"{given.name} bias {activation}", compile, plan, plan.tiles.mask(), activation)


def _contestants(prepared: Path, case: Case, sets: Sets, stream: Any, entries: Entries) -> list[Contestant]:
    """All forms that were prepared for a case, and their variants."""
    said = json.loads((prepared / "prepared.json").read_text())["cases"][case.name]
    found = []
    for place, timed in enumerate(plans_from(prepared, case)):
        found += _of_form(case, timed, place, said["dense_us"], sets, stream, entries)
    return found


def _of_form(
    case: Case, timed: Timed, place: int, dense_us: float, sets: Sets, stream: Any, entries: Entries
) -> list[Contestant]:
    """A form and its variants, once their results have been found right; packed once."""
    inputs = random_inputs(timed.plan, seed=11)
    first = compile_mma(timed.plan, inputs.a)
    found = []
    for variant, plan in timed_variants(case, timed.plan, place).items():
        name = f"{case.name} | {timed.name} | {variant}"
        operator = _variant_of(first, plan, changes_of(plan, variant)) if variant else first
        if operator is None:
            continue
        verdict = check(name, operator, inputs, runs=3)
        entries[name] = {
            "case": case._asdict(),
            "name": case.name,
            "form": timed.name,
            "slots": plan.resources.stages,
            "variant": variant,
            "blocks": plan.blocks,
            "split_items": int((plan.work.parts > 1).sum()),
            "predicted_us": timed.predicted_us,
            "predicted_dense_us": dense_us,
            "check": {**verdict._asdict(), "passes": verdict.passes},
        }
        if not verdict.passes:
            print(f"  WRONG {verdict}", flush=True)
            continue
        found.append(operator_contestant(name, operator, sets, stream, overlap=variant != "no pdl"))
    return found


def _variant_of(first: MmaOperator, plan: KernelPlan, changes: dict[str, int]) -> MmaOperator | None:
    """The same images with another compiled form; None where that could not be built."""
    try:
        cubin = build_mma(plan, ARCH, mma_defines(plan, changes=changes)).cubin
    except Exception as reason:
        print(f"left out: {reason}")
        return None
    kernel = load_kernel(cubin, "tile_mma", plan.resources.shared_bytes)
    return first.with_kernel(kernel, plan)


def _print_table(record: dict[str, Any]) -> None:
    """The best of all heights and forms of every layer and density, then what the variants did."""
    timed = print_best(record, "keeps mma", lambda density: density, lambda density: f"{density:.0%}")
    _print_variants(timed)
    print_said([e for e in timed if not e["variant"]])


def _print_variants(timed: list[dict[str, Any]]) -> None:
    """Times over those of the plan's own form, geometric means and extremes."""
    plain = {(e["name"], e["form"]): e["us"] for e in timed if not e["variant"]}
    for variant in dict.fromkeys(e["variant"] for e in timed if e["variant"]):
        own = [e for e in timed if e["variant"] == variant and (e["name"], e["form"]) in plain]
        ratios = [e["us"] / plain[e["name"], e["form"]] for e in own]
        mean = float(np.exp(np.mean(np.log(ratios))))
        print(
            f"{variant}: {mean:.3f} of the time ({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} cases)"
        )


if __name__ == "__main__":
    sys.exit(main())
