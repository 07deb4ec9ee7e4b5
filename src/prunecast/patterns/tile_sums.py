"""`TileSums`: importance added up over tiles of neighbouring rows, all that some patterns ask of a matrix.

64 rows to a tile make it a 32nd of the bytes of a float32 matrix, so that the sums of a model with billions
of weights fit where its weights do not.

Counts lie on a quantum. With the columns of a tile sorted, every further step is worth no more than the one
before: the gain is concave, so that taking the best steps of all tiles together is optimal, up to the last
step.
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
    """Sums of each column over the rows of each tile.

    Parameters
    ----------
    m : rows of the matrix
    height : rows of a tile, the last one possibly fewer
    sums : (tiles, K) float64
    """

    m: int
    height: int
    sums: npt.NDArray[np.float64]

    @classmethod
    def of(cls, importance: ImportanceArray, height: int) -> Self:
        """Column sums of importance of a matrix (M, K), tile by tile, in one pass."""
        m = importance.shape[0]
        sums = row_sums(importance, piece_starts(m, height), power=1)
        return cls(m=m, height=height, sums=np.asarray(sums, dtype=np.float64))

    @property
    def k(self) -> int:
        """Columns of the matrix."""
        return int(self.sums.shape[1])

    @property
    def heights(self) -> CountArray:
        """(tiles,) int64: rows of each tile."""
        return piece_sizes(self.m, self.height)

    def taller(self, height: int) -> Self:
        """Sums of taller tiles made of whole tiles of these. Raises BadInput if `height` is no multiple."""
        if height % self.height:
            raise BadInput(f"wanted a height that is a multiple of {self.height}, got {height}")
        if height == self.height:
            return self
        starts = piece_starts(self.sums.shape[0], height // self.height)
        return type(self)(m=self.m, height=height, sums=np.add.reduceat(self.sums, starts, axis=0))

    def retained(self, tiles: TileMap) -> float:
        """Importance that stays where `tiles`, of these very rows, keep what they keep."""
        tile_of_column = np.repeat(np.arange(tiles.tile_count), tiles.kept_per_tile)
        return float(self.sums[tile_of_column, tiles.column_index].sum())


class CountRange(NamedTuple):
    """Fewest and most columns that a tile may keep."""

    low: int
    high: int


def count_range(kept_elements: int, rows: int, k: int, *, quantum: int, low: int, high: int) -> CountRange:
    """Multiples of `quantum` within `low` to `high` percent of the mean, in whole numbers only.

    The multiples next to the mean are always allowed, or the mean itself could not be met; so is K in place
    of the first multiple above it.

    Parameters
    ----------
    kept_elements : elements that all tiles keep together
    rows : rows of all tiles together; the mean is kept_elements / rows columns
    k : columns of A
    quantum : step of the counts
    low, high : percent, low <= 100 <= high

    """
    per_quantum = rows * quantum
    lowest = min(-(-low * kept_elements // (100 * per_quantum)), kept_elements // per_quantum)
    highest = max(high * kept_elements // (100 * per_quantum), -(-kept_elements // per_quantum))
    return CountRange(lowest * quantum, min(highest * quantum, k))


def step_edges(allowed: CountRange, quantum: int) -> CountArray:
    """(steps + 1,): counts from `low` up to `high` in steps of the quantum, the last one maybe shorter."""
    return np.append(np.arange(allowed.low, allowed.high, quantum), allowed.high)


def step_scores(ranked: ImportanceArray, rows: CountArray, edges: CountArray) -> ImportanceArray:
    """(tiles, steps) float64: score per element of each step; never rises along a tile.

    Parameters
    ----------
    ranked : (tiles, K) scores of the columns of each tile, highest first
    rows : (tiles,) rows of which a score is the sum
    edges : see `step_edges`, at least two

    """
    inside = np.asarray(ranked[:, edges[0] : edges[-1]], dtype=np.float64)
    # Divided once, so that equal steps of whole numbers have equal scores
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
    """(tiles,): kept columns of each tile, so that at least `to_prune` elements go and most score stays.

    Parameters
    ----------
    scores : (tiles, K) score of each column of a tile
    heights : (tiles,) rows of each tile
    to_prune : elements; as few more as steps permit are pruned
    allowed : fewest and most columns of a tile
    quantum : step of the counts
    summed : whether scores are sums over the rows of a tile; else they are per element

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
    """(tiles, K) flags of the counts[t] highest columns of each tile, the lower column first among equals."""
    order = np.argsort(-scores, axis=1, kind="stable")
    kept = np.empty(scores.shape, dtype=np.bool_)
    np.put_along_axis(kept, order, np.arange(scores.shape[1]) < counts[:, None], axis=1)
    return kept
