import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prunecast.patterns import parse_pattern
from prunecast.patterns.tile_wise_2d import TileWise2DPattern
from tests.naive import prune as naive
from tests.patterns.matrices import as_lists, assert_masks, groups, sparsities


@given(
    group=groups(min_rows=4),
    sparsity=sparsities,
    height=st.integers(1, 4),
)
def test_same_as_two_full_sorts(group, sparsity, height):
    masks = TileWise2DPattern(height=height).masks(group, sparsity)
    wanted = naive.tile_wise_2d(as_lists(group), sparsity, height)
    assert_masks(masks, group, wanted)


def test_three_quarters_are_half_of_the_rows_and_half_of_the_columns_of_each_tile():
    importance = np.outer([1, 5, 1, 5, 1, 5, 1, 5], [1, 2, 3, 4]).astype(np.float64)
    mask = TileWise2DPattern(height=2).masks({"w": importance}, 0.75)["w"]
    np.testing.assert_array_equal(mask, np.outer([0, 1] * 4, [0, 0, 1, 1]).astype(bool))


def test_tiles_are_cut_on_survivors():
    """Rows 1, 3 and 5, 7 share columns: with the dead rows between them counted they would not."""
    importance = np.zeros((8, 4))
    importance[[1, 3]] = [9, 9, 1, 1]
    importance[[5, 7]] = [1, 1, 9, 9]
    pattern = parse_pattern("tile-wise-2d:2")
    mask = pattern.prune({"w": importance}, 0.75)["w"]
    tiles = pattern.map(mask)
    assert [list(rows) for rows in np.split(tiles.row_index, tiles.row_start[1:-1])] == [[1, 3], [5, 7]]
    assert [list(kept) for kept in np.split(tiles.column_index, tiles.column_start[1:-1])] == [[0, 1], [2, 3]]


def test_dead_rows_inside_a_tile_do_not_count():
    """Tile of rows 1 and 5 spans 6 rows, tile of 6 and 7 spans 2; the first is a little more important."""
    importance = np.full((8, 4), 1.0)
    importance[[1, 5]] = 10.0
    importance[[6, 7]] = 9.0
    sane = TileWise2DPattern(height=2).masks({"w": importance}, 0.75)["w"]
    assert sane[[1, 5]].all()
    assert not sane[[6, 7]].any()


def test_a_layer_that_loses_all_rows_still_has_a_map():
    group = {"low": np.full((4, 4), 0.1), "high": np.full((4, 4), 5.0)}
    pattern = parse_pattern("tile-wise-2d:2")
    masks = pattern.prune(group, 0.75, "global")
    assert pattern.map(masks["low"]).tile_count == 0
    assert masks["high"].sum() == 8
