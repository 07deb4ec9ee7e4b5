"""Tile maps that a layer does not have but could: what-ifs that keep as much work and move it."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from prunecast.patterns import TileMap
from prunecast.patterns.tile_map import IntArray

__all__ = ["evened", "rounded"]


def evened(tiles: TileMap, width: int = 1) -> TileMap:
    """Every tile keeps the same number of columns, for the same total of kept elements.

    Parameters
    ----------
    tiles : the map as it is
    width : columns that stay or go together, as in blocks of that width

    Columns are dropped from full tiles and added to empty ones at even distances, so that what is left
    of the layer's own columns stays as spread as it was.
    """
    rows = tiles.rows_per_tile.astype(np.int64)
    share = np.dot(rows, tiles.kept_per_tile) / rows.sum()
    return _with_kept(tiles, np.full(tiles.tile_count, share), width)


def rounded(tiles: TileMap, multiple: int) -> TileMap:
    """Every tile keeps the multiple of `multiple` columns that is nearest to what it keeps."""
    wanted = np.rint(tiles.kept_per_tile / multiple) * multiple
    return _with_kept(tiles, wanted, 1)


def _with_kept(tiles: TileMap, wanted: npt.NDArray[np.float64], width: int) -> TileMap:
    """The map with about `wanted[t]` columns in tile t, in whole groups of `width` neighbours."""
    group_count = -(-tiles.k // width)
    columns = []
    for t in range(tiles.tile_count):
        own = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        groups = _resized(np.unique(own // width), group_count, min(round(wanted[t] / width), group_count))
        spread = (groups[:, None] * width + np.arange(width)).ravel()
        columns.append(spread[spread < tiles.k])
    return replace(
        tiles,
        column_start=np.cumsum([0, *(len(c) for c in columns)]).astype(np.int32),
        column_index=np.concatenate(columns).astype(np.int32),
    )


def _resized(own: IntArray, group_count: int, count: int) -> IntArray:
    """`count` ascending numbers below `group_count`: as many of `own` as possible, evenly chosen."""
    if count <= own.size:
        return own[_evenly(own.size, count)]
    others = np.setdiff1d(np.arange(group_count), own, assume_unique=True)
    return np.sort(np.concatenate((own, others[_evenly(others.size, count - own.size)])))


def _evenly(size: int, count: int) -> npt.NDArray[np.int64]:
    """`count` different places in `size`, at even distances."""
    return np.arange(count, dtype=np.int64) * size // max(count, 1)
