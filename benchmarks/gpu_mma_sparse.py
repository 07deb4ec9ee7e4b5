"""2:4 weights through mma.sp on an H200 against cuBLAS: checked first, then timed, beside predictions.

    python -m benchmarks.gpu_mma_sparse_cases build/gpu_mma_sparse      # anywhere: cubins, plans, predictions
    python -m benchmarks.gpu_mma_sparse --prepared build/gpu_mma_sparse --out DIR

Nothing is compiled here. TVW: tiles of 128 or 256 rows keep random columns, half or a quarter of them, and
every row two random ones of four neighbours in its tile's list. Protocol as in `gpu.py`: fp16, random normal
data, bursts, everything rotated over twice the L2, all contestants of a layer in turn, overlapping launches;
a form is timed once it was right for its own case. Of every layer the best two forms by the simulator run
with lists of items, and the first with one item a block. Writes DIR/mma_sparse.json; the table comes last.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.gpu import _dense_contestants, _device, _input_sets
from benchmarks.gpu_cases import Case
from benchmarks.gpu_check import (
    Inputs,
    Verdict,
    _activated,
    _exact,
    _poisoned,
    _rounded,
    check,
    random_inputs,
)
from benchmarks.gpu_mma import GELU_SLOPE, RUNS, _contestant, _layer, _print_means
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
from benchmarks.gpu_time import Contestant, take_turns
from prunecast.kernels.compile import compile
from prunecast.kernels.cuda.mma.forms import mma_defines
from prunecast.kernels.cuda.mma.operator import MmaOperator, compile_mma, mma_operator
from prunecast.kernels.cuda.mma.pack import PackedMma
from prunecast.kernels.cuda.mma.plan_pack import pack_plan
from prunecast.kernels.cuda.pack import to_bits
from prunecast.kernels.plan import BlockShape
from prunecast.validation.tolerance import error_bound

TIMED_RUNS = 3


def main() -> int:
    """Check, time, print, write."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["PRUNECAST_CACHE"] = str((options.prepared / "cubin").resolve())
    record: dict[str, Any] = {"device": _device(), "arguments": sys.argv[1:], "checks": [], "cases": []}
    right = True
    try:
        right = options.no_checks or _check_all(record)
        _save(record, options.out)
        if right or options.anyway:
            _time_all(options, record)
    except Exception:
        record["stopped"] = traceback.format_exc()
        traceback.print_exc()
    _save(record, options.out)
    _print_table(record)
    return 0 if right and "stopped" not in record else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=65.0, help="start no layer after this long")
    parser.add_argument("--layers", default="", help="some of them, e.g. 4096x4096x4096; all if empty")
    parser.add_argument("--no-checks", action="store_true")
    parser.add_argument("--anyway", action="store_true", help="time what was right, even if not all was")
    return parser.parse_args()


def _save(record: dict[str, Any], out: Path) -> None:
    (out / "mma_sparse.json").write_text(json.dumps(record, indent=1))


# ---- checks


def _check_all(record: dict[str, Any]) -> bool:
    """The guarded build first: it traps where the plain one would hang."""
    verdicts: list[Verdict] = []
    groups: list[tuple[str, Iterable[Verdict]]] = [
        ("guarded", (_check(c, {"GUARD": 1}) for c in guarded_checks())),
        ("plain", (_check(c, {}) for c in checks())),
        ("endings", (_check_ending(c, a) for c in ending_checks() for a in ("none", "relu", "gelu"))),
    ]
    for name, group in groups:
        began = time.perf_counter()
        found = list(group)
        wrong = [v for v in found if not v.passes]
        seconds = time.perf_counter() - began
        print(f"{name}: checked {len(found)}, wrong {len(wrong)}, {seconds:.1f} s", flush=True)
        for v in wrong[:12]:
            print(f"  WRONG {v.name}: excess {v.excess:.3g}, repeats {v.repeats}; {v.detail}", flush=True)
        verdicts += found
        record["checks"] = [{**v._asdict(), "passes": v.passes} for v in verdicts]
        if wrong and name == "guarded":
            return False
    return all(v.passes for v in verdicts)


def _check(given: Check, changes: dict[str, int]) -> Verdict:
    plan = check_plan(given)
    inputs = random_inputs(plan, seed=given.n + given.blocks)
    operator = compile_mma(plan, inputs.a, changes=changes)
    runs = RUNS if given.blocks else 2
    return _judged(f"{given.name} {changes or ''}", operator, inputs, runs)


def _judged(name: str, operator: MmaOperator, inputs: Inputs, runs: int) -> Verdict:
    """The operator was made of all weights; the reference sees those that are kept."""
    kept = Inputs(inputs.a * operator.plan.inner.mask(), inputs.b)
    return check(name, operator, kept, runs=runs)


