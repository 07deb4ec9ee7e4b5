"""`TileSums`: importance summed over the rows of each tile, from which some patterns can prune.

With 64 rows per tile, the float64 sums need 1/32 of the memory of a float32 matrix. The sums of a model with
billions of weights fit in memory even if its weights do not.

Numbers of kept columns are multiples of a quantum; a *step* is one quantum of columns. If the columns of a
tile are in descending order, each further step retains no more importance than the step before. A greedy
choice of the best steps of all tiles is therefore optimal, except for the last step.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray, keep_highest, piece_sizes, piece_starts, row_sums
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray, TileMap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TileSums:
    """Sums of importance of each column over the rows of each tile of neighbouring rows.

    Parameters
    ----------
    m : rows of the matrix
    height : rows of a tile; the last tile may have fewer
    sums : (tiles, K) float64, sums of importance
    """

    m: int
    height: int
    sums: npt.NDArray[np.float64]

    @classmethod
    def of(cls, importance: ImportanceArray, height: int) -> Self:
        """Sum `importance` (M, K) over the rows of each tile of `height` rows, column by column.

        Every row is read once.
        """
        m = importance.shape[0]
        sums = row_sums(importance, piece_starts(m, height), power=1)
        return cls(m=m, height=height, sums=np.asarray(sums, dtype=np.float64))

    @property
    def k(self) -> int:
        """Return the columns of the matrix."""
        return int(self.sums.shape[1])

    @property
    def heights(self) -> CountArray:
        """Return the rows of each tile, (tiles,) int64."""
        return piece_sizes(self.m, self.height)

    def taller(self, height: int) -> Self:
        """Return the sums for tiles of `height` rows, each of which consists of several of these tiles.

        Raises BadInput if `height` is no multiple of the height of these tiles.
        """
        if height % self.height:
            raise BadInput(f"wanted a height that is a multiple of {self.height}, got {height}")
        if height == self.height:
            return self
        starts = piece_starts(self.sums.shape[0], height // self.height)
        return type(self)(m=self.m, height=height, sums=np.add.reduceat(self.sums, starts, axis=0))

    def retained(self, tiles: TileMap) -> float:
        """Return the importance that `tiles` retain; they must have the same rows as these tiles."""
        tile_of_column = np.repeat(np.arange(tiles.tile_count), tiles.kept_per_tile)
        return float(self.sums[tile_of_column, tiles.column_index].sum())


class CountRange(NamedTuple):
    """Minimum and maximum number of columns that a tile may keep."""

    low: int
    high: int


def count_range(kept_elements: int, rows: int, k: int, *, quantum: int, low: int, high: int) -> CountRange:
    """Return the range of column counts: multiples of `quantum` within `low` to `high` percent of the mean.

    The multiples next to the mean are always allowed, since otherwise the mean could not be reached. The
    maximum is at most K. The computation uses integers only.

    Parameters
    ----------
    kept_elements : elements that all tiles keep in total
    rows : rows of all tiles in total; the mean is kept_elements / rows columns
    k : columns of A
    quantum : step of the counts
    low, high : percent, low <= 100 <= high
    """
    per_quantum = rows * quantum
    lowest = min(-(-low * kept_elements // (100 * per_quantum)), kept_elements // per_quantum)
    highest = max(high * kept_elements // (100 * per_quantum), -(-kept_elements // per_quantum))
    return CountRange(lowest * quantum, min(highest * quantum, k))


def step_edges(allowed: CountRange, quantum: int) -> CountArray:
    """Return the counts from `low` to `high` in steps of the quantum, (steps + 1,).

    The last step may be shorter.
    """
    return np.append(np.arange(allowed.low, allowed.high, quantum), allowed.high)


def step_scores(ranked: ImportanceArray, rows: CountArray, edges: CountArray) -> ImportanceArray:
    """Return the mean score per element of each step, (tiles, steps) float64, descending within a tile.

    Parameters
    ----------
    ranked : (tiles, K) scores of the columns of each tile, highest first
    rows : (tiles,) number of rows that a score is summed over
    edges : (steps + 1,) column counts from `step_edges`, at least two
    """
    inside = np.asarray(ranked[:, edges[0] : edges[-1]], dtype=np.float64)
    # Divide only once, so that equal steps of whole numbers have exactly equal scores
    means = np.add.reduceat(inside, edges[:-1] - edges[0], axis=1) / np.outer(rows, np.diff(edges))
    # A shorter last step may round up above the step before it
    return np.minimum.accumulate(means, axis=1)


def best_counts(
    scores: ImportanceArray,
    heights: CountArray,
    to_prune: int,
    allowed: CountRange,
    quantum: int,
    *,
    summed: bool = False,
) -> CountArray:
    """Return the column counts of tiles, (tiles,) int64, that retain most after pruning `to_prune` elements.

    Parameters
    ----------
    scores : (tiles, K) score of each column of a tile
    heights : (tiles,) rows of each tile
    to_prune : number of elements to prune; the result prunes more by as little as the steps permit
    allowed : minimum and maximum number of columns of a tile
    quantum : step of the counts
    summed : True if scores are sums over the rows of a tile; False if they are per element
    """
    edges = step_edges(allowed, quantum)
    sizes = np.diff(edges)
    counts: CountArray = np.full(heights.size, allowed.low)
    if sizes.size == 0:
        return counts
    ranked = -np.sort(-scores, axis=1)
    steps = step_scores(ranked, heights if summed else np.ones_like(heights), edges)
    above = int(heights.sum()) * (scores.shape[1] - allowed.high)
    kept = keep_highest({"": steps}, {"": np.outer(heights, sizes)}, to_prune - above)[""]
    counts += kept @ sizes
    return counts


def best_columns(scores: ImportanceArray, counts: CountArray) -> MaskArray:
    """Return (tiles, K) flags of the counts[t] columns of tile t with the highest scores.

    Of equal scores the lower column is kept.
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    kept = np.empty(scores.shape, dtype=np.bool_)
    np.put_along_axis(kept, order, np.arange(scores.shape[1]) < counts[:, None], axis=1)
    return kept
