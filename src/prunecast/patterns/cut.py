"""Exact selection of the scored pieces to prune, and the partition of an axis into pieces.

Pieces are elements, blocks or column segments of tiles. They are pruned in one fixed order: lower scores
first and, of equal scores, later pieces first (layers in their given order, then row-major). Pruning stops
as soon as the pruned elements reach the target. Therefore no piece is pruned without need, equal input gives
equal masks, and the masks of a higher sparsity are subsets of those of a lower one.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray

CountArray = npt.NDArray[np.int64]

SUMMED_AT_A_TIME = 2**20
"""Scores of a piece that are squared and summed at a time, 8 MiB in float64."""
FEWEST_COLUMNS = 64
"""Fewest columns that are summed at a time. NumPy adds the numbers of a single column in another order."""
SAMPLE = 2**16
"""Size of the sample of scores that estimates a threshold; if the estimate fails, all scores are searched."""
SAMPLED = 16
"""Multiple of the sample size above which sampling is used."""
MARGIN = 1024
"""Ranks of the sample searched on either side of the estimate: at least four standard deviations of its
error.
"""


def elements_to_prune(sparsity: float, total: int) -> int:
    """Return the smallest number of elements that is at least the fraction `sparsity` of `total`.

    A product that differs from a whole number only by rounding counts as that number: 0.55 of 100 is 55,
    though 0.55 * 100 is slightly more in float64.
    """
    wanted = sparsity * total
    nearest = round(wanted)
    return nearest if abs(wanted - nearest) <= 1e-12 * total else math.ceil(wanted)


def elements_of_all(importances: Mapping[str, ImportanceArray], sparsity: float) -> int:
    """Return the number of elements to prune with which a group of layers as a whole reaches the sparsity."""
    return elements_to_prune(sparsity, sum(scores.size for scores in importances.values()))


def keep_highest(
    scores: Mapping[str, ImportanceArray], elements: Mapping[str, CountArray] | None, target: int
) -> dict[str, MaskArray]:
    """Return flags of the pieces that remain after pruning the lowest ones until `target` elements are gone.

    Parameters
    ----------
    scores : layer -> score of each piece, any shape, finite
    elements : layer -> elements in each piece, int64, of a shape that broadcasts to that of the scores; None
        for one element per piece
    target : elements to prune, at most all of them

    Returns
    -------
    layer -> bool flags in the shape of the scores, True for pieces that are kept
    """
    elements = elements or {layer: np.ones(1, dtype=np.int64) for layer in scores}
    flat = _joined([score.ravel() for score in scores.values()])
    sizes = np.concatenate([count.ravel() for count in elements.values()])
    if target <= 0:
        pruned = np.zeros(flat.size, dtype=np.bool_)
    elif sizes.min() == sizes.max():
        pruned = _lowest(flat, -(-target // int(sizes[0])))
    else:
        counts = [np.broadcast_to(elements[layer], score.shape).ravel() for layer, score in scores.items()]
        pruned = _lowest_by_size(flat, _joined(counts), target)
    stops = np.cumsum([score.size for score in scores.values()])[:-1]
    parts = np.split(np.logical_not(pruned, out=pruned), stops)
    return {layer: part.reshape(scores[layer].shape) for layer, part in zip(scores, parts, strict=True)}


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the concatenation of the arrays; a single array is returned without a copy."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _lowest(scores: ImportanceArray, count: int) -> MaskArray:
    """Return flags of the `count` lowest scores, without a full sort; of equal scores, the later ones."""
    threshold = _order_statistic(scores, count)
    chosen = scores < threshold
    tied = np.flatnonzero(scores == threshold)
    missing = count - np.count_nonzero(chosen)
    chosen[tied[tied.size - missing :]] = True
    return chosen


def _order_statistic(scores: ImportanceArray, count: int) -> float:
    """Return the count-th lowest score."""
    if scores.size <= SAMPLE * SAMPLED:
        return _selected(scores, count)
    # Bracket the score with a sorted sample, then select only among the scores inside the bracket. An odd
    # stride samples all columns, also of a matrix whose K is a power of two
    sample = np.sort(scores[:: scores.size // SAMPLE | 1])
    place, last = count * sample.size // scores.size, sample.size - 1
    low, high = sample[min(max(place - MARGIN, 0), last)], sample[min(place + MARGIN, last)]
    inside = scores >= low
    below = scores.size - int(np.count_nonzero(inside))
    near = scores[np.logical_and(inside, scores <= high, out=inside)]
    if not below < count <= below + near.size:
        return _selected(scores, count)
    # `below` scores are lower than all in the bracket, so that the rank inside of it is smaller by them
    return _selected(near, count - below)


def _selected(scores: ImportanceArray, count: int) -> float:
    """Return the count-th lowest score by partial selection instead of a full sort.

    Zeros are counted separately, because selection is slow on many equal values.
    """
    positive = scores[scores > 0]
    zeros = scores.size - positive.size
    if count <= zeros:
        return 0.0
    positive.partition(count - zeros - 1)
    return float(positive[count - zeros - 1])


def _lowest_by_size(scores: ImportanceArray, elements: CountArray, target: int) -> MaskArray:
    """Return flags of the fewest lowest pieces that contain at least `target` elements.

    Only pieces near the threshold are sorted. The number of pieces that would suffice if all had the largest
    size is a lower bound, and these are pruned without sorting. For the rest, the number that would suffice
    if all had the smallest size is an upper bound.
    """
    chosen = _lowest(scores, -(-target // int(elements.max())))
    missing = target - int(elements[chosen].sum())
    if missing > 0:
        rest = np.flatnonzero(~chosen)
        near = rest[_lowest(scores[rest], min(rest.size, -(-missing // int(elements.min()))))]
        order = near[::-1][np.argsort(scores[near[::-1]], kind="stable")]
        count = int(np.searchsorted(np.cumsum(elements[order]), missing)) + 1
        chosen[order[:count]] = True
    return chosen


def piece_starts(length: int, size: int) -> CountArray:
    """Return the first index of each piece, (pieces,) int64, if `length` is divided into pieces of `size`.

    The last piece may be shorter.
    """
    return np.arange(0, length, size, dtype=np.int64)


def piece_sizes(length: int, size: int) -> CountArray:
    """Return the length of each piece, (pieces,) int64, if `length` is divided into pieces of `size`."""
    return np.diff(piece_starts(length, size), append=length)


def broadcast_sizes(sizes: CountArray) -> CountArray:
    """Return `sizes` (pieces,), or only its first entry, shape (1,), if all sizes are equal."""
    return sizes[:1] if (sizes == sizes[0]).all() else sizes


def row_sums(
    scores: ImportanceArray | MaskArray, starts: CountArray, *, power: int, order: CountArray | None = None
) -> ImportanceArray:
    """Return the sums of scores ** power over the rows of each piece, (pieces, K) float64.

    Parameters
    ----------
    scores : (M, K)
    starts : (pieces,) position of the first row of each piece
    power : 1 or 2
    order : row numbers, piece after piece; None for 0 to M - 1
    """
    sums = np.empty((starts.size, scores.shape[1]), dtype=np.float64)
    bounds = np.append(starts, scores.shape[0] if order is None else order.size)
    for piece in range(starts.size):
        own = slice(bounds[piece], bounds[piece + 1])
        rows = scores[own if order is None else order[own]]
        # Squares need four times the memory of float16 scores. Columns are independent, so that a division
        # of them changes no sum
        k = rows.shape[1]
        parts = max(min(-(-rows.size // SUMMED_AT_A_TIME), k // FEWEST_COLUMNS), 1)
        for part in range(parts):
            columns = slice(part * k // parts, (part + 1) * k // parts)
            scored = np.square(rows[:, columns], dtype=np.float64) if power == 2 else rows[:, columns]
            np.add.reduce(scored, axis=0, dtype=np.float64, out=sums[piece, columns])
    return sums


def column_sums(sums: ImportanceArray, width: int) -> ImportanceArray:
    """Return the sums of each row of `sums` (M, K) over pieces of `width` columns, (M, pieces).

    The last piece may be narrower.
    """
    added = sums[:, ::width].copy()
    for offset in range(1, min(width, sums.shape[1])):
        column = sums[:, offset::width]
        added[:, : column.shape[1]] += column
    return added


def stated_masks(
    importances: Mapping[str, ImportanceArray], sparsity: float, has_pattern: Callable[[MaskArray], object]
) -> dict[str, MaskArray] | None:
    """Return layer -> mask of its nonzero weights if these masks already have the pattern and the sparsity.

    Otherwise return None. Masks of all nonzero weights retain all importance, so that a search for better
    groups of rows cannot improve them.

    Parameters
    ----------
    importances : layer -> importance (M, K)
    sparsity : sparsity that the masks should have
    has_pattern : function that raises BadInput for a mask that does not have the pattern
    """
    masks = {name: np.asarray(scores != 0) for name, scores in importances.items()}
    elements = sum(mask.size for mask in masks.values())
    removed = 1.0 - sum(int(np.count_nonzero(mask)) for mask in masks.values()) / max(elements, 1)
    # Tolerance: patterns prune whole columns or groups of four, and round to one more or less per row
    columns = min((mask.shape[1] for mask in masks.values()), default=1)
    if removed == 0.0 or abs(removed - sparsity) >= 2.0 / columns:
        return None
    try:
        for mask in masks.values():
            has_pattern(mask)
    except BadInput:
        return None
    return masks
