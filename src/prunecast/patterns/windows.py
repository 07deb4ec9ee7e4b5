"""Keeping the same number of elements in every window of a row: N:M and Balanced Sparsity rank like this."""

import numpy as np
import numpy.typing as npt

from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray

SMALL_WINDOW = 16
"""Up to this width, ranking by comparing all pairs beats a selection in each window."""

ROWS_AT_ONCE = 64
"""Rows ranked together: their temporaries stay in the caches."""


def keep_in_windows(scores: ImportanceArray, *, width: int, keep: int, keep_in_tail: int) -> MaskArray:
    """Mask (M, K) that keeps the `keep` highest of every `width` neighbours along K, row by row.

    Of equal scores the lower column is kept. Where K is no multiple of `width`, the last window is shorter
    and keeps `keep_in_tail`.
    """
    mask = np.empty(scores.shape, dtype=np.bool_)
    full = scores.shape[1] // width * width
    for start in range(0, scores.shape[0], ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        if full:
            mask[rows, :full] = _keep_highest(scores[rows, :full].reshape(-1, width), keep).reshape(-1, full)
        if full < scores.shape[1]:
            mask[rows, full:] = _keep_highest(scores[rows, full:], keep_in_tail)
    return mask


def kept_in_windows(mask: MaskArray, width: int) -> npt.NDArray[np.int32]:
    """(M, windows): kept elements of every window of a row, the last window maybe shorter."""
    return np.add.reduceat(mask, np.arange(0, mask.shape[1], width), axis=1, dtype=np.int32)


def _keep_highest(groups: ImportanceArray, count: int) -> MaskArray:
    """(groups, size) flags of the `count` highest of each group, the lower place first among equals."""
    if count in (0, groups.shape[1]):
        return np.full(groups.shape, count > 0)
    if groups.shape[1] <= SMALL_WINDOW:
        ranked: MaskArray = _rank(groups) < count
        return ranked
    threshold = np.partition(groups, -count, axis=1)[:, -count, None]
    kept: MaskArray = groups > threshold
    tied = groups == threshold
    missing = count - kept.sum(axis=1, keepdims=True)
    kept |= tied & (np.cumsum(tied, axis=1) <= missing)
    return kept


def _rank(groups: ImportanceArray) -> npt.NDArray[np.uint8]:
    """(groups, size): how many members of the group beat each member."""
    places = np.ascontiguousarray(groups.T)
    rank: npt.NDArray[np.uint8] = np.zeros(places.shape, dtype=np.uint8)
    for low in range(places.shape[0]):
        for high in range(low + 1, places.shape[0]):
            low_wins = places[low] >= places[high]
            rank[high] += low_wins
            rank[low] += ~low_wins
    return rank.T
