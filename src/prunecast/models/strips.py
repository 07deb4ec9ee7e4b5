"""Which tile of a map each tile of its plan comes from: planners cut tall tiles to the height of a block."""

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import TileMap

__all__ = ["tile_of_strip"]


def tile_of_strip(strips: TileMap, tiles: TileMap) -> npt.NDArray[np.int64]:
    """(strips,) int64: the tile of `tiles` whose rows a strip has.

    Raises
    ------
    BadInput : a strip has rows of several tiles or of none, or keeps another number of columns
    """
    if strips is tiles:
        return np.arange(tiles.tile_count)
    tile_of_row = np.full(max(strips.m, tiles.m), -1, np.int64)
    tile_of_row[tiles.row_index] = np.repeat(np.arange(tiles.tile_count), tiles.rows_per_tile)
    rows = strips.rows_per_tile
    found = tile_of_row[strips.row_index]
    there = np.flatnonzero(rows > 0)
    tile = np.zeros(rows.size, np.int64)
    tile[there] = found[strips.row_start[there]]
    same_rows = (strips.m, strips.row_index.size) == (tiles.m, tiles.row_index.size)
    alike = same_rows and np.array_equal(np.repeat(tile, rows), found) and not np.any(found < 0)
    if not alike or np.any(strips.kept_per_tile[there] != tiles.kept_per_tile[tile[there]]):
        raise BadInput(
            f"tiles: wanted the map that was planned, of {strips.row_index.size} rows in tiles, "
            f"got one of {tiles.row_index.size} rows in {tiles.tile_count} tiles"
        )
    return tile