def _check_ending(given: Check, activation: str) -> Verdict:
    """Through `compile`, as users call it."""
    plan = check_plan(given)
    inputs = random_inputs(plan, seed=5)
    bias = np.random.default_rng(6).standard_normal(plan.m).astype(np.float32)
    operator = compile(plan, inputs.a, bias=bias, activation=activation)
    c = _poisoned(plan)
    operator(inputs.b, out=c)
    a = _exact(_rounded(cp.asarray(inputs.a), plan.dtype), plan.dtype) * cp.asarray(plan.inner.mask())
    b = _exact(inputs.b, plan.dtype)
    b[~cp.isfinite(b)] = 0.0
    before = a @ b + cp.asarray(bias, cp.float64)[:, None]
    size = cp.abs(a) @ cp.abs(b) + float(np.abs(bias).max())
    products = int(plan.inner.kept_per_row.max()) + 2
    bound = GELU_SLOPE * error_bound(before, size, products, plan.dtype) + 1e-6
    excess = cp.abs(_exact(c, plan.dtype) - _activated(before, activation)) / bound
    excess[~cp.isfinite(excess)] = cp.inf
    return Verdict(f"{given.name} bias {activation}", float(excess.max()), 0, True)


# ---- times


def _time_all(options: argparse.Namespace, record: dict[str, Any]) -> None:
    began = time.perf_counter()
    stream = cp.cuda.Stream(non_blocking=True)
    for layer in dict.fromkeys(case.layer for case in cases()):
        if options.layers and layer not in options.layers.split(","):
            continue
        if time.perf_counter() - began > options.seconds:
            print(f"out of time before {layer}")
            return
        with stream:
            record["cases"] += _time_layer([c for c in cases() if c.layer == layer], options, stream)
        stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()
        print(f"{layer}: {time.perf_counter() - began:.0f} s", flush=True)
        _save(record, options.out)


def _time_layer(own: list[Case], options: argparse.Namespace, stream: Any) -> list[dict[str, Any]]:
    """All densities, heights and forms of a layer with its dense products, in turn."""
    sets = _input_sets(own[0])
    contestants = _dense_contestants(stream, sets)
    names = {c.name for c in contestants}
    entries: dict[str, dict[str, Any]] = {}
    for case in own:
        contestants += _contestants(case, options.prepared, sets, stream, entries)
    samples = take_turns(stream, contestants, options.turns)
    dense = {name: s.median * 1e6 for name, s in samples.items() if name in names}
    best = min(dense, key=dense.__getitem__)
    for name, entry in entries.items():
        if name not in samples:
            continue
        s = samples[name]
        entry |= {
            "us": s.median * 1e6,
            "seconds": s.seconds,
            "mhz": float(np.median(s.clock_mhz)) if s.clock_mhz else None,
            "dense": dense,
            "dense_name": best,
            "dense_us": dense[best],
            "speedup": dense[best] / (s.median * 1e6),
        }
    return list(entries.values())


def _contestants(
    case: Case,
    prepared: Path,
    sets: list[tuple[Any, Any, Any]],
    stream: Any,
    entries: dict[str, dict[str, Any]],
) -> list[Contestant]:
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
        verdict = _judged(timed.name, operator, finite, TIMED_RUNS)
        entries[timed.name] = _entry(timed, verdict)
        if not verdict.passes:
            print(f"  WRONG {verdict}", flush=True)
            continue
        found.append(_contestant(timed.name, operator, sets, stream, overlap=True))
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


# ---- the table


def _print_table(record: dict[str, Any]) -> None:
    """The best of all heights and forms of every layer and density, then what lists do."""
    print(f"\n{record['device']['nvidia-smi']}")
    right = sum(c["passes"] for c in record["checks"])
    print(f"checks: {right} of {len(record['checks'])} right")
    timed = [e for e in record["cases"] if "us" in e]
    print(
        f"{'layer':<18} {'zeros':>6} {'dense':>8} {'mma.sp':>8} {'x':>6} {'said':>8} {'MHz':>5}  tiles, form"
    )
    speedups: dict[tuple[str, float], float] = {}
    for layer, density in dict.fromkeys((_layer(e), e["case"]["density"]) for e in timed):
        own = [e for e in timed if (_layer(e), e["case"]["density"]) == (layer, density)]
        best = min(own, key=lambda e: e["us"])
        speedups[layer, density / 2] = best["speedup"]
        times = f"{best['dense_us']:>8.1f} {best['us']:>8.1f} {best['speedup']:>5.2f}x"
        said = f"{best['predicted_us']:>8.1f} {best['mhz'] or 0:>5.0f}"
        print(f"{layer:<18} {1 - density / 2:>6.1%} {times} {said}  {best['case']['rows']}, {best['form']}")
    _print_lists(timed)
    _print_means(speedups)


def _print_lists(timed: list[dict[str, Any]]) -> None:
    """Times with lists of items over those with one item a block, and how far the simulator was off."""
    by_name = {e["name"]: e["us"] for e in timed}
    pairs = [(us, by_name.get(name.replace(" lists", " blocks"))) for name, us in by_name.items()]
    ratios = [us / other for us, other in pairs if other and us != other]
    if ratios:
        print(
            f"lists over one item a block: {float(np.exp(np.mean(np.log(ratios)))):.3f} ({len(ratios)} cases)"
        )
    said = [np.log(e["predicted_us"] / e["us"]) for e in timed]
    if said:
        mean = 100 * np.expm1(np.mean(np.abs(said)))
        print(f"simulator: mean |error| {mean:.1f} %, bias {100 * np.expm1(np.mean(said)):+.1f} %")


if __name__ == "__main__":
    sys.exit(main())
