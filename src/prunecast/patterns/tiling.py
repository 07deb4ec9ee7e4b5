"""Build tile maps from masks; a mask that does not have the tiles of its pattern raises BadInput."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask, frozen_int32, kept_columns

Indices = npt.NDArray[np.integer]


def tile_map_from_mask(mask: MaskArray, *, height: int, pattern: str, rows: Indices | None = None) -> TileMap:
    """Return the tile map of a mask, with tiles of `height` rows; the last tile may have fewer.

    Parameters
    ----------
    mask : (M, K) bool
    height : rows per tile, at least 1
    pattern : canonical pattern string of the mask, for the map and for messages
    rows : rows of A in tile order, each once; None for all of them. Rows left out must keep nothing

    Raises
    ------
    BadInput : the rows of a tile keep different columns (the message names the first tile and column), a row
        outside all tiles keeps one, or the height is below 1
    """
    if height < 1:
        raise BadInput(f"{pattern}: wanted a tile height from 1, got {height}")
    row_index = np.arange(mask.shape[0]) if rows is None else rows
    row_start = np.append(np.arange(0, row_index.size, height), row_index.size)
    return tile_map_from_rows(mask, row_index=row_index, row_start=row_start, pattern=pattern)


def tile_map_from_rows(mask: MaskArray, *, row_index: Indices, row_start: Indices, pattern: str) -> TileMap:
    """Return the tile map of a mask; tile t has rows row_index[row_start[t]:row_start[t + 1]], at least one.

    Raises
    ------
    BadInput : the rows of a tile keep different columns, or a row outside all tiles keeps one
    """
    check_mask(mask, pattern)
    identity = row_index.size == mask.shape[0] and bool((row_index == np.arange(mask.shape[0])).all())
    tiled = mask if identity else mask[row_index]
    if row_index.size == 0:
        kept = np.zeros((0, mask.shape[1]), dtype=np.bool_)
    else:
        kept = _kept_by_all(tiled, row_index, row_start, pattern)
    if not identity:
        _check_outside(mask, row_index, pattern)
    return _tile_map(kept, mask.shape[0], row_start=row_start, row_index=row_index, pattern=pattern)


def tile_map_of_groups(mask: MaskArray, groups: Sequence[Indices], pattern: str) -> TileMap:
    """Return the tile map of a mask with one tile per group of rows.

    Raises BadInput in the same cases as `tile_map_from_rows`.
    """
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *groups])
    starts = np.cumsum([0, *(group.size for group in groups)])
    return tile_map_from_rows(mask, row_index=rows, row_start=starts, pattern=pattern)


def tile_map_from_kept(
    kept: MaskArray, m: int, *, height: int, pattern: str, rows: Sequence[Indices] = ()
) -> TileMap:
    """Return the tile map of tiles that keep the columns `kept`, without a mask.

    Parameters
    ----------
    kept : (tiles, K) flags of kept columns
    m : rows of A
    height : rows per tile if tiles consist of neighbouring rows; the last tile may have fewer
    pattern : canonical pattern string
    rows : for other tiles, two arrays: the row numbers of all tiles, and the position where each tile begins
    """
    row_index, starts = rows or (np.arange(m), np.arange(0, m, height))
    row_start = np.append(starts, row_index.size)
    return _tile_map(kept, m, row_start=row_start, row_index=row_index, pattern=pattern)


def _tile_map(kept: MaskArray, m: int, *, row_start: Indices, row_index: Indices, pattern: str) -> TileMap:
    return TileMap(
        m=m,
        k=kept.shape[1],
        row_start=frozen_int32(row_start),
        row_index=frozen_int32(row_index),
        column_start=np.append(0, np.cumsum(np.count_nonzero(kept, axis=1))),
        column_index=kept_columns(kept),
        pattern=pattern,
    )


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
        row_start=frozen_int32(row_start),
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


def _kept_by_all(tiled: MaskArray, row_index: Indices, row_start: Indices, pattern: str) -> MaskArray:
    """Return (tiles, K) flags of the columns that all rows of a tile keep.

    Raises BadInput if only some rows of a tile keep a column.
    """
    kept = tiled[row_start[:-1]]
    for tile, first in enumerate(kept):
        rows = tiled[row_start[tile] : row_start[tile + 1]]
        if (rows != first).any():
            keeping = np.count_nonzero(rows, axis=0)
            column = int(np.flatnonzero((keeping > 0) & (keeping < rows.shape[0]))[0])
            names = row_index[row_start[tile] : row_start[tile + 1]]
            raise BadInput(
                f"mask is not {pattern}: tile {tile} (rows {names[0]} to {names[-1]}) keeps column {column} "
                f"in {keeping[column]} of its {names.size} rows"
            )
    return kept


def _check_outside(mask: MaskArray, row_index: Indices, pattern: str) -> None:
    outside: MaskArray = np.any(mask, axis=1, keepdims=True)[:, 0]
    outside[row_index] = False
    if outside.any():
        raise BadInput(
            f"mask is not {pattern}: row {np.flatnonzero(outside)[0]} keeps columns but is in no tile"
        )
