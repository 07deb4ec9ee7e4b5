"""The mma.sync tile kernel on an H200 against cuBLAS: checked first, then timed, beside what was predicted.

    python -m benchmarks.gpu_mma_cases build/gpu_mma       # anywhere: cubins, plans, predictions
    python -m benchmarks.gpu_mma --prepared build/gpu_mma --out DIR

Nothing is compiled here. Protocol as in `gpu.py`: fp16, random normal data, bursts, everything rotated over
twice the L2, all contestants of a layer in turn, overlapping launches; a form is timed once it was right for
its own case. At 75 % the planner's first form also runs with three slots, with the other number of sets of
fragments, and without overlapping launches. Writes DIR/mma.json; the table comes last.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.gpu import _dense_contestants, _device, _input_sets, _more
from benchmarks.gpu_cases import LARGE, Case
from benchmarks.gpu_check import Verdict, _activated, _exact, _poisoned, _rounded, check, random_inputs
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
from benchmarks.gpu_time import Contestant, contestant, rotations, take_turns
from prunecast.kernels import KernelPlan
from prunecast.kernels.compile import compile
from prunecast.kernels.cuda.layer_operator import load_kernel
from prunecast.kernels.cuda.mma.forms import build_mma, mma_defines
from prunecast.kernels.cuda.mma.operator import MmaOperator, compile_mma
from prunecast.validation.tolerance import error_bound

RUNS = 20
GELU_SLOPE = 1.13


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
        if right:
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
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=420.0, help="start no layer after this long")
    parser.add_argument("--layers", default="", help="some of them, e.g. 4096x4096x4096; all if empty")
    parser.add_argument("--no-checks", action="store_true")
    return parser.parse_args()


def _save(record: dict[str, Any], out: Path) -> None:
    (out / "mma.json").write_text(json.dumps(record, indent=1))


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
    return check(f"{given.name} {changes or ''}", operator, inputs, runs=RUNS if given.blocks else 2)


def _check_ending(given: Check, activation: str) -> Verdict:
    """Through `compile`, as users call it."""
    plan = check_plan(given)
    inputs = random_inputs(plan, seed=5)
    bias = np.random.default_rng(6).standard_normal(plan.m).astype(np.float32)
    operator = compile(plan, inputs.a, bias=bias, activation=activation)
    c = _poisoned(plan)
    operator(inputs.b, out=c)
    a = _exact(_rounded(cp.asarray(inputs.a), plan.dtype), plan.dtype) * cp.asarray(plan.tiles.mask())
    b = _exact(inputs.b, plan.dtype)
    b[~cp.isfinite(b)] = 0.0
    before = a @ b + cp.asarray(bias, cp.float64)[:, None]
    size = cp.abs(a) @ cp.abs(b) + float(np.abs(bias).max())
    kept = int(plan.tiles.kept_per_tile.max()) + 2
    bound = GELU_SLOPE * error_bound(before, size, kept, plan.dtype) + 1e-6
    excess = cp.abs(_exact(c, plan.dtype) - _activated(before, activation)) / bound
    excess[~cp.isfinite(excess)] = cp.inf
    return Verdict(f"{given.name} bias {activation}", float(excess.max()), 0, True)


# ---- times


def _time_all(options: argparse.Namespace, record: dict[str, Any]) -> None:
    began = time.perf_counter()
    stream = cp.cuda.Stream(non_blocking=True)
    layers = list(dict.fromkeys(case.layer for case in cases()))
    for layer in layers:
        if options.layers and layer not in options.layers.split(","):
            continue
        if time.perf_counter() - began > options.seconds:
            print(f"out of time before {layer}")
            return
        own = [case for case in cases() if case.layer == layer]
        with stream:
            record["cases"] += _time_layer(own, options, stream)
        stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()
        print(f"{layer}: {time.perf_counter() - began:.0f} s", flush=True)
        _save(record, options.out)


def _time_layer(own: list[Case], options: argparse.Namespace, stream: Any) -> list[dict[str, Any]]:
    """All densities, heights, forms and variants of a layer with its dense products, in turn."""
    sets = _input_sets(own[0])
    contestants = _dense_contestants(stream, sets)
    entries: dict[str, dict[str, Any]] = {}
    for case in own:
        said = json.loads((options.prepared / "prepared.json").read_text())["cases"][case.name]
        for place, timed in enumerate(plans_from(options.prepared, case)):
            contestants += _contestants(case, timed, place, said["dense_us"], sets, stream, entries)
    samples = take_turns(stream, contestants, options.turns)
    dense = {name: s.median * 1e6 for name, s in samples.items() if "|" not in name}
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
    timed: Timed,
    place: int,
    dense_us: float,
    sets: list[tuple[Any, Any, Any]],
    stream: Any,
    entries: dict[str, dict[str, Any]],
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
        found.append(_contestant(name, operator, sets, stream, overlap=variant != "no pdl"))
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


def _contestant(
    name: str, operator: MmaOperator, sets: list[tuple[Any, Any, Any]], stream: Any, *, overlap: bool
) -> Contestant:
    plan = operator.plan
    set_bytes = 2 * (plan.m * plan.k * plan.density + plan.k * plan.n + plan.m * plan.n)
    count = rotations(set_bytes)
    operators = [operator, *(operator.copy() for _ in range(count - 1))]
    bs, cs = _more(sets, count)
    for one in operators:
        one.overlap = overlap

    def run(i: int) -> object:
        return operators[i](bs[i], out=cs[i])

    launch: Callable[[int], object] = run
    return contestant(name, stream, launch, sets=count, clock=operator.clock)


# ---- the table


def _print_table(record: dict[str, Any]) -> None:
    """The best of all heights and forms of every layer and density, then what the variants did."""
    print(f"\n{record['device']['nvidia-smi']}")
    right = sum(c["passes"] for c in record["checks"])
    print(f"checks: {right} of {len(record['checks'])} right")
    timed = [e for e in record["cases"] if "us" in e]
    print(f"{'layer':<18} {'keeps':>5} {'dense':>8} {'mma':>8} {'x':>6} {'said':>8} {'MHz':>5}  tiles, form")
    keys = dict.fromkeys((_layer(e), e["case"]["density"]) for e in timed)
    speedups: dict[tuple[str, float], float] = {}
    for layer, density in keys:
        own = [e for e in timed if (_layer(e), e["case"]["density"]) == (layer, density) and not e["variant"]]
        best = min(own, key=lambda e: e["us"])
        speedups[layer, density] = best["speedup"]
        times = f"{best['dense_us']:>8.1f} {best['us']:>8.1f} {best['speedup']:>5.2f}x"
        said = f"{best['predicted_us']:>8.1f} {best['mhz'] or 0:>5.0f}"
        print(f"{layer:<18} {density:>5.0%} {times} {said}  {best['case']['rows']}, {best['form']}")
    _print_variants(timed)
    _print_means(speedups)


def _layer(entry: dict[str, Any]) -> str:
    case = entry["case"]
    return f"{case['m']}x{case['k']}x{case['n']}"


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
    said = [np.log(e["predicted_us"] / e["us"]) for e in timed if not e["variant"]]
    if said:
        mean = 100 * np.expm1(np.mean(np.abs(said)))
        print(f"simulator: mean |error| {mean:.1f} %, bias {100 * np.expm1(np.mean(said)):+.1f} %")


def _print_means(speedups: dict[tuple[str, float], float]) -> None:
    large = {"x".join(map(str, layer)) for layer in LARGE}
    for title, wanted in (("five large", large), ("all layers", {layer for layer, _ in speedups})):
        for density in dict.fromkeys(d for _, d in speedups):
            own = [s for (layer, d), s in speedups.items() if d == density and layer in wanted]
            if own:
                mean = float(np.exp(np.mean(np.log(own))))
                print(f"{title}, {1 - density:.0%} sparse: {mean:.2f}x ({len(own)} layers)")


if __name__ == "__main__":
    sys.exit(main())
