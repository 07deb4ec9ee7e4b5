"""2:4 weights through mma.sp on an H200 against cuBLAS: checked first, then timed, beside predictions.

    python -m benchmarks.gpu_mma_sparse_cases build/gpu_mma_sparse      # anywhere: cubins, plans, predictions
    python -m benchmarks.gpu_mma_sparse --prepared build/gpu_mma_sparse --out DIR

Nothing is compiled here. TVW: tiles of 128 or 256 rows keep random columns, half or a quarter of them, and
every row two random ones of four neighbours in its tile's list. Protocol as in `gpu.py`: fp16, random normal
data, bursts, everything rotated over twice the L2, all contestants of a layer in turn, overlapping launches;
a form is timed once it was right for its own case. Of every layer the best two forms by the simulator run
with lists of items, and the first with one item a block. Writes DIR/mma_sparse.json; the table comes last.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.gpu_cases import Case
from benchmarks.gpu_check import Inputs, Verdict, check_ending, check_kept, random_inputs
from benchmarks.gpu_mma_cases import Check
from benchmarks.gpu_mma_sparse_cases import (
    Timed,
    cases,
    check_plan,
    checks,
    ending_checks,
    guarded_checks,
    plans_from,
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
from prunecast.kernels.compile import compile
from prunecast.kernels.cuda.mma.forms import mma_defines
from prunecast.kernels.cuda.mma.operator import compile_mma, mma_operator
from prunecast.kernels.cuda.mma.pack import PackedMma
from prunecast.kernels.cuda.mma.plan_pack import pack_plan
from prunecast.kernels.cuda.pack import to_bits
from prunecast.plan.kernel_plan import BlockShape

TIMED_RUNS = 3


def main() -> int:
    """Check, time, print, write."""
    parser = mma_parser(__doc__, turns=7, seconds=65.0)
    parser.add_argument("--anyway", action="store_true", help="time what was right, even if not all was")
    options = parser.parse_args()
    return run_mma(
        MmaBench(
            file="mma_sparse.json",
            checks=mma_checks(
                _check, _check_ending, guarded=guarded_checks(), plain=checks(), endings=ending_checks()
            ),
            cases=cases(),
            contestants=partial(_contestants, options.prepared),
            print_table=_print_table,
        ),
        options,
        anyway=options.anyway,
    )


def _check(given: Check, changes: dict[str, int]) -> Verdict:
    plan = check_plan(given)
    inputs = random_inputs(plan, seed=given.n + given.blocks)
    operator = compile_mma(plan, inputs.a, changes=changes)
    return check_kept(f"{given.name} {changes or ''}", operator, inputs, runs=RUNS if given.blocks else 2)


def _check_ending(given: Check, activation: str) -> Verdict:
    """Through `compile`, as users call it."""
    plan = check_plan(given)
    return check_ending(f"{given.name} bias {activation}", compile, plan, plan.inner.mask(), activation)


def _contestants(prepared: Path, case: Case, sets: Sets, stream: Any, entries: Entries) -> list[Contestant]:
    """What was prepared for a case, once it has been found right; the same weights are packed once."""
    packed: dict[tuple[int, BlockShape], PackedMma] = {}
    inputs: Inputs | None = None
    found = []
    for timed in plans_from(prepared, case):
        plan = timed.plan
        inputs = inputs or random_inputs(plan, seed=11)
        key = (timed.case.rows, plan.shape)
        if key not in packed:
            packed[key] = pack_plan(plan, to_bits(inputs.a, plan.dtype))
        operator = mma_operator(plan, packed[key], mma_defines(plan))
        finite = Inputs(inputs.a, cp.where(cp.isfinite(inputs.b), inputs.b, cp.float16(1.0)))
        verdict = check_kept(timed.name, operator, finite, runs=TIMED_RUNS)
        entries[timed.name] = _entry(timed, verdict)
        if not verdict.passes:
            print(f"  WRONG {verdict}", flush=True)
            continue
        found.append(operator_contestant(timed.name, operator, sets, stream))
    return found


def _entry(timed: Timed, verdict: Verdict) -> dict[str, Any]:
    plan = timed.plan
    return {
        "case": timed.case._asdict(),
        "name": timed.name,
        "form": timed.name.split(" | ")[1],
        "slots": plan.resources.stages,
        "step": plan.shape.block_k,
        "blocks": plan.blocks,
        "split_items": int((plan.work.parts > 1).sum()),
        "predicted_us": timed.predicted_us,
        "check": {**verdict._asdict(), "passes": verdict.passes},
    }


def _print_table(record: dict[str, Any]) -> None:
    """The best of all heights and forms of every layer and density, then what lists do."""
    timed = print_best(
        record, "zeros mma.sp", lambda density: density / 2, lambda density: f"{1 - density / 2:.1%}"
    )
    _print_lists(timed)
    print_said(timed)


def _print_lists(timed: list[dict[str, Any]]) -> None:
    """Times with lists of items over those with one item a block, and how far the simulator was off."""
    by_name = {e["name"]: e["us"] for e in timed}
    pairs = [(us, by_name.get(name.replace(" lists", " blocks"))) for name, us in by_name.items()]
    ratios = [us / other for us, other in pairs if other and us != other]
    if ratios:
        print(
            f"lists over one item a block: {float(np.exp(np.mean(np.log(ratios)))):.3f} ({len(ratios)} cases)"
        )


if __name__ == "__main__":
    sys.exit(main())
