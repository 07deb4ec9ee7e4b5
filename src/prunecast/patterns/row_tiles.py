"""Base class of tile patterns. They group rows into tiles, choose the columns of each tile, and build a map.

Families differ only in these three steps. `group` uses neighbouring rows, surviving rows, or rows with
similar columns. `cut` chooses the columns by one threshold for all tiles, by equal or nearly equal counts, or
by the best columns of each window. A tile keeps its columns in all its rows or, for sparse tensor cores, 2 of
4 of them in each row.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from prunecast.patterns.cut import CountArray, elements_to_prune, keep_highest, row_sums
from prunecast.patterns.element_map import ElementMap, NestedMap
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.n_of_m import prune_n_of_m
from prunecast.patterns.pattern import Kept, Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import tile_map_from_mask

Scores = Mapping[str, ImportanceArray]
"""Layer -> importance (M, K)."""
Masks = dict[str, MaskArray]


class RowTiles(NamedTuple):
    """Division of the rows of one layer into tiles; rows in no tile are pruned."""

    rows: CountArray
    """Row numbers of A, tile after tile."""
    starts: CountArray
    """(tiles,) position in `rows` where each tile begins."""
    heights: CountArray
    """(tiles,) number of rows of each tile."""

    @classmethod
    def of(cls, rows: CountArray, height: int) -> Self:
        """Return tiles of `height` consecutive entries of `rows`; the last tile may have fewer."""
        starts = np.arange(0, rows.size, height)
        return cls(rows, starts, np.diff(starts, append=rows.size))

    @classmethod
    def of_groups(cls, group_of_row: CountArray) -> Self:
        """Return one tile per group from the group of each row, (M,); rows of group -1 are in no tile."""
        heights = np.bincount(group_of_row[group_of_row >= 0])
        rows = np.argsort(group_of_row, kind="stable")[group_of_row.size - heights.sum() :]
        return cls(rows, np.cumsum(heights) - heights, heights)

    @property
    def members(self) -> list[CountArray]:
        """Return the row numbers of each tile."""
        return np.split(self.rows, self.starts)[1:]

    def sums(self, scores: ImportanceArray | MaskArray, *, power: int = 1) -> ImportanceArray:
        """Return the sums of scores (M, K) ** power over the rows of each tile, (tiles, K) float64."""
        order = None if self._are_all(scores.shape[0]) else self.rows
        return row_sums(scores, self.starts, power=power, order=order)

    def root_mean_squares(self, scores: ImportanceArray) -> ImportanceArray:
        """Return the root mean square of each column of each tile, (tiles, K) float64.

        The released code of tile-wise pruning divides the L2 norm by the number of rows instead of its root.
        Its scores therefore fall as 1 / sqrt(rows): it favours short last tiles, and prunes more rows of
        layers with a large K. It also counts the pruned rows of `tile-wise-2d`.
        """
        norms = self.sums(scores, power=2)
        np.sqrt(norms, out=norms)
        norms /= np.sqrt(self.heights)[:, None]
        return norms

    def spread(self, kept: MaskArray, m: int) -> MaskArray:
        """Return the mask (M, K) of tiles that keep the columns `kept` (tiles, K)."""
        of_rows: MaskArray = np.repeat(kept, self.heights, axis=0)
        if self._are_all(m):
            return of_rows
        mask = np.zeros((m, kept.shape[1]), dtype=np.bool_)
        mask[self.rows] = of_rows
        return mask

    def two_of_four(self, kept: MaskArray, scores: ImportanceArray) -> MaskArray:
        """Return the mask (M, K) in which each row keeps the best 2 of 4 neighbours in its tile's columns.

        Tiles must consist of neighbouring rows. A last group of fewer than four columns keeps half of them,
        rounded up: a row may keep half an element more than the sparsity allows.

        Parameters
        ----------
        kept : (tiles, K) flags of the columns of each tile
        scores : importance (M, K)
        """
        mask = np.zeros(scores.shape, dtype=np.bool_)
        for first, height, columns in zip(self.starts, self.heights, kept, strict=True):
            at = slice(first, first + height), np.flatnonzero(columns)
            mask[at] = prune_n_of_m(scores[at], n=2, m=4)
        return mask

    def _are_all(self, m: int) -> bool:
        return self.rows.size == m and bool((self.rows == np.arange(m)).all())


def missing_elements(
    importances: Mapping[str, ImportanceArray], tiles: Mapping[str, RowTiles], sparsity: float
) -> int:
    """Return the number of elements that the tiles of a group of layers must prune to reach a sparsity.

    Elements of rows that are in no tile count as pruned already. The result may be negative.
    """
    total = sum(scores.size for scores in importances.values())
    dead = sum(
        (len(scores) - tiles[name].rows.size) * scores.shape[1] for name, scores in importances.items()
    )
    return int(elements_to_prune(sparsity, total) - dead)


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
        """Return the masks (M, K): group rows, cut columns, and keep them in all rows, or 2:4 of them."""
        tiles = self.group(importances, sparsity)
        kept = self.cut(importances, tiles, sparsity)
        if self.keeps == "elements in tiles":
            return {name: tiles[name].two_of_four(kept[name], scores) for name, scores in importances.items()}
        return {name: tiles[name].spread(kept[name], len(scores)) for name, scores in importances.items()}

    def map(self, mask: MaskArray) -> TileMap | ElementMap | NestedMap:
        """Return tiles of `height` neighbouring rows. Raises BadInput if rows of one tile differ."""
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical)
