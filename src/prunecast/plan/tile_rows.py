"""Rows of tiles: cut tiles to the block height, check contiguity of rows in C, and check the 2:4 pattern."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import IntArray, TileMap

ROWS_OF_WARP = 16
"""Rows of C that a warp of the tile kernel stores at once."""
ROWS_AT_ONCE = 1024
"""Rows that are checked at once, so that temporary arrays are small. Kind: choice."""


def cut_rows(tiles: TileMap, height: int) -> TileMap:
    """Return a tile map whose tiles have at most `height` rows; taller tiles are divided along M."""
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


def stacked_tiles(maps: Sequence[TileMap]) -> TileMap:
    """Return the tile map of matrices of equal K stacked along M."""
    row_shift = np.cumsum([0, *(tiles.m for tiles in maps)])
    starts = {"row_start": [np.zeros(1, np.int64)], "column_start": [np.zeros(1, np.int64)]}
    for tiles in maps:
        for name, parts in starts.items():
            parts.append(getattr(tiles, name)[1:] + parts[-1][-1])
    shifted = [tiles.row_index + shift for tiles, shift in zip(maps, row_shift[:-1], strict=True)]
    return TileMap(
        m=int(row_shift[-1]),
        k=maps[0].k,
        row_start=np.concatenate(starts["row_start"]),
        row_index=np.concatenate(shifted),
        column_start=np.concatenate(starts["column_start"]),
        column_index=np.concatenate([tiles.column_index for tiles in maps]),
        pattern=maps[0].pattern,
    )


def kept_per_piece(tiles: TileMap, height: int) -> IntArray:
    """Return the number of kept columns of each tile of `cut_rows(tiles, height)`, (tiles after the cut,)
    int32.
    """
    return np.repeat(tiles.kept_per_tile, np.maximum(-(-tiles.rows_per_tile // height), 1))


def rows_are_scattered(tiles: TileMap) -> bool:
    """Return True if most groups of `ROWS_OF_WARP` rows of a tile are not contiguous in C."""
    if (tiles.row_index[1:] - tiles.row_index[:-1] == 1).all():
        return False
    rows, height = tiles.row_index.astype(np.int64), tiles.rows_per_tile.astype(np.int64)
    groups = -(-height // ROWS_OF_WARP)
    place = np.arange(rows.size) - np.repeat(tiles.row_start[:-1], height)
    breaks = (np.diff(rows, prepend=rows[:1]) != 1) & (place % ROWS_OF_WARP > 0)
    group = np.repeat(np.cumsum(groups) - groups, height) + place // ROWS_OF_WARP
    return 2 * np.unique(group[breaks]).size > int(groups.sum())


def columns_of_any(tiles: TileMap) -> int:
    """Return the number of columns that at least one tile keeps; only their rows of B are read."""
    if tiles.tile_count and int(tiles.kept_per_tile.max()) == tiles.k:
        return tiles.k
    kept = np.zeros(tiles.k, np.bool_)
    kept[tiles.column_index] = True
    return int(kept.sum())


def check_two_of_four(elements: ElementMap, tiles: TileMap | None = None) -> None:
    """Raise BadInput if a row keeps more than two of four neighbours.

    Neighbours are columns of A or, if `tiles` is given, columns that are adjacent in the list of the row's
    tile.
    """
    if tiles is None:
        _check_columns(elements)
        return
    place = _checked_places(elements, tiles)
    for first in range(0, elements.m, ROWS_AT_ONCE):
        starts = elements.row_start[first : first + ROWS_AT_ONCE + 1]
        group = place[starts[0] : starts[-1]] // 4
        # Positions ascend within a row, so the third element of a group is two entries after the first
        third = 2 + np.flatnonzero(group[2:] == group[:-2])
        row_of = np.searchsorted(starts - starts[0], (third - 2, third), side="right") - 1
        same = row_of[0] == row_of[1]
        if same.any():
            row, wrong = int(row_of[1][same][0]), int(group[third[same][0]])
            kept = np.count_nonzero(group[starts[row] - starts[0] : starts[row + 1] - starts[0]] == wrong)
            raise _more_than_two(first + row, int(kept), wrong)


def _check_columns(elements: ElementMap) -> None:
    """Raise BadInput if a row keeps more than two of four neighbouring columns, whose bits are half a byte of
    `ElementMap.kept_bits`.
    """
    for first in range(0, elements.m, ROWS_AT_ONCE):
        bits = elements.kept_bits[first : first + ROWS_AT_ONCE]
        of_four = np.stack((np.bitwise_count(bits & 0x0F), np.bitwise_count(bits >> 4)), axis=-1)
        if of_four.max(initial=0) > 2:
            row, byte, half = (int(index[0]) for index in np.nonzero(of_four > 2))
            raise _more_than_two(first + row, int(of_four[row, byte, half]), 2 * byte + half)


def _more_than_two(row: int, kept: int, group: int) -> BadInput:
    return BadInput(f"2:4: row {row} keeps {kept} of the four columns from {4 * group}, at most 2 fit")


def _checked_places(elements: ElementMap, tiles: TileMap) -> npt.NDArray[np.int64]:
    """Return the result of `_place_in_tile`. Raise BadInput if an element is outside the tiles."""
    if (elements.m, elements.k) != (tiles.m, tiles.k):
        raise BadInput(f"2:4: elements are of {elements.m} x {elements.k}, tiles of {tiles.m} x {tiles.k}")
    row_of_element = np.repeat(np.arange(elements.m), elements.kept_per_row)
    place = _place_in_tile(elements, tiles, row_of_element)
    outside = np.flatnonzero(place < 0)
    if outside.size:
        row, column = row_of_element[outside[0]], elements.column_index[outside[0]]
        raise BadInput(f"2:4: row {row} keeps column {column}, which its tile does not keep")
    return place


def _place_in_tile(
    elements: ElementMap, tiles: TileMap, row_of_element: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return (kept elements,) the position of each element's column in its tile's list; -1 if absent."""
    tile_of_row = np.full(elements.m, -1)
    tile_of_row[tiles.row_index] = np.repeat(np.arange(tiles.tile_count), tiles.rows_per_tile)
    tile = tile_of_row[row_of_element]
    # Keys are sorted (tiles in order, columns ascending inside each), so a binary search finds them
    keys = np.repeat(np.arange(tiles.tile_count), tiles.kept_per_tile) * tiles.k + tiles.column_index
    wanted = tile * tiles.k + elements.column_index
    found = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    hit = (tile >= 0) & (keys[found] == wanted) if keys.size else np.zeros(wanted.size, np.bool_)
    return np.where(hit, found - tiles.column_start[np.maximum(tile, 0)], -1)


def keeps_runs(tiles: TileMap, run: int) -> bool:
    """Return True if every tile keeps runs of `run` neighbouring columns; its last run may be shorter."""
    place = np.arange(tiles.column_index.size)
    inside = (place - np.repeat(tiles.column_start[:-1], tiles.kept_per_tile)) % run
    return bool(np.array_equal(tiles.column_index, tiles.column_index[place - inside] + inside))
