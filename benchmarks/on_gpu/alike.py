"""Several plans of one product, timed in turn, with outputs compared."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.on_gpu.rotation import Rotation, launcher
from benchmarks.on_gpu.timing import Sample, contestant, rotations, take_turns
from benchmarks.tile.cases import Case
from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.cuda.operator import TileOperator

TURNS = 7
MOST_APART = 4e-3
"""Of the largest value. Not bit by bit: plans cut their tiles elsewhere."""


def run_cases(
    cases: Iterable[Case], file: Path, seconds: float, timed: Callable[[Case, Any], dict[str, Any]]
) -> None:
    """Time every case on a stream while time is left; writes the file at the end."""
    began, record = time.perf_counter(), []
    stream = cp.cuda.Stream(non_blocking=True)
    for case in cases:
        if time.perf_counter() - began > seconds:
            print("out of time at", case.name)
            break
        with stream:
            record.append(timed(case, stream))
        stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()
    file.write_text(json.dumps(record))
    print(f"{time.perf_counter() - began:.0f} s")


def time_alike(case: Case, plans: Mapping[str, KernelPlan], stream: Any) -> dict[str, Sample]:
    """Bursts of all plans by name, inputs rotated over twice the L2.

    Raises
    ------
    RuntimeError : C of one plan is not that of the first
    """
    weights = np.random.default_rng(11).standard_normal((case.m, case.k), dtype=np.float32)
    count = rotations(2 * (case.m * case.k * case.density + case.k * case.n + case.m * case.n))
    random = cp.random.RandomState(1)
    bs = [random.standard_normal((case.k, case.n), dtype=cp.float32).astype(cp.float16) for _ in range(count)]
    cs = [cp.zeros((case.m, case.n), cp.float16) for _ in range(count)]
    found, first = [], None
    for name, plan in plans.items():
        one = TileOperator.compile(plan, weights)
        rotation = Rotation([one, *(one.copy() for _ in range(count - 1))], bs, cs)
        one(bs[0], out=cs[0])
        got = cs[0].get().astype(np.float32)
        first = got if first is None else first
        apart = np.abs(got - first).max()
        if not apart <= MOST_APART * np.abs(first).max():
            raise RuntimeError(f"{case.name}: {name} is off by {apart}")
        found.append(contestant(name, stream, launcher(rotation), sets=count, clock=one.clock))
    return take_turns(stream, found, TURNS)
