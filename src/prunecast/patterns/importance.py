"""Importance of weights: scores by which patterns decide which weights to prune.

A criterion is a function from weights (M, K) to importance (M, K), at least 0; weights of higher importance
are kept first. Scores of other methods (Taylor, Fisher, second order) are passed as arrays in place of a
criterion's name.
"""

from collections.abc import Callable
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import WeightArray

ImportanceArray = npt.NDArray[np.floating]
"""(M, K) float32 or float64, finite, at least 0; float16 for patterns with `by_blocks`."""

LARGEST = 1e150
"""Largest accepted importance: its square must fit a float64."""
SIGN_BIT = 1 << 15
"""Sign bit of a float16 that is read as uint16."""
BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Bytes of a float -> unsigned integer type, in which the bits of nonnegative floats have the same order."""


def magnitude(weights: WeightArray) -> ImportanceArray:
    """Return |w|, as float32 (exact for fp16, bf16 and fp32); float64 stays float64."""
    if weights.dtype == np.float64:
        return np.abs(weights)
    single = weights.astype(np.float32)
    return np.abs(single, out=single)


def half_magnitude(weights: npt.NDArray[np.float16]) -> ImportanceArray:
    """Return |w| as float16, in half the memory of `magnitude`; `weights` itself if no weight is negative."""
    has_signs = weights.view(np.uint16).max(initial=0) >= SIGN_BIT
    return np.abs(weights) if has_signs else weights


def squared(weights: WeightArray) -> ImportanceArray:
    """Return w * w as float64, in which the square of an fp32 weight neither overflows nor underflows."""
    return np.square(weights.astype(np.float64, copy=False))


CRITERIA: dict[str, Callable[[WeightArray], ImportanceArray]] = {"magnitude": magnitude, "squared": squared}
"""Criterion name -> function from weights to importance."""


def weigh(name: str, weights: WeightArray, criterion: str | npt.ArrayLike = "magnitude") -> ImportanceArray:
    """Return the importance (M, K) of the weights of the tensor `name`.

    Parameters
    ----------
    name : tensor name for error messages
    weights : (M, K), any real type
    criterion : a name in `CRITERIA`, or an array (M, K) of importance

    Raises
    ------
    BadInput : unknown criterion, a given array of another shape, or scores that cannot rank weights
    """
    if not isinstance(criterion, str):
        given = np.asarray(criterion)
        if given.shape != weights.shape:
            raise BadInput(f"importance of {name!r}: wanted shape {weights.shape}, got {given.shape}")
        return checked_importance(name, given)
    if criterion not in CRITERIA:
        near = get_close_matches(criterion, CRITERIA) or list(CRITERIA)
        raise BadInput(f"unknown criterion {criterion!r}; did you mean {' or '.join(near)}?")
    return checked_importance(name, CRITERIA[criterion](weights))


def even_parts(importance: ImportanceArray, parts: int) -> ImportanceArray:
    """Return importance (M, K) of matrices stacked along M, scaled so that all of them have equal sums.

    Query, key and value projections in one matrix differ in scale. Without scaling, most of the projection
    with the smallest weights would be pruned.

    Parameters
    ----------
    importance : (M, K)
    parts : number of stacked matrices, each of M / parts rows
    """
    if parts == 1:
        return importance
    matrices = importance.reshape(parts, -1, importance.shape[1])
    sums = matrices.sum(axis=(1, 2), dtype=np.float64)
    scale = np.divide(sums.mean(), sums, out=np.ones(parts), where=sums > 0)
    evened: ImportanceArray = (matrices * scale[:, None, None].astype(importance.dtype)).reshape(
        importance.shape
    )
    return evened


def checked_importance(name: str, array: npt.ArrayLike, *, keep_half: bool = False) -> ImportanceArray:
    """Return `array` as float32 or float64 (M, K); with `keep_half` float16 stays as it is.

    Raises
    ------
    BadInput : not a matrix, or values that are negative, above `LARGEST` or not finite; the message names the
        tensor
    """
    given = np.asarray(array)
    scores = given if keep_half and given.dtype == np.float16 else _as_float(name, given)
    if scores.ndim != 2 or scores.size == 0:
        raise BadInput(f"importance of {name!r}: wanted a matrix (M, K), got shape {scores.shape}")
    if _surely_good(scores):
        return scores
    with np.errstate(invalid="ignore"):
        low, high = float(scores.min()), float(scores.max())  # NaN where there is any
    if not (np.isfinite(low) and np.isfinite(high)):
        bad = scores.size - np.count_nonzero(np.isfinite(scores))
        raise BadInput(f"importance of {name!r}: wanted finite values, got {bad} NaN or Inf")
    if low < 0 or high > LARGEST:
        raise BadInput(f"importance of {name!r}: wanted values in [0, {LARGEST:g}], got {low:g} to {high:g}")
    return scores


def check_ranks(name: str, scores: ImportanceArray) -> ImportanceArray:
    """Return the importance (M, K) of tensor `name` unchanged if it can rank weights.

    Raises
    ------
    BadInput : the importance is zero everywhere
    """
    # Test the first row first: it usually decides, and reading all of a large layer is slow
    if not scores[0].any() and not scores.any():
        raise BadInput(
            f"importance of {name!r} is zero everywhere: nothing to rank, leave it out with ignore"
        )
    return scores


def _surely_good(scores: ImportanceArray) -> bool:
    """Return True if all scores are finite, not negative and not too large, from one maximum over their bits.

    The bits of nonnegative floats, as unsigned integers, have the order of the floats. The bits of
    infinities, NaN and values with a sign bit are larger than those of any valid score. The test rejects -0,
    which is valid: False does not mean that a score is invalid.
    """
    bits = scores.view(BITS[scores.itemsize])
    most = np.array(min(LARGEST, float(np.finfo(scores.dtype).max)), scores.dtype).view(bits.dtype)
    return bool(bits.max() <= most)


def _as_float(name: str, array: npt.NDArray[np.generic]) -> ImportanceArray:
    if array.dtype.kind in "cOSUMm":
        raise BadInput(f"importance of {name!r}: wanted real numbers, got dtype {array.dtype}")
    small = array.dtype == np.float32 or array.dtype.itemsize <= 2
    return array.astype(np.float32 if small else np.float64, copy=False)
