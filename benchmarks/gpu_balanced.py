"""The balanced kernel on a GPU against cuBLAS fp32 (no TF32): checked first, then timed, beside its goals.

    PRUNECAST_CACHE=build/gpu/cubin python -m benchmarks.gpu_balanced --out DIR [--cases 3] [--rests 0,2,4]

Protocol as in `gpu.py`: random normal data, bursts, rotation over twice the L2, all contestants in turn. One
token is timed from a warm L2 as well. Writes DIR/balanced.json.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.gpu_time import Contestant, contestant, rotations, take_turns
from benchmarks.on_gpu import formats
from benchmarks.on_gpu.dense_contestants import torch_contestant
from benchmarks.on_gpu.rotation import Rotation, launcher
from benchmarks.on_gpu.session import device
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, plan_balanced
from prunecast.kernels.balanced import planner
from prunecast.kernels.cuda.balanced import forms
from prunecast.kernels.cuda.balanced.operator import BalancedOperator, compile_balanced
from prunecast.kernels.cuda.balanced.pack import rounded
from prunecast.patterns import ElementMap, element_map_from_mask
from prunecast.patterns.balanced import prune_balanced
from prunecast.validation.tolerance import error_bound

__all__ = ["CASES", "BalancedCase", "elements_of", "plans"]

GPU = load_gpu("h200-sxm")
RUNS = 20


class BalancedCase(NamedTuple):
    """One product with a balanced A."""

    m: int
    k: int
    n: int
    sparsity: float
    width: int = 64
    dtype: str = "fp32"
    goal: float = 0.0
    """Times cuBLAS; 0 for none."""

    @property
    def name(self) -> str:
        """Unique among the cases."""
        return f"{self.m}x{self.k}x{self.n} {self.sparsity:g} balanced:{self.width} {self.dtype}"


CASES = (
    BalancedCase(4096, 4096, 256, 0.75, goal=1.8),
    BalancedCase(4096, 4096, 256, 0.9, goal=4.0),
    BalancedCase(6000, 3000, 1, 0.875, width=32, goal=3.0),
    BalancedCase(4096, 4096, 256, 0.5),
    BalancedCase(4096, 4096, 64, 0.75),
    BalancedCase(4096, 4096, 8, 0.75),
    BalancedCase(4096, 4096, 2048, 0.9),
    BalancedCase(4096, 4096, 256, 0.75, dtype="fp16"),
    BalancedCase(4096, 4096, 256, 0.9, dtype="fp16"),
    BalancedCase(4096, 4096, 1, 0.9),
    BalancedCase(8192, 8192, 1, 0.875),
)
CHECKS = tuple(
    BalancedCase(m, k, n, sparsity, width, dtype)
    for (m, k, sparsity, width) in ((520, 1000, 0.75, 64), (333, 700, 0.9, 32), (64, 4096, 0.5, 64))
    for n in (1, 8, 64, 200, 2048)
    for dtype in ("fp32", "fp16", "bf16")
)


def elements_of(case: BalancedCase) -> ElementMap:
    """Random elements; the same case gives the same map everywhere."""
    rng = np.random.default_rng([case.m, case.k, case.width])
    mask = prune_balanced(rng.random((case.m, case.k)), case.sparsity, width=case.width)
    return element_map_from_mask(mask, f"balanced:{case.width}")


def plans(cases: tuple[BalancedCase, ...]) -> Iterator[tuple[BalancedCase, KernelPlan]]:
    """Plans of all cases."""
    for case in cases:
        yield case, plan_balanced(elements_of(case), case.n, case.dtype, GPU)


@contextmanager
def fixed_rest(rest: int | None) -> Iterator[None]:
    """Plan with this rest instead of the one that costs least; for experiments."""
    kept = planner.choose_rest, forms.choose_rest
    if rest is not None:
        planner.choose_rest = forms.choose_rest = lambda elements, window: rest
    try:
        yield
    finally:
        planner.choose_rest, forms.choose_rest = kept


def _device_b(plan: KernelPlan, seed: int) -> Any:
    """(K, N), infinite where no row of A reads."""
    b = cp.random.RandomState(seed).standard_normal((plan.k, plan.n), dtype=cp.float32)
    assert plan.inner is not None
    unread = np.setdiff1d(np.arange(plan.k), plan.inner.column_index)
    if unread.size:
        b[cp.asarray(unread)] = cp.inf
    return formats.rounded(b, plan.dtype)


def check(
    plan: KernelPlan, operator: BalancedOperator, a: np.ndarray, runs: int = RUNS
) -> tuple[float, bool]:
    """Largest |error| over its bound against float64, and whether all runs gave the same bits."""
    b, c = _device_b(plan, 3), formats.poisoned(plan)
    operator(b, out=c)
    same = True
    for _ in range(runs - 1):
        again = formats.poisoned(plan)
        operator(b, out=again)
        same &= bool((again.view(cp.uint8) == c.view(cp.uint8)).all())
    assert plan.inner is not None
    exact_a = cp.asarray((rounded(a, plan.dtype) * plan.inner.mask()).astype(np.float64))
    exact_b = formats.in_float64(b, plan.dtype)
    exact_b[~cp.isfinite(exact_b)] = 0
    wanted = exact_a @ exact_b
    kept = int(plan.inner.kept_per_row.max())
    bound = error_bound(wanted, cp.abs(exact_a) @ cp.abs(exact_b), kept, plan.dtype)
    excess = cp.abs(formats.in_float64(c, plan.dtype) - wanted) / bound
    excess[~cp.isfinite(excess)] = cp.inf
    return float(excess.max()), same


def _check_all(record: dict[str, Any], rests: list[int | None]) -> bool:
    for rest in rests:
        with fixed_rest(rest):
            for case, plan in plans(CHECKS):
                a = np.random.default_rng(5).standard_normal((case.m, case.k), dtype=np.float32)
                excess, same = check(plan, compile_balanced(plan, a), a)
                record["checks"].append({"name": case.name, "rest": rest, "excess": excess, "repeats": same})
                if excess > 1 or not same:
                    print(f"WRONG {case.name} rest {rest}: excess {excess:.3g}, repeats {same}", flush=True)
    wrong = sum(c["excess"] > 1 or not c["repeats"] for c in record["checks"])
    print(f"checked {len(record['checks'])}, wrong {wrong}", flush=True)
    return wrong == 0


def _time_case(case: BalancedCase, rests: list[int | None], stream: Any, turns: int) -> dict[str, Any]:
    item = 4 if case.dtype == "fp32" else 2
    element = cp.float32 if case.dtype == "fp32" else cp.float16
    random = cp.random.RandomState(1)
    bytes_dense = item * (case.m * case.k + case.k * case.n + case.m * case.n)

    def new(*shape: int) -> Any:
        return random.standard_normal(shape, dtype=cp.float32).astype(element)

    sets = [
        (new(case.m, case.k), new(case.k, case.n), cp.empty((case.m, case.n), element))
        for _ in range(rotations(bytes_dense))
    ]
    contestants = [*_dense(sets, stream, ""), *(_dense(sets[:1], stream, " warm") if case.n == 1 else [])]
    clocks: dict[str, Any] = {}
    elements = elements_of(case)
    a = np.random.default_rng(5).standard_normal((case.m, case.k), dtype=np.float32)
    for rest in rests if case.n > 1 else rests[:1]:
        with fixed_rest(rest):
            plan = plan_balanced(elements, case.n, case.dtype, GPU)
            operator = compile_balanced(plan, a)
        excess, same = check(plan, operator, a, runs=3)
        if excess > 1 or not same:
            print(f"WRONG {case.name} rest {rest}: excess {excess:.3g}")
            continue
        own = sum(x.nbytes for x in operator.arrays.values()) + item * (case.k + case.m) * case.n
        count = max(rotations(own), 1)
        operators = [operator, *(operator.copy() for _ in range(count - 1))]
        bs = [new(case.k, case.n) for _ in range(count)]
        cs = [cp.empty((case.m, case.n), element) for _ in range(count)]
        for overlap in (True, False):
            name = f"ours {'' if rest is None else f'rest {rest} '}{'pdl' if overlap else 'no-pdl'}"
            contestants.append(
                contestant(
                    name,
                    stream,
                    launcher(Rotation(operators, bs, cs), overlap=overlap),
                    sets=count,
                    clock=operator.clock,
                )
            )
            if case.n == 1:
                warm = launcher(Rotation(operators[:1], bs, cs), overlap=overlap)
                contestants.append(contestant(f"{name} warm", stream, warm, sets=1, clock=operator.clock))
        clocks[str(rest)] = {
            "shape": list(plan.shape),
            "shared": plan.resources.shared_bytes,
            "blocks": plan.blocks,
        }
    samples = take_turns(stream, contestants, turns)
    return {
        "name": case.name,
        "goal": case.goal,
        "plans": clocks,
        "us": {n: 1e6 * s.median for n, s in samples.items()},
        "seconds": {n: s.seconds for n, s in samples.items()},
        "mhz": {n: float(np.median(s.clock_mhz)) for n, s in samples.items() if s.clock_mhz},
    }


def _dense(sets: list[tuple[Any, Any, Any]], stream: Any, suffix: str) -> list[Contestant]:
    """The library through torch in three layouts; for one token that is its choice of GEMV or GEMM."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    found = [torch_contestant(stream, sets)._replace(name=f"cublas KN{suffix}")]
    turned = [(a, cp.ascontiguousarray(b.T).T, c) for a, b, c in sets]
    found.append(torch_contestant(stream, turned)._replace(name=f"cublas NK{suffix}"))
    turned = [(cp.ascontiguousarray(a.T).T, b, c) for a, b, c in sets]
    found.append(torch_contestant(stream, turned)._replace(name=f"cublas A^T KN{suffix}"))
    return found


