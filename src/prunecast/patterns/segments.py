"""Cutting an axis into pieces of equal length, and adding up rows piece by piece."""

import numpy as np

from prunecast.patterns.cut import CountArray
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray


def piece_starts(length: int, size: int) -> CountArray:
    """(pieces,) int64: first index of each piece of `size`; the last piece may be shorter."""
    return np.arange(0, length, size, dtype=np.int64)


def piece_sizes(length: int, size: int) -> CountArray:
    """(pieces,) int64: lengths of the pieces that `piece_starts` begins."""
    return np.diff(piece_starts(length, size), append=length)


def broadcast_sizes(sizes: CountArray) -> CountArray:
    """`sizes`, or just one of them if all are equal: either broadcasts to one number per piece."""
    return sizes[:1] if (sizes == sizes[0]).all() else sizes


def row_sums(scores: ImportanceArray | MaskArray, starts: CountArray, *, power: int) -> ImportanceArray:
    """(pieces, K) float64: sums over the rows of each piece of scores (M, K) to the power of 1 or 2."""
    sums = np.empty((starts.size, scores.shape[1]), dtype=np.float64)
    bounds = np.append(starts, scores.shape[0])
    for piece in range(starts.size):
        rows = scores[bounds[piece] : bounds[piece + 1]]
        if power == 2:
            rows = np.square(rows, dtype=np.float64)
        np.add.reduce(rows, axis=0, dtype=np.float64, out=sums[piece])
    return sums


def column_sums(sums: ImportanceArray, width: int) -> ImportanceArray:
    """(M, pieces) float64: sums (M, K) added up over pieces of `width` columns, the last one maybe fewer."""
    added = sums[:, ::width].copy()
    for offset in range(1, min(width, sums.shape[1])):
        column = sums[:, offset::width]
        added[:, : column.shape[1]] += column
    return added
