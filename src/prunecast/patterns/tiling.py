"""`RowTiles`: division of the rows of A into tiles, from which masks and tile maps are built.

A mask that does not have the tiles of its pattern raises BadInput.
"""

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray, row_sums
from prunecast.patterns.element_map import ElementMap, NestedMap, check_two_of_four, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.n_of_m import prune_n_of_m
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask, frozen_int32, kept_columns


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

    @classmethod
    def of_members(cls, members: Iterable[CountArray]) -> Self:
        """Return one tile for each array of row numbers in `members`."""
        tiles = [np.zeros(0, dtype=np.int64), *members]
        ends = np.cumsum([rows.size for rows in tiles])
        return cls(np.concatenate(tiles), ends[:-1], np.diff(ends))

    @property
    def members(self) -> list[CountArray]:
        """Return the row numbers of each tile."""
        return np.split(self.rows, self.starts)[1:]

    def by_first_row(self) -> Self:
        """Return the tiles sorted by their first row, the order of tiles in the map of a mask."""
        return self.of_members(sorted(self.members, key=lambda rows: int(rows[0])))

    def sums(self, scores: ImportanceArray | MaskArray, *, power: int = 1) -> ImportanceArray:
        """Return the sums of scores (M, K) ** power over the rows of each tile, (tiles, K) float64."""
        order = None if self._are_all(scores.shape[0]) else self.rows
        return row_sums(scores, self.starts, power=power, order=order)

    def root_mean_squares(self, scores: ImportanceArray) -> ImportanceArray:
        """Return the root mean square of each column of each tile, (tiles, K) float64.

        The released code of tile-wise pruning divides the L2 norm by the number of rows instead of its root.
        Its scores therefore fall as 1 / sqrt(rows): that code favours short last tiles, and prunes more rows
        of layers with a large K. It also counts the pruned rows of `tile-wise-2d`.
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

    def map_of_used(self, kept: MaskArray, m: int, pattern: str) -> TileMap:
        """Return the map of `tile_map` without the tiles that keep no column."""
        used = kept.any(axis=1)
        heights = self.heights[used]
        tiles = RowTiles(self.rows[np.repeat(used, self.heights)], np.cumsum(heights) - heights, heights)
        return tiles.tile_map(kept[used], m, pattern)

    def tile_map(self, kept: MaskArray, m: int, pattern: str) -> TileMap:
        """Return the tile map of `m` rows in which tiles keep the columns `kept` (tiles, K)."""
        return TileMap(
            m=m,
            k=kept.shape[1],
            row_start=np.append(self.starts, self.rows.size),
            row_index=self.rows.astype(np.int32),
            column_start=np.append(0, np.cumsum(np.count_nonzero(kept, axis=1))),
            column_index=kept_columns(kept),
            pattern=pattern,
        )

    def map_of_mask(self, mask: MaskArray, pattern: str) -> TileMap:
        """Return the tile map of a mask (M, K) that has these tiles.

        Raises
        ------
        BadInput : the rows of a tile keep different columns (the message names the first tile and column),
            or a row outside all tiles keeps one
        """
        check_mask(mask, pattern)
        are_all = self._are_all(mask.shape[0])
        tiled = mask if are_all else mask[self.rows]
        kept = tiled[self.starts]
        for tile, (first, height) in enumerate(zip(self.starts, self.heights, strict=True)):
            rows = tiled[first : first + height]
            if (rows != kept[tile]).any():
                keeping = np.count_nonzero(rows, axis=0)
                column = int(np.flatnonzero((keeping > 0) & (keeping < height))[0])
                names = self.rows[first : first + height]
                raise BadInput(
                    f"mask is not {pattern}: tile {tile} (rows {names[0]} to {names[-1]}) keeps column "
                    f"{column} in {keeping[column]} of its {height} rows"
                )
        if not are_all:
            outside = np.any(mask, axis=1)
            outside[self.rows] = False
            if outside.any():
                row = np.flatnonzero(outside)[0]
                raise BadInput(f"mask is not {pattern}: row {row} keeps columns but is in no tile")
        return self.tile_map(kept, mask.shape[0], pattern)

    def _are_all(self, m: int) -> bool:
        return self.rows.size == m and bool((self.rows == np.arange(m)).all())


def tile_map_from_mask(
    mask: MaskArray, *, height: int, pattern: str, rows: CountArray | None = None
) -> TileMap:
    """Return the tile map of a mask, with tiles of `height` rows; the last tile may have fewer.

    Parameters
    ----------
    mask : (M, K) bool
    height : rows per tile, at least 1
    pattern : canonical pattern string of the mask, for the map and for messages
    rows : rows of A in tile order, each once; None for all of them. Rows left out must keep nothing

    Raises
    ------
    BadInput : the mask does not have these tiles (`RowTiles.map_of_mask`), or the height is below 1
    """
    if height < 1:
        raise BadInput(f"{pattern}: wanted a tile height from 1, got {height}")
    return RowTiles.of(np.arange(len(mask)) if rows is None else rows, height).map_of_mask(mask, pattern)


def nested_map(mask: MaskArray, columns: MaskArray, *, height: int, pattern: str) -> NestedMap:
    """Return tiles of `height` consecutive rows with `columns` (tiles, K), and the kept elements of `mask`.

    Raises
    ------
    BadInput : a row keeps more than two of four neighbours among the columns of its tile
    """
    check_mask(mask, pattern)
    check_two_of_four(mask, columns, height=height, pattern=pattern)
    tiles = RowTiles.of(np.arange(len(mask)), height).tile_map(columns, len(mask), pattern)
    return NestedMap(tiles=tiles, inner=element_map_from_mask(mask, pattern))


def dense_tile_map(m: int, k: int, height: int) -> TileMap:
    """Return the tile map of a dense A (m, k) with tiles of `height` rows; the last tile may have fewer.

    Raises BadInput if a size is below 1.
    """
    if min(m, k, height) < 1:
        raise BadInput(f"dense: wanted m, k and a tile height from 1, got {m}, {k} and {height}")
    row_start = np.append(np.arange(0, m, height), m)
    tiles = row_start.size - 1
    return TileMap(
        m=m,
        k=k,
        row_start=row_start,
        row_index=np.arange(m, dtype=np.int32),
        column_start=frozen_int32(np.arange(tiles + 1) * k),
        column_index=np.tile(np.arange(k, dtype=np.int32), tiles),
        pattern="dense",
    )


def row_tile_map(elements: ElementMap) -> TileMap:
    """Return a tile map in which every row of A is one tile, for kernels that read compressed rows (CSR)."""
    rows = np.arange(elements.m + 1, dtype=np.int32)
    return TileMap(
        m=elements.m,
        k=elements.k,
        row_start=rows,
        row_index=rows[:-1],
        column_start=elements.row_start,
        column_index=elements.column_index,
        pattern=elements.pattern,
    )
