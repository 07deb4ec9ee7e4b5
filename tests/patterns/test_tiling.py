import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import dense_tile_map, element_map_from_mask, row_tile_map, tile_map_from_mask
from prunecast.patterns.tiling import RowTiles


@given(
    kept=st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4),
    height=st.integers(1, 4),
    last=st.integers(1, 4),
)
def test_tiles_hold_the_columns_that_their_rows_share(kept, height, last):
    heights = [height] * (len(kept) - 1) + [min(last, height)]
    mask = np.repeat(np.array(kept), heights, axis=0)
    tiles = tile_map_from_mask(mask, height=height, pattern="tile-wise:4")
    assert list(tiles.rows_per_tile) == heights
    assert list(tiles.kept_per_tile) == [sum(columns) for columns in kept]
    assert list(tiles.column_index) == [j for columns in kept for j, flag in enumerate(columns) if flag]
    np.testing.assert_array_equal(tiles.mask(), mask)


def test_the_first_offending_tile_and_column_are_named():
    mask = np.ones((6, 4), dtype=bool)
    mask[3, 2] = mask[4, 1] = False
    with pytest.raises(
        BadInput, match=r"mask is not tile-wise:2: tile 1 \(rows 2 to 3\) keeps column 2 in 1 of its 2"
    ):
        tile_map_from_mask(mask, height=2, pattern="tile-wise:2")


def test_given_rows_form_the_tiles_in_their_order():
    mask = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [0, 0]], dtype=bool)
    tiles = tile_map_from_mask(mask, height=2, pattern="p", rows=np.array([2, 0, 1, 3]))
    assert list(tiles.row_index) == [2, 0, 1, 3]
    assert list(tiles.column_index) == [0, 1]
    np.testing.assert_array_equal(tiles.mask(), mask)


def test_rows_of_uneven_tiles():
    mask = np.array([[1, 0], [1, 1], [1, 1]], dtype=bool)
    tiles = RowTiles.of_members([np.array([0]), np.array([1, 2])]).map_of_mask(mask, "p")
    assert list(tiles.kept_per_tile) == [1, 2]


def test_a_row_left_out_must_keep_nothing():
    mask = np.ones((3, 2), dtype=bool)
    with pytest.raises(BadInput, match="mask is not p: row 1 keeps columns but is in no tile"):
        tile_map_from_mask(mask, height=2, pattern="p", rows=np.array([0, 2]))


def test_height_zero_is_refused():
    with pytest.raises(BadInput, match="p: wanted a tile height from 1, got 0"):
        tile_map_from_mask(np.ones((2, 2), dtype=bool), height=0, pattern="p")


def test_dense_maps_keep_all():
    tiles = dense_tile_map(5, 3, 2)
    assert list(tiles.rows_per_tile) == [2, 2, 1]
    assert tiles.pattern == "dense"
    assert tiles.mask().all()


def test_a_row_of_an_element_map_is_a_tile():
    mask = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]], dtype=bool)
    tiles = row_tile_map(element_map_from_mask(mask, "unstructured"))
    assert list(tiles.rows_per_tile) == [1, 1, 1]
    assert list(tiles.kept_per_tile) == [2, 0, 2]
    assert tiles.pattern == "unstructured"
    np.testing.assert_array_equal(tiles.mask(), mask)
