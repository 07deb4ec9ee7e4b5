"""How much each weight matters: the criterion that comes before any pattern.

A criterion turns weights (M, K) into importance (M, K): not negative, larger means keep. Scores from
elsewhere (Taylor, Fisher, second order) are handed in as arrays in place of a criterion's name.
"""

from collections.abc import Callable
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import WeightArray

ImportanceArray = npt.NDArray[np.floating]
"""(M, K) float32 or float64, finite, not negative."""

LARGEST = 1e150
"""Importance above this is refused: its square would no longer fit a float64."""


def magnitude(weights: WeightArray) -> ImportanceArray:
    """|w|, as float32 (exact for fp16, bf16 and fp32); float64 stays float64."""
    if weights.dtype == np.float64:
        return np.abs(weights)
    single = weights.astype(np.float32)
    return np.abs(single, out=single)


def squared(weights: WeightArray) -> ImportanceArray:
    """W * w, as float64, where the square of any fp32 weight neither overflows nor vanishes."""
    return np.square(weights.astype(np.float64, copy=False))


CRITERIA: dict[str, Callable[[WeightArray], ImportanceArray]] = {"magnitude": magnitude, "squared": squared}
"""Criterion name -> function from weights to importance."""


def weigh(name: str, weights: WeightArray, criterion: str | npt.ArrayLike = "magnitude") -> ImportanceArray:
    """Importance of the weights (M, K) of the tensor `name`.

    Parameters
    ----------
    name : tensor name for error messages
    weights : (M, K), any real type
    criterion : a name in `CRITERIA`, or an array (M, K) that is the importance itself

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
    """Importance (M, K) of `parts` matrices of M / parts rows below each other, scaled to equal sums.

    Queries, keys and values in one matrix differ in scale: ranked as they are, the smaller would go whole.
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


def checked_importance(name: str, array: npt.ArrayLike) -> ImportanceArray:
    """`array` as float32 or float64 (M, K), refused if it is not finite, not negative and two-dimensional.

    Raises
    ------
    BadInput : names the tensor, what was wanted and what came

    """
    scores = _as_float(name, np.asarray(array))
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
    """Return importance (M, K) that can rank the weights of tensor `name`.

    Raises
    ------
    BadInput : all of it is zero
    """
    # The first row decides, as a rule: reading the whole of a large layer is slow
    if not scores[0].any() and not scores.any():
        raise BadInput(
            f"importance of {name!r} is zero everywhere: nothing to rank, leave it out with ignore"
        )
    return scores


def _surely_good(scores: ImportanceArray) -> bool:
    """Whether all are finite, not negative and not too large, in one look at their bits.

    Read as whole numbers, floats from 0 on keep their order, and infinities, NaN and all with a sign lie
    above them. -0 is a good importance that this does not see.
    """
    bits = scores.view(np.uint32 if scores.dtype == np.float32 else np.uint64)
    most = np.array(min(LARGEST, float(np.finfo(scores.dtype).max)), scores.dtype).view(bits.dtype)
    return bool(bits.max() <= most)


def _as_float(name: str, array: npt.NDArray[np.generic]) -> ImportanceArray:
    if array.dtype.kind in "cOSUMm":
        raise BadInput(f"importance of {name!r}: wanted real numbers, got dtype {array.dtype}")
    small = array.dtype == np.float32 or array.dtype.itemsize <= 2
    return array.astype(np.float32 if small else np.float64, copy=False)
