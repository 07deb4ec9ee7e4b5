"""Rows of tiles: cut to the height of a block's tile of C, and where they lie in C."""

import numpy as np

from prunecast.patterns.tile_map import IntArray, TileMap

ROWS_OF_WARP = 16
"""Rows of C that a warp of the tile kernel stores at once."""


def cut_rows(tiles: TileMap, height: int) -> TileMap:
    """A tile map with no tile of more than `height` rows; pieces of a tile repeat its kept columns."""
    rows = tiles.rows_per_tile
    if rows.max(initial=0) <= height:
        return tiles
    pieces = np.maximum(-(-rows // height), 1)
    source = np.repeat(np.arange(rows.size), pieces)
    piece = np.arange(source.size) - (np.cumsum(pieces) - pieces)[source]
    counts = tiles.kept_per_tile[source].astype(np.int64)
    column_start = np.concatenate(([0], np.cumsum(counts)))
    shift = tiles.column_start[source] - column_start[:-1]
    return TileMap(
        m=tiles.m,
        k=tiles.k,
        row_start=np.append(tiles.row_start[source] + piece * height, tiles.row_index.size),
        row_index=tiles.row_index,
        column_start=column_start,
        column_index=tiles.column_index[np.arange(column_start[-1]) + np.repeat(shift, counts)],
        pattern=tiles.pattern,
    )


def kept_per_piece(tiles: TileMap, height: int) -> IntArray:
    """(pieces,): kept columns of each piece that `cut_rows` makes, without the map."""
    return np.repeat(tiles.kept_per_tile, np.maximum(-(-tiles.rows_per_tile // height), 1))


def rows_are_scattered(tiles: TileMap) -> bool:
    """Whether most groups of `ROWS_OF_WARP` rows of a tile do not follow one another in C."""
    rows, height = tiles.row_index.astype(np.int64), tiles.rows_per_tile.astype(np.int64)
    groups = -(-height // ROWS_OF_WARP)
    place = np.arange(rows.size) - np.repeat(tiles.row_start[:-1], height)
    breaks = (np.diff(rows, prepend=rows[:1]) != 1) & (place % ROWS_OF_WARP > 0)
    group = np.repeat(np.cumsum(groups) - groups, height) + place // ROWS_OF_WARP
    return 2 * np.unique(group[breaks]).size > int(groups.sum())


def columns_of_any(tiles: TileMap) -> int:
    """Columns that some tile keeps: tiles often keep the same ones, and what none keeps is never read."""
    if tiles.tile_count and int(tiles.kept_per_tile.max()) == tiles.k:
        return tiles.k
    kept = np.zeros(tiles.k, np.bool_)
    kept[tiles.column_index] = True
    return int(kept.sum())
