"""Is a computed C right? A bound per element, derived from K and the number format, compared tile by tile.

A norm of the whole matrix hides a wrong tile: in a random 4096 x 4096 result one 128 x 128 tile of zeros
changes the norm by 0.05 %. Which tiles are computed is what this project is about, so tiles are compared.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput

FloatArray = npt.NDArray[np.float64]

SUM_ROUNDOFF = 2.0**-23
"""Relative error of one fp32 addition in a tensor core, which truncates instead of rounding to nearest.
Source: Fasi, Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ CS 7:e330, 2021."""

OUTPUT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24}
"""Unit roundoff of the format that C is stored in: 2^-p for p significand bits.
Source: IEEE 754-2019 table 3.5 for p = 11 and 24; bf16 is fp32 cut to p = 8."""

OUTPUT_UNDERFLOW = {"fp16": 2.0**-25, "bf16": 2.0**-134, "fp32": 2.0**-150}
"""Half of the smallest subnormal of that format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstTile:
    """The tile whose largest error is highest against its bound.

    Parameters
    ----------
    row, column : first row and column of the tile in C
    excess : largest |error| / bound in the tile; infinite where C is not finite
    wrong_elements : elements of the tile beyond their bound
    wrong_tiles : tiles of the whole matrix with at least one such element
    """

    row: int
    column: int
    excess: float
    wrong_elements: int
    wrong_tiles: int

    @property
    def passes(self) -> bool:
        """Whether every element of C lies within its bound."""
        return self.excess <= 1.0


def error_bound(reference: FloatArray, absolute: FloatArray, k: int, dtype: str) -> FloatArray:
    """Largest rounding error that each element of C may have.

    gamma_K |A| |B| with gamma_K = K u / (1 - K u) holds for a sum of K products in any order; storing C
    adds one rounding in its own format.

    Parameters
    ----------
    reference : (M, N) float64, A @ B of the values as stored in `dtype`
    absolute : (M, N) float64, |A| @ |B| of the same values
    k : products in one sum; kept columns suffice
    dtype : `fp16`, `bf16` or `fp32`, the format of C

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1.
    """
    if dtype not in OUTPUT_ROUNDOFF:
        raise BadInput(f"dtype must be one of {', '.join(OUTPUT_ROUNDOFF)}, got {dtype!r}")
    if k * SUM_ROUNDOFF >= 0.5:
        raise BadInput(f"k must stay below {int(0.5 / SUM_ROUNDOFF)} for the bound to mean anything, got {k}")
    gamma = k * SUM_ROUNDOFF / (1 - k * SUM_ROUNDOFF)
    before_storing = gamma * absolute
    return (
        before_storing
        + OUTPUT_ROUNDOFF[dtype] * (np.abs(reference) + before_storing)
        + OUTPUT_UNDERFLOW[dtype]
    )


def worst_tile(
    c: npt.NDArray[np.floating],
    reference: FloatArray,
    bound: FloatArray,
    *,
    tile: tuple[int, int] = (128, 128),
) -> WorstTile:
    """Compare C (M, N) with its reference, tile by tile; edge tiles may be smaller.

    Raises
    ------
    BadInput : the three shapes differ, or the matrix or the tile is empty
    """
    if not c.shape == reference.shape == bound.shape or c.ndim != 2 or c.size == 0:
        raise BadInput(
            f"c, reference and bound must be equal matrices, got {c.shape} {reference.shape} {bound.shape}"
        )
    if min(tile) < 1:
        raise BadInput(f"tile must be at least 1 x 1, got {tile[0]} x {tile[1]}")
    excess = np.abs(c.astype(np.float64) - reference) / bound
    excess[~np.isfinite(excess)] = np.inf
    per_tile = _reduce_tiles(np.maximum, excess, tile)
    wrong = _reduce_tiles(np.add, (excess > 1.0).astype(np.int64), tile)
    row, column = (int(i) for i in np.unravel_index(int(np.argmax(per_tile)), per_tile.shape))
    return WorstTile(
        row=row * tile[0],
        column=column * tile[1],
        excess=float(per_tile[row, column]),
        wrong_elements=int(wrong[row, column]),
        wrong_tiles=int(np.count_nonzero(wrong)),
    )


def _reduce_tiles(
    ufunc: np.ufunc, values: npt.NDArray[np.generic], tile: tuple[int, int]
) -> npt.NDArray[np.generic]:
    rows = ufunc.reduceat(values, range(0, values.shape[0], tile[0]), axis=0)
    return np.asarray(ufunc.reduceat(rows, range(0, values.shape[1], tile[1]), axis=1))
