"""Rotating inputs: slices of large buffers of random numbers, so that many sets cost no more than one."""

import math
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.plan.kernel_plan import DTYPE_BYTES

FLOATS = {"fp16": cp.float16, "fp32": cp.float32}
"""Formats that CuPy has; bf16 travels as its bits."""

COLD_BYTES = 2.2 * 60e6
"""Inputs and outputs of all sets together: over twice the L2 of an H200."""
MOST_SETS = 240
ALIGN = 128
"""Elements."""


class Inputs(NamedTuple):
    """Weights on the host and rotating arrays on the device, all of one layer."""

    weights: npt.NDArray[np.float32]
    """(M, K) normal values."""
    m: int
    k: int
    n: int
    dtype: str
    pool: Any
    """Random elements: fp16, fp32, or the bits of bf16."""
    outputs: Any

    def sets(self, kept_bytes: float, rows_read: int | None = None) -> int:
        """How many sets to rotate over where one reads `kept_bytes` of weights, and all rows of B or so many.

        With the bytes of all K rows counted, what 98 % sparse products touch came to 46 MB over all sets: L2
        had much of it, and they ran 5 to 14 % faster than over three times as many (H200, 2026-11-22).
        """
        rows = self.k if rows_read is None else rows_read
        one = kept_bytes + DTYPE_BYTES[self.dtype] * self.n * (rows + self.m)
        return min(max(math.ceil(COLD_BYTES / one), 2), MOST_SETS)

    def a(self, i: int) -> Any:
        """(M, K) dense weights of set i, from the second half of the pool."""
        return _slice(self.pool[self.pool.size // 2 :], i, self.m, self.k)

    def b(self, i: int) -> Any:
        """(K, N) of set i, from the first half of the pool."""
        return _slice(self.pool[: self.pool.size // 2], i, self.k, self.n)

    def c(self, i: int) -> Any:
        """(M, N) of set i."""
        return _slice(self.outputs, i, self.m, self.n)


def _slice(pool: Any, i: int, rows: int, columns: int) -> Any:
    """Place i of as many as the pool holds, from the front again where it holds fewer."""
    size = rows * columns
    stride = -(-size // ALIGN) * ALIGN
    first = i % max((pool.size - size) // stride + 1, 1) * stride
    return pool[first : first + size].reshape(rows, columns)


def layer_inputs(m: int, k: int, n: int, dtype: str, pool: Any, outputs: Any) -> Inputs:
    """Inputs of one layer over buffers that all layers share; `weights` are drawn from its sizes."""
    rng = np.random.default_rng([m, k, 77])
    weights = rng.standard_normal((m, k), dtype=np.float32)
    return Inputs(weights, m, k, n, dtype, pool, outputs)


def random_pool(elements: int, dtype: str) -> Any:
    """Normal values as the kernels take them."""
    values = cp.random.RandomState(5).standard_normal(elements, dtype=cp.float32)
    return rounded(values, dtype)


def rounded(x: Any, dtype: str) -> Any:
    """fp16, fp32, or the bits of bf16 in uint16, rounded to nearest even."""
    if dtype in FLOATS:
        return x.astype(FLOATS[dtype])
    bits = x.view(cp.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(cp.uint16)


def nothing(dtype: str) -> float | int:
    """What an element of C is filled with before a product that must write it: not a number."""
    return float("nan") if dtype in FLOATS else 0x7FC0


def exact(x: Any, dtype: str) -> Any:
    """The values as float64."""
    if dtype in FLOATS:
        return x.astype(cp.float64)
    return (x.astype(cp.uint32) << 16).view(cp.float32).astype(cp.float64)
