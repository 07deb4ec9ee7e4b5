"""`tile-wise:128` (TW-1D): tiles of consecutive rows, each with its own set of kept columns.

The published pattern (Guo et al., "Accelerating Sparse DNN Models without Hardware-Support via Tile-Wise
Sparsity", SC'20) partitions the output features into tiles and prunes, inside each tile, whole segments along
the other axis. Output features are the rows of A here, so a segment is one column of A inside one tile.

A-priori tuning (`apriori:128`) is part of the paper: the result of unstructured pruning decides about some of
the segments before they are ranked. No released code contains it; the rule here is our own. Single elements
are pruned at the requested sparsity over the whole group of layers. The `percent` of all segments with the
smallest fraction of elements left are pruned first, and the `percent` with the largest fraction last. All
others, and the segments within each class, rank as in `tile-wise`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.plain import prune_unstructured
from prunecast.patterns.row_tiles import Masks, RowTilePattern, Scores, highest_of_all
from prunecast.patterns.tiling import RowTiles


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWisePattern(RowTilePattern):
    """Tiles of `height` consecutive rows (TW-1D); the last tile may have fewer."""

    family: ClassVar[str] = "tile-wise"
    example: ClassVar[str] = "tile-wise:128"
    meaning: ClassVar[str] = "HEIGHT consecutive rows share their kept columns"
    by_blocks: ClassVar[bool] = True

    def cut(self, importances: Scores, tiles: Mapping[str, RowTiles], sparsity: float) -> Masks:
        """Return layer -> (tiles, K) flags of kept columns.

        The columns of tiles with the lowest root mean square in the whole group of layers are pruned.
        """
        scored = {name: own.root_mean_squares(importances[name]) for name, own in tiles.items()}
        return highest_of_all(importances, tiles, scored, sparsity)


PERCENT = 5
"""Default percentage of segments at either end of the ranking that unstructured pruning decides."""


def _decided(
    scored: Mapping[str, ImportanceArray], shares: Mapping[str, ImportanceArray], percent: int
) -> dict[str, ImportanceArray]:
    """Return the ranks of the segments, from 1; lower ranks are pruned first.

    The `percent` of segments with the smallest fraction of elements left by unstructured pruning (`shares`)
    get the lowest ranks, and the `percent` with the largest fraction the highest. The other segments, and the
    segments within each class, rank by score. Of equal fractions, the lower score ranks lower; of equal
    scores, the later segment.
    """
    score = np.concatenate([scores.ravel() for scores in scored.values()])
    share = np.concatenate([part.ravel() for part in shares.values()])
    later_first = -np.arange(score.size)
    clear = np.lexsort((later_first, score, share))
    at_each_end = score.size * percent // 100
    group = np.ones(score.size, dtype=np.int64)
    group[clear[:at_each_end]] = 0
    group[clear[score.size - at_each_end :]] = 2
    # A score of 0 has nothing to retain: prune it first even if unstructured pruning kept its elements
    group[score <= 0] = 0
    ranks = np.empty(score.size)
    ranks[np.lexsort((later_first, score, group))] = np.arange(1, score.size + 1)
    parts = np.split(ranks, np.cumsum([scores.size for scores in scored.values()])[:-1])
    return {name: part.reshape(scored[name].shape) for name, part in zip(scored, parts, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AprioriPattern(TileWisePattern):
    """Tiles of `height` consecutive rows, with a-priori tuning by unstructured pruning.

    A segment is one column of A inside one tile. After unstructured pruning, the `percent` of segments with
    the fewest elements left are pruned first, and the `percent` with the most elements left are pruned last.
    The pattern string is `apriori:HEIGHT` or `apriori:HEIGHTxPERCENT`.
    """

    family: ClassVar[str] = "apriori"
    example: ClassVar[str] = "apriori:128"
    meaning: ClassVar[str] = (
        "as tile-wise; unstructured pruning decides about the clearest PERCENT of segments first"
    )
    by_blocks: ClassVar[bool] = False

    percent: int = PERCENT

    def __post_init__(self) -> None:
        if self.percent > 50:
            raise BadInput(f"pattern {self.family}: wanted at most 50 % at either end, got {self.percent}")

    def cut(self, importances: Scores, tiles: Mapping[str, RowTiles], sparsity: float) -> Masks:
        """Return layer -> (tiles, K) flags of kept columns.

        Columns are pruned as in `tile-wise`, except that unstructured pruning decides which `percent` of the
        segments are pruned first and which last.
        """
        scored = {name: own.root_mean_squares(importances[name]) for name, own in tiles.items()}
        shares = {
            name: tiles[name].sums(mask) / tiles[name].heights[:, None]
            for name, mask in prune_unstructured(importances, sparsity).items()
        }
        return highest_of_all(importances, tiles, _decided(scored, shares, self.percent), sparsity)
