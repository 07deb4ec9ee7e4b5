"""Pools, operators and turns of `benchmarks.gpu_tokens`."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.gpu_hold import own_plan
from benchmarks.gpu_tokens_cases import Product, Rows, to_multiple
from prunecast.kernels import compile as compile_operator
from prunecast.validation.measure.clock_probe import ClockProbe
from prunecast.validation.measure.inputs import random_pool
from prunecast.validation.measure.libraries import DenseProduct
from prunecast.validation.measure.timing import capture, take_turns

__all__ = ["OUTPUT_ELEMENTS", "POOL_ELEMENTS", "Bench", "Launches"]

POOL_ELEMENTS, OUTPUT_ELEMENTS = 800_000_000, 400_000_000
COLD_BYTES = 132e6
MOST_SETS = 120
TURNS = 5

Launches = dict[str, Callable[[int], Any]]


class Bench:
    """Pools of random numbers, a stream, and what was measured."""

    def __init__(self, out: Path, seconds: float) -> None:
        self.probe, self.out = ClockProbe(), out
        self.ends = time.perf_counter() + seconds
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.b, self.c = random_pool(POOL_ELEMENTS, "fp16"), cp.zeros(OUTPUT_ELEMENTS, cp.float16)
        self.gemm = DenseProduct(self.stream, "fp16")
        self.rows: list[dict[str, Any]] = []

    def matrix(self, pool: Any, i: int, rows: int, tokens: int, at: Rows) -> Any:
        """Set i of (rows, tokens) whose rows lie `at.pitch` elements apart."""
        size = to_multiple(rows * at.pitch + 64, 128)
        first = i % (pool.size // size) * size + at.offset
        return pool[first : first + rows * at.pitch].reshape(rows, at.pitch)[:, :tokens]

    def measure(self, part: str, product: Product, tokens: int, launches: Launches) -> None:
        """All in turn, a row for each; as many sets of inputs as there are operators."""
        if time.perf_counter() > self.ends:
            print("out of time", flush=True)
            return
        sets = product.sets(tokens, COLD_BYTES, MOST_SETS)
        with self.stream:
            found = [capture(name, self.stream, launch, sets) for name, launch in launches.items()]
            samples = take_turns(self.stream, found, TURNS, self.probe)
        for name, sample in samples.items():
            us, mhz = 1e6 * float(np.median(sample.seconds)), float(np.median(sample.clock_mhz))
            self.rows.append(
                product.facts(part, tokens) | {"what": name, "us": round(us, 4), "mhz": round(mhz)}
            )
        told = ", ".join(f"{row['what']} {row['us']:.2f}" for row in self.rows[-len(samples) :])
        print(part, *product, tokens, told, flush=True)
        (self.out / "gpu_tokens.json").write_text(json.dumps(self.rows))

    def recover(self) -> None:
        """After a failure: a capture that was left open would fail all that follows."""
        if self.stream.is_capturing():
            with suppress(Exception):
                self.stream.end_capture()

    def operators(self, product: Product, tokens: int) -> list[Any]:
        """One for each set of inputs: together they exceed twice the L2."""
        plan = own_plan(product.kernel, product.case(tokens))
        weights = np.random.default_rng(7).standard_normal((plan.m, plan.k), dtype=np.float32)
        with self.stream:
            first = compile_operator(plan, weights)
            return [first, *(first.copy() for _ in range(product.sets(tokens, COLD_BYTES, MOST_SETS) - 1))]
