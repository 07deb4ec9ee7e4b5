"""Tiles that are taller than a block's tile of C, cut to its height."""

import numpy as np

from prunecast.patterns.tile_map import TileMap

__all__ = ["cut_rows"]


def cut_rows(tiles: TileMap, height: int) -> TileMap:
    """The same map with no tile of more than `height` rows; pieces of a tile repeat its kept columns."""
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
