"""Base class of tile patterns. They group rows into tiles, choose the columns of each tile, and build a map.

Families differ only in these three steps. `group` uses neighbouring rows, surviving rows, or rows with
similar columns. `cut` chooses the columns by one threshold for all tiles, by equal or nearly equal counts, or
by the best columns of each window. A tile keeps its columns in all its rows or, for sparse tensor cores, 2 of
4 of them in each row.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.patterns.cut import elements_of_all, keep_highest
from prunecast.patterns.element_map import ElementMap, NestedMap
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import RowTiles, tile_map_from_mask

Scores = Mapping[str, ImportanceArray]
"""Layer -> importance (M, K)."""
Masks = dict[str, MaskArray]


def missing_elements(
    importances: Mapping[str, ImportanceArray], tiles: Mapping[str, RowTiles], sparsity: float
) -> int:
    """Return the number of elements that the tiles of a group of layers must prune to reach a sparsity.

    Elements of rows that are in no tile count as pruned already. The result may be negative.
    """
    dead = sum(
        (len(scores) - tiles[name].rows.size) * scores.shape[1] for name, scores in importances.items()
    )
    return int(elements_of_all(importances, sparsity) - dead)


def highest_of_all(
    importances: Mapping[str, ImportanceArray],
    tiles: Mapping[str, RowTiles],
    scored: Mapping[str, ImportanceArray],
    sparsity: float,
) -> dict[str, MaskArray]:
    """Return (tiles, K) flags of kept columns after pruning the lowest columns of all layers together.

    Parameters
    ----------
    importances : layer -> importance (M, K)
    tiles : layer -> rows of each tile
    scored : layer -> score of each column of each tile, (tiles, K)
    sparsity : fraction of all elements that is pruned
    """
    elements = {name: own.heights[:, None] for name, own in tiles.items()}
    return keep_highest(scored, elements, missing_elements(importances, tiles, sparsity))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTilePattern(Pattern):
    """Base class of patterns with tiles of `height` rows; a subclass defines `cut`."""

    keeps: ClassVar[Kept] = "tiles"

    height: int

    def group(self, importances: Scores, sparsity: float) -> dict[str, RowTiles]:
        """Return layer -> division of its rows into tiles, by default of neighbouring rows."""
        return {name: RowTiles.of(np.arange(len(own)), self.height) for name, own in importances.items()}

    @abstractmethod
    def cut(self, importances: Scores, tiles: Mapping[str, RowTiles], sparsity: float) -> Masks:
        """Return layer -> bool (tiles, K), True for the columns that a tile keeps."""

    def masks(self, importances: Scores, sparsity: float) -> Masks:
        """Return layer -> mask (M, K), from the tiles of `group` and the columns that `cut` keeps in each.

        Every row of a tile keeps all columns of the tile. If `keeps` is `elements in tiles`, each row keeps
        only the best 2 of every 4 neighbours among these columns.
        """
        tiles = self.group(importances, sparsity)
        kept = self.cut(importances, tiles, sparsity)
        if self.keeps == "elements in tiles":
            return {name: tiles[name].two_of_four(kept[name], scores) for name, scores in importances.items()}
        return {name: tiles[name].spread(kept[name], len(scores)) for name, scores in importances.items()}

    def map(self, mask: MaskArray) -> TileMap | ElementMap | NestedMap:
        """Return tiles of `height` neighbouring rows. Raises BadInput if rows of one tile differ."""
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical)