def _print(entry: dict[str, Any]) -> None:
    us = entry["us"]
    for suffix in ("", " warm"):
        dense = {
            n: t for n, t in us.items() if n.startswith("cublas") and n.endswith(" warm") == bool(suffix)
        }
        ours = {n: t for n, t in us.items() if n.startswith("ours") and n.endswith(" warm") == bool(suffix)}
        if not ours or not dense:
            continue
        best = min(dense, key=dense.__getitem__)
        for name, t in sorted(ours.items(), key=lambda pair: pair[1]):
            ratio = dense[best] / t
            goal = f" goal {entry['goal']:.1f}x" if entry["goal"] else ""
            mhz = entry["mhz"].get(name, 0)
            library = f"{best} {dense[best]:8.2f}"
            print(f"{entry['name']:<46} {name:<24} {t:8.2f} us {mhz:5.0f} MHz; {library} {ratio:5.2f}x{goal}")


def main() -> int:
    """Check, time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--cases", type=int, default=len(CASES), help="how many; the first three have goals")
    parser.add_argument("--rests", default="", help="rests to time besides the planner's, e.g. 0,2,4")
    options = parser.parse_args()
    rests: list[int | None] = [None, *(int(r) for r in options.rests.split(",") if r)]
    options.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"device": device(), "checks": [], "cases": []}
    right = _check_all(record, rests)
    stream = cp.cuda.Stream(non_blocking=True)
    for case in CASES[: options.cases]:
        if not right:
            break
        with stream:
            record["cases"].append(_time_case(case, rests, stream, options.turns))
        cp.get_default_memory_pool().free_all_blocks()
        _print(record["cases"][-1])
        sys.stdout.flush()
        (options.out / "balanced.json").write_text(json.dumps(record, indent=1))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
