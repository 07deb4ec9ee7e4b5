"""What measures of the vendor's dense product share: pools, sets of inputs, a launch and its time."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.on_gpu.parts import CupyProbe
from prunecast.validation.measure.libraries import DenseProduct
from prunecast.validation.measure.timing import capture, take_turns

POOL_BYTES = 1_500_000_000
SETS_BYTES = (132e6, 270e6, 540e6, 1000e6)
"""That sets of inputs have together; the first is over twice the L2."""
MOST_LAUNCHES = 240
TURNS = 5
Sets = list[tuple[Any, Any, Any]]
"""A (M, K), B (K, N) and C (M, N)."""


class Bench(NamedTuple):
    """What all parts share."""

    stream: Any
    product: DenseProduct
    pool: Any
    """Random fp16 elements."""
    outputs: Any
    probe: CupyProbe


def dense_bench(stream: Any, dtype: str = "fp16") -> Bench:
    """On the current stream; elements of the pools are fp16 whatever the product takes them for."""
    half = cp.random.RandomState(5).standard_normal(POOL_BYTES // 4, dtype=cp.float32).astype(cp.float16)
    pool = cp.concatenate((half, half))
    return Bench(stream, DenseProduct(stream, dtype), pool, cp.empty_like(pool), CupyProbe())


def sets_of(bench: Bench, m: int, k: int, n: int, count: int) -> Sets:
    """A (M, K), B (K, N) and C (M, N) of up to `count` sets, as many as there is room for."""
    inputs, outputs = _rounded(m * k) + _rounded(k * n), _rounded(m * n)
    found = []
    for i in range(min(count, bench.pool.size // inputs, bench.outputs.size // outputs)):
        a = bench.pool[i * inputs :][: m * k].reshape(m, k)
        b = bench.pool[i * inputs + _rounded(m * k) :][: k * n].reshape(k, n)
        found.append((a, b, bench.outputs[i * outputs :][: m * n].reshape(m, n)))
    return found


def _rounded(elements: int) -> int:
    return -(-elements // 128) * 128


def multiply(product: DenseProduct, arrays: tuple[Any, Any, Any], *, token_major: bool) -> None:
    """Enqueue C = A B with B as it lies, or taken for its transpose (N, K)."""
    a, b, c = arrays
    (k, n) = b.shape
    product(a, b.reshape(n, k) if token_major else b, c, b_is_token_major=token_major)


def multiplying(bench: Bench, sets: Sets, *, token_major: bool) -> Callable[[int], None]:
    """The product of a set by its number."""
    return lambda i: multiply(bench.product, sets[i], token_major=token_major)


def product_time(bench: Bench, launch: Callable[[int], None], sets: int) -> dict[str, float]:
    """Microseconds and SM clock of a product as the suite times it."""
    c = capture("product", bench.stream, launch, min(sets, MOST_LAUNCHES))
    sample = take_turns(bench.stream, [c], TURNS, bench.probe)["product"]
    us, mhz = 1e6 * float(np.median(sample.seconds)), float(np.median(sample.clock_mhz))
    return {"us": us, "clock_mhz": mhz}


def kernel_words(kernels: Iterable[dict[str, Any]]) -> str:
    """Names and grids on one line."""
    return "; ".join(f"{k['name'][:72]} {'x'.join(map(str, k.get('grid', [])))}" for k in kernels)
