"""Rasters, whole items and their parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.plan.assignment import split_items, take_items
from prunecast.plan.work_items import ranges_together, raster, whole_items
from tests.toy_gpu import toy_gpu


def test_a_raster_walks_all_tiles_of_one_token_range_first():
    order = raster(3, 2, 1)
    assert order.tile.tolist() == [0, 1, 2, 0, 1, 2]
    assert order.token_range.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_raster_in_groups_walks_a_tiles_ranges_together():
    order = raster(2, 3, 2)
    assert order.tile.tolist() == [0, 0, 1, 1, 0, 1]
    assert order.token_range.tolist() == [0, 1, 0, 1, 2, 2]


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 12))
def test_a_raster_meets_every_pair_once(tiles, ranges, together):
    order = raster(tiles, ranges, together)
    pairs = set(zip(order.tile.tolist(), order.token_range.tolist(), strict=True))
    assert pairs == {(t, r) for t in range(tiles) for r in range(ranges)}
    assert order.tile.size == tiles * ranges


def test_a_raster_without_a_group_width_is_refused():
    with pytest.raises(BadInput, match="groups of 0"):
        raster(1, 1, 0)


def test_rounds_that_overflow_what_l2_keeps_are_walked_in_groups():
    gpu = toy_gpu(l2_usable_bytes=1000)
    assert [ranges_together(600, size, 128, 3, gpu) for size in (1000, 1001)] == [1, 4]
    assert [ranges_together(size, 2000, 128, 3, gpu) for size in (500, 501)] == [1, 4]
    assert [ranges_together(600, 2000, 64, ranges, gpu) for ranges in (2, 3)] == [4, 1]


def test_the_last_token_range_is_shorter():
    items = whole_items(np.array([7], np.int32), raster(1, 3, 1), n=37, block_n=16)
    assert items.token_start.tolist() == [0, 16, 32]
    assert items.token_stop.tolist() == [16, 32, 37]
    assert items.k_stop.tolist() == [7, 7, 7]
    assert items.group.tolist() == [-1, -1, -1]


def test_parts_are_nearly_equal_and_part_0_owns():
    items = whole_items(np.array([95, 5], np.int32), raster(2, 1, 1), n=4, block_n=16)
    parts = split_items(items, np.array([3, 1]), 10)
    assert parts.k_start.tolist() == [0, 30, 60, 0]
    assert parts.k_stop.tolist() == [30, 60, 95, 5]
    assert parts.owner.tolist() == [1, 0, 0, 1]
    assert parts.part.tolist() == [0, 1, 2, 0]
    assert parts.parts.tolist() == [3, 3, 3, 1]
    assert parts.group.tolist() == [0, 0, 0, -1]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60)), min_size=1, max_size=8))
def test_parts_differ_by_at_most_one_step_and_cover_the_item(wanted):
    kept = np.array([count for count, _ in wanted], np.int32)
    steps = np.maximum(-(-kept // 10), 1)
    pieces = np.minimum([piece for _, piece in wanted], steps)
    parts = split_items(whole_items(kept, raster(kept.size, 1, 1), n=1, block_n=1), pieces, 10)
    for tile in range(kept.size):
        mine = np.flatnonzero(parts.tile == tile)
        part_steps = -(-(parts.k_stop[mine] - parts.k_start[mine]) // 10)
        assert mine.size == pieces[tile]
        assert part_steps.sum() == -(-kept[tile] // 10)
        assert part_steps.max() - part_steps.min() <= 1


@pytest.mark.parametrize("pieces", [0, 4])
def test_more_pieces_than_steps_are_refused(pieces):
    items = whole_items(np.array([30], np.int32), raster(1, 1, 1), n=1, block_n=1)
    with pytest.raises(BadInput, match="number of k-steps"):
        split_items(items, np.array([pieces]), 10)


def test_taken_items_keep_every_column():
    items = whole_items(np.array([3, 4], np.int32), raster(2, 1, 1), n=5, block_n=8)
    taken = take_items(items, np.array([1]))
    assert taken.block_start.tolist() == [0, 1]
    assert [column.tolist() for column in taken[1:]] == [column[[1]].tolist() for column in items[1:]]
