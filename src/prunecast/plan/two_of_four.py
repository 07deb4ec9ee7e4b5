"""Whether kept elements are 2:4: of every four neighbouring columns a row keeps two at most."""

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import TileMap


def check_two_of_four(elements: ElementMap, tiles: TileMap | None = None) -> None:
    """Raise BadInput where a row keeps three of four neighbours, which are columns, or places in a tile."""
    # Without tiles a column is its own place; looking it up took 1 to 2 s on 4096 x 4096.
    place = elements.column_index if tiles is None else _checked_places(elements, tiles)
    group = place // 4
    # Places ascend in a row, so a third of a group stands two behind the first one
    third = 2 + np.flatnonzero(group[2:] == group[:-2])
    row_of = np.searchsorted(elements.row_start, (third - 2, third), side="right") - 1
    third = third[row_of[0] == row_of[1]]
    if third.size:
        row = int(np.searchsorted(elements.row_start, third[0], side="right")) - 1
        of_row = group[elements.row_start[row] : elements.row_start[row + 1]]
        kept = int(np.count_nonzero(of_row == group[third[0]]))
        raise BadInput(
            f"2:4: row {row} keeps {kept} of the four columns from {4 * int(group[third[0]])}, at most 2 fit"
        )


def _checked_places(elements: ElementMap, tiles: TileMap) -> npt.NDArray[np.int64]:
    """`_place_in_tile`, refusing elements outside of the tiles."""
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
    """(kept elements,) place of each element's column in its tile's list, -1 if it is not there."""
    tile_of_row = np.full(elements.m, -1)
    tile_of_row[tiles.row_index] = np.repeat(np.arange(tiles.tile_count), tiles.rows_per_tile)
    tile = tile_of_row[row_of_element]
    # Keys ascend: tiles in order, columns ascending inside each
    keys = np.repeat(np.arange(tiles.tile_count), tiles.kept_per_tile) * tiles.k + tiles.column_index
    wanted = tile * tiles.k + elements.column_index
    found = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    hit = (tile >= 0) & (keys[found] == wanted) if keys.size else np.zeros(wanted.size, np.bool_)
    return np.where(hit, found - tiles.column_start[np.maximum(tile, 0)], -1)
