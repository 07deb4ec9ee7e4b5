"""Correctness of a computed C: an error bound for each element, derived from K and the number format.

Single elements are compared because a norm of the whole matrix hides a wrong tile: in a random 4096 x 4096
result, one 128 x 128 tile of zeros changes the norm by 0.05 %. Bugs in tiled kernels most often make whole
tiles wrong.
"""

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
"""Half of the smallest subnormal number of the format that C is stored in."""


def error_bound(reference: FloatArray, absolute: FloatArray, k: int, dtype: str) -> FloatArray:
    """Return an upper bound of the rounding error of each element of C, (M, N) float64.

    The error of a sum of K products in any order is at most gamma_K |A| |B| with gamma_K = K u / (1 - K u),
    where u is the relative error of one addition. Storing C adds one rounding to its format.

    Parameters
    ----------
    reference : (M, N) float64, A @ B of the values as stored in `dtype`
    absolute : (M, N) float64, |A| @ |B| of the same values
    k : number of products in one sum; pruned columns need not be counted
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
