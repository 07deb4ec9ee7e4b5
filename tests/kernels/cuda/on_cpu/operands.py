"""Operands of an emulated product, and whether its C is right: all of it against float64, tile by tile."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from scipy.special import erf

from prunecast.kernels import KernelPlan
from prunecast.validation.tolerance import error_bound

__all__ = ["GUARD", "Operands", "Rows", "check_c", "make_operands", "rows_of"]

GUARD = 32
"""Elements around a matrix that must stay as they are."""
_DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
STEEPEST = {"none": 1.0, "relu": 1.0, "gelu": 1.13}
"""Largest slope of the activation: an error before it grows by no more."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A row-major matrix within an array of its own, between elements that must stay as they are."""

    whole: npt.NDArray[Any]
    matrix: npt.NDArray[Any]
    """A view of `whole`."""

    @property
    def address(self) -> int:
        """Of the first element."""
        return int(self.matrix.ctypes.data)

    @property
    def row_bytes(self) -> int:
        """From a row to the next."""
        return int(self.matrix.strides[0])

    def outside(self) -> npt.NDArray[np.bool_]:
        """Which elements of `whole` are not of the matrix."""
        inside = np.zeros(self.whole.size, bool)
        first = (self.address - self.whole.ctypes.data) // self.whole.itemsize
        step = self.row_bytes // self.whole.itemsize
        for row in range(self.matrix.shape[0]):
            inside[first + row * step : first + row * step + self.matrix.shape[1]] = True
        return ~inside


@dataclass(frozen=True, kw_only=True)
class Operands:
    """What a product is made of."""

    a: npt.NDArray[np.float32]
    """(M, K) in fp32, already of values that the dtype has."""
    b: Rows
    c: Rows
    """Poisoned."""
    bias: npt.NDArray[np.float32] | None
    second: Rows | None = None
    """Second input of a convolution."""

    @property
    def inputs(self) -> list[npt.NDArray[Any]]:
        """Arrays that the product reads."""
        return [self.b.whole] if self.second is None else [self.b.whole, self.second.whole]


def rows_of(values: npt.NDArray[Any], *, apart: int, shift: int = 0) -> Rows:
    """`values` in rows `apart` elements from one another, NaN around; the first lies `shift` off 64 bytes."""
    count, width = values.shape
    per_line = 64 // values.itemsize
    whole = np.full((count * apart + 2 * GUARD + per_line + shift,), np.nan, values.dtype)
    lead = -(whole.ctypes.data // values.itemsize + GUARD) % per_line
    first = GUARD + lead + shift
    matrix = whole[first : first + count * apart].reshape(count, apart)[:, :width]
    matrix[...] = values
    return Rows(whole=whole, matrix=matrix)


def make_operands(
    plan: KernelPlan, *, seed: int = 0, bias: bool = False, align: int = 1, apart: int = 0, shift: int = 0
) -> Operands:
    """Random ones. Rows of B that nothing kept needs are infinite, C is not a number.

    Parameters
    ----------
    align : elements of which rows of B and C hold a multiple
    apart : more elements between rows
    shift : elements by which B begins off 64 bytes
    """
    dtype = _DTYPES[plan.dtype]
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((plan.m, plan.k)).astype(dtype).astype(np.float32)
    b = rng.standard_normal((plan.k, plan.n)).astype(dtype)
    # Tensor cores multiply all columns of a tile, CUDA cores only the kept elements
    read = plan.tiles if plan.inner is None or plan.tensor != "none" else plan.inner
    b[~read.mask().any(axis=0)] = np.inf
    step = -(-plan.n // align) * align + apart
    return Operands(
        a=a,
        b=rows_of(b, apart=step, shift=shift),
        c=rows_of(np.full((plan.m, plan.n), np.nan, dtype), apart=step),
        bias=rng.standard_normal(plan.m).astype(np.float32) if bias else None,
    )


def check_c(plan: KernelPlan, operands: Operands, activation: str = "none") -> None:
    """Every element of C within its rounding error, and nothing around C touched, or AssertionError.

    Elements between N and the next multiple of the alignment are C's own padding, which may be written.
    """
    excess = _excess(plan, operands, activation)
    assert excess.max() <= 1.0, _where(plan, excess)


def check_around(c: Rows, padded_n: int) -> None:
    """Nothing was written before, behind and between the rows of C, but for their own padding."""
    own = np.lib.stride_tricks.as_strided(c.matrix, (c.matrix.shape[0], padded_n), c.matrix.strides)
    outside = Rows(whole=c.whole, matrix=own).outside()
    assert np.isnan(c.whole.astype(np.float32)[outside]).all(), "something around C was written"


def _excess(plan: KernelPlan, operands: Operands, activation: str) -> npt.NDArray[np.float64]:
    """|error| over its bound."""
    mask = plan.tiles.mask() if plan.inner is None else plan.inner.mask()
    a = operands.a.astype(np.float64) * mask
    b = operands.b.matrix.astype(np.float64)
    b[~np.isfinite(b)] = 0.0
    before, size = a @ b, np.abs(a) @ np.abs(b)
    if operands.bias is not None:
        before = before + operands.bias[:, None].astype(np.float64)
        size = size + np.abs(operands.bias)[:, None]
    products = int(mask.sum(axis=1).max(initial=1)) + 2
    bound = STEEPEST[activation] * error_bound(before, size, products, plan.dtype)
    if activation == "gelu":
        bound = bound + 2.0**-22 * np.abs(before)  # of erf and two products in fp32
    error = np.abs(operands.c.matrix.astype(np.float64) - _activated(before, activation))
    return np.where(np.isfinite(error), error, np.inf) / bound


def _activated(x: npt.NDArray[np.float64], activation: str) -> npt.NDArray[np.float64]:
    if activation == "relu":
        return np.maximum(x, 0.0)
    if activation == "gelu":
        return 0.5 * x * (1.0 + erf(x / np.sqrt(2.0)))
    return x


def _where(plan: KernelPlan, excess: npt.NDArray[np.float64]) -> str:
    """The wrong tiles, by what they keep and where they are wrong."""
    tiles, found = plan.tiles, [f"{(excess > 1).sum()} of {excess.size} wrong"]
    for t in range(tiles.tile_count):
        wrong = excess[tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]] > 1
        if wrong.any():
            rows, tokens = np.flatnonzero(wrong.any(axis=1)), np.flatnonzero(wrong.any(axis=0))
            found.append(
                f"tile {t}, {tiles.kept_per_tile[t]} kept: {wrong.sum()}, rows {rows[0]} to {rows[-1]}, "
                f"tokens {tokens[0]} to {tokens[-1]}"
            )
    alone = np.setdiff1d(np.arange(plan.m), tiles.row_index)
    return "; ".join([*found[:8], f"in no tile {(excess[alone] > 1).sum()}"])
