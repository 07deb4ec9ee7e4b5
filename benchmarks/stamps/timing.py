"""Times of a plan with and without stamps, launches overlapping, inputs rotated over twice the L2."""

from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.gpu_time import Sample, contestant, rotations, take_turns
from benchmarks.on_gpu.rotation import moved_bytes
from prunecast.kernels import KernelPlan

__all__ = ["Arrays", "Timed", "random_weights", "record_of", "rotating_arrays", "time_stamped"]


class Arrays(NamedTuple):
    """B and C in rotation, and how many operators rotate; there may be fewer arrays than operators."""

    bs: list[Any]
    cs: list[Any]
    operators: int


class Timed(NamedTuple):
    """What came of a plan."""

    plain: Sample
    traced: Sample
    stamps: np.ndarray
    """(launches, blocks, words) int64 of the last launches, the last one last."""


def random_weights(plan: KernelPlan) -> np.ndarray:
    """(M, K), the same every time."""
    return np.random.default_rng(11).standard_normal((plan.m, plan.k), dtype=np.float32)


def rotating_arrays(plan: KernelPlan, *, fewest: int, hot: bool = False) -> Arrays:
    """Random B and empty C; `fewest` operators rotate at least.

    Parameters
    ----------
    hot : one set of arrays over and over, so that L2 holds B
    """
    count = max(rotations(moved_bytes(plan)), fewest)
    random, sets = cp.random.RandomState(1), 1 if hot else count
    bs = [random.standard_normal((plan.k, plan.n), dtype=cp.float32).astype(cp.float16) for _ in range(sets)]
    return Arrays(bs, [cp.empty((plan.m, plan.n), cp.float16) for _ in range(sets)], count)


def time_stamped(
    stream: Any,
    first: Any,
    traced: Any,
    arrays: Arrays,
    *,
    words: int,
    launches: int,
    turns: int,
    plain: Any = None,
) -> Timed:
    """Time copies of an operator with both kernels in turn.

    Parameters
    ----------
    first : the package's own
    traced, plain : kernels with stamps and without; without `plain` the operator's own one
    words : stamps of a block
    launches : whose stamps are kept, the last ones
    """
    blocks, bs, cs = first.plan.blocks, arrays.bs, arrays.cs
    groups = {name: [first.copy() for _ in range(arrays.operators)] for name in ("plain", "traced")}
    for operator in groups["plain"] if plain is not None else ():
        operator.use_kernel(plain)
    for operator in groups["traced"]:
        operator.use_kernel(traced)
        operator.clock = cp.zeros(4 + words * blocks, cp.uint64)
        operator._args["clock"] = operator.clock.data.ptr
    found = [
        contestant(
            name,
            stream,
            lambda i, own=own: own[i](bs[i % len(bs)], out=cs[i % len(cs)]),
            sets=arrays.operators,
            clock=own[0].clock[:4],
        )
        for name, own in groups.items()
    ]
    samples = take_turns(stream, found, turns)
    enqueued = found[1].launches
    last = [
        groups["traced"][(enqueued - back) % arrays.operators].clock.get()[4:].reshape(blocks, words)
        for back in range(launches, 0, -1)
    ]
    return Timed(samples["plain"], samples["traced"], np.stack(last).astype(np.int64))


def record_of(case: Any, plan: KernelPlan, timed: Timed) -> dict[str, Any]:
    """What a command writes of a case, whatever its stamps are."""
    return {
        "case": case._asdict(),
        "name": case.name,
        "m": plan.m,
        "k": plan.k,
        "n": plan.n,
        "blocks": plan.blocks,
        "items": plan.item_count,
        "us": timed.plain.median * 1e6,
        "traced_us": timed.traced.median * 1e6,
        "mhz": float(np.median(timed.plain.clock_mhz)),
        "traced_mhz": float(np.median(timed.traced.clock_mhz)),
    }
