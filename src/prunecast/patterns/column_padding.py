"""The list of columns that a tile with 2:4 inside must have had, found again from its mask.

A column that outlived the tile but that no row kept leaves no trace in the mask, and without it the groups of
four behind it would shift. Such columns are put back: as few as possible, in any place where they make every
row keep at most two of every four. Any list that does describes the same product.
"""

from typing import NamedTuple

import numpy as np

from prunecast.patterns.cut import CountArray
from prunecast.patterns.tile_map import MaskArray

__all__ = ["padded_columns"]


class _Path(NamedTuple):
    """How a state was reached at least cost: columns added so far, and the group's first kept column."""

    added: int
    first: int
    borrowed: int


def padded_columns(rows: MaskArray) -> MaskArray:
    """(K,) flags of the columns of one tile (rows, K): all that a row keeps, and those that fill groups.

    Where no such list exists, the kept columns come back as they are.
    """
    listed: MaskArray = np.logical_or.reduce(rows, axis=0)
    kept = np.flatnonzero(listed)
    if _fit(rows[:, kept]):
        return listed
    starts = _groups(rows, kept)
    for first, stop in zip(starts, [*starts[1:], kept.size], strict=True):
        if stop == kept.size:
            break
        missing = 4 - (stop - first)
        # What the group before took of the gap is listed already
        last = np.flatnonzero(listed[: kept[first]])[-1:]
        begin = int(last[0]) + 1 if last.size else 0
        free = begin + np.flatnonzero(~listed[begin : kept[stop]])
        listed[free[:missing]] = True
    return listed


def _fit(rows: MaskArray) -> bool:
    """Whether no row keeps more than two of four neighbours."""
    if rows.shape[1] == 0:
        return True
    return bool(np.add.reduceat(rows, np.arange(0, rows.shape[1], 4), axis=1, dtype=np.int32).max() <= 2)


def _longest(rows: MaskArray) -> CountArray:
    """(K,): most columns, up to 4, of a group that begins at each; every row keeps two of them at most."""
    sums = np.cumsum(np.pad(rows, ((0, 0), (1, 4))), axis=1, dtype=np.int64)
    longest = np.full(rows.shape[1], 2)
    for length in (3, 4):
        most = (sums[:, length:] - sums[:, :-length]).max(axis=0)[: rows.shape[1]]
        longest[(most <= 2) & (longest == length - 1)] = length
    fitting: CountArray = np.minimum(longest, np.arange(rows.shape[1], 0, -1))
    return fitting


def _groups(rows: MaskArray, kept: CountArray) -> list[int]:
    """Places in `kept` where groups of four begin, with the fewest columns added; [0] if there is no way.

    A state is a place and how many columns of the gap before it the group before it has borrowed.
    """
    longest = _longest(rows[:, kept])
    gaps = np.diff(kept, prepend=-1) - 1
    reached: list[dict[int, _Path]] = [{} for _ in range(kept.size + 1)]
    reached[0][0] = _Path(0, -1, 0)
    for first in range(kept.size):
        for borrowed, path in reached[first].items():
            for length in range(1, int(longest[first]) + 1):
                stop = first + length
                missing = 4 - length if stop < kept.size else 0
                own = int(gaps[first]) - borrowed + int(gaps[first + 1 : stop].sum())
                borrow = max(missing - own, 0)
                if borrow and borrow > gaps[stop]:
                    continue
                step = _Path(path.added + missing, first, borrowed)
                if borrow not in reached[stop] or step.added < reached[stop][borrow].added:
                    reached[stop][borrow] = step
    return _walk_back(reached)


def _walk_back(reached: list[dict[int, _Path]]) -> list[int]:
    starts: list[int] = []
    place = len(reached) - 1
    path = reached[place].get(0)
    while path is not None and path.first >= 0:
        starts.append(path.first)
        path = reached[path.first][path.borrowed]
    return starts[::-1] or [0]
