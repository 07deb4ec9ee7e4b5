"""Families of tiles: a grouping of rows into tiles, a cut of the columns of each tile, and a map.

Families differ in these three steps only. Groupings: neighbouring rows, surviving rows, rows with similar
columns. Cuts: one threshold for all tiles, equal or nearly equal counts, the best columns of each window. A
tile keeps its columns in all rows or, for sparse tensor cores, 2 of 4 of them in each row.
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
    """Rows of one layer in the order of its tiles; rows in no tile are pruned."""

    rows: CountArray
    """Rows of A."""
    starts: CountArray
    """Position in `rows` where each tile begins, (tiles,)."""
    heights: CountArray
    """Rows of each tile, (tiles,)."""

    @classmethod
    def of(cls, rows: CountArray, height: int) -> Self:
        """Return tiles of `height` consecutive entries of `rows`; the last tile may have fewer."""
        starts = np.arange(0, rows.size, height)
        return cls(rows, starts, np.diff(starts, append=rows.size))

    @classmethod
    def of_groups(cls, group_of_row: CountArray) -> Self:
        """Return one tile for each group; the rows of a tile ascend, rows of group -1 are in no tile."""
        heights = np.bincount(group_of_row[group_of_row >= 0])
        rows = np.argsort(group_of_row, kind="stable")[group_of_row.size - heights.sum() :]
        return cls(rows, np.cumsum(heights) - heights, heights)

    @property
    def members(self) -> list[CountArray]:
        """Return the rows of each tile."""
        return np.split(self.rows, self.starts)[1:]

    def sums(self, scores: ImportanceArray | MaskArray, *, power: int = 1) -> ImportanceArray:
        """Return the sums of scores (M, K) ** power over the rows of each tile, (tiles, K) float64."""
        order = None if self._are_all(scores.shape[0]) else self.rows
        return row_sums(scores, self.starts, power=power, order=order)

    def root_mean_squares(self, scores: ImportanceArray) -> ImportanceArray:
        """Return the L2 norm of each column of a tile over the root of its length, (tiles, K) float64.

        The released code of tile-wise pruning divides by the length, so that scores fall as 1 / sqrt(length).
        Consequences: short last tiles are favoured, and layers with a large K lose more rows. It also counts
        pruned rows of `tile-wise-2d` as length.
        """
        norms = self.sums(scores, power=2)
        np.sqrt(norms, out=norms)
        norms /= np.sqrt(self.heights)[:, None]
        return norms

    def spread(self, kept: MaskArray, m: int) -> MaskArray:
        """Return the mask (M, K) from the columns that each tile keeps (tiles, K)."""
        of_rows: MaskArray = np.repeat(kept, self.heights, axis=0)
        if self._are_all(m):
            return of_rows
        mask = np.zeros((m, kept.shape[1]), dtype=np.bool_)
        mask[self.rows] = of_rows
        return mask

    def two_of_four(self, kept: MaskArray, scores: ImportanceArray) -> MaskArray:
        """Return the mask (M, K) of rows that keep the best 2 of 4 neighbours in the columns of their tile.

        Tiles must consist of neighbouring rows, as those of all families with 2:4 inside do.
        A last group of fewer than four keeps half of its columns, halves rounded up, as in `n_of_m`: a row
        may keep half an element more than the sparsity allows.
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
    """Return the elements that all tiles of a group of layers must prune to reach a sparsity.

    Rows in no tile count as pruned.
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
    """Return flags (tiles, K) without the columns of tiles that score lowest in the group of layers."""
    elements = {name: own.heights[:, None] for name, own in tiles.items()}
    return keep_highest(scored, elements, missing_elements(importances, tiles, sparsity))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTilePattern(Pattern):
    """A family of tiles of `height` rows. A subclass defines `cut`, and the other steps where it differs."""

    keeps: ClassVar[Kept] = "tiles"

    height: int

    def group(self, importances: Scores, sparsity: float) -> dict[str, RowTiles]:
        """Return the tiles of each layer: neighbouring rows."""
        return {name: RowTiles.of(np.arange(len(own)), self.height) for name, own in importances.items()}

    @abstractmethod
    def cut(self, importances: Scores, tiles: Mapping[str, RowTiles], sparsity: float) -> Masks:
        """Return flags (tiles, K) of the columns that the tiles of each layer keep."""

    def masks(self, importances: Scores, sparsity: float) -> Masks:
        """Group the rows, cut the columns, and keep a tile's columns in all its rows, or 2:4 of them."""
        tiles = self.group(importances, sparsity)
        kept = self.cut(importances, tiles, sparsity)
        if self.keeps == "elements in tiles":
            return {name: tiles[name].two_of_four(kept[name], scores) for name, scores in importances.items()}
        return {name: tiles[name].spread(kept[name], len(scores)) for name, scores in importances.items()}

    def map(self, mask: MaskArray) -> TileMap | ElementMap | NestedMap:
        """Return tiles of `height` neighbouring rows. Raises BadInput if rows of one tile differ."""
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical)
