"""Assignments against slow twins and the laws that scheduling theory gives."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.plan.assignment import (
    assign_hardware,
    assign_longest_first,
    assign_stream_k,
    block_loads,
    longest_first,
    split_items,
)
from prunecast.plan.kernel_plan import Schedule, WorkList
from prunecast.plan.work_items import raster, whole_items

costs = st.lists(st.integers(0, 50), max_size=40)


def items_keeping(kept: list[int], ranges: int = 1) -> WorkList:
    order = raster(len(kept), ranges, 1)
    return whole_items(np.array(kept, np.int32), order, n=16 * ranges, block_n=16)


def naive_longest_first(cost: list[int], blocks: int) -> list[int]:
    load, block_of_item = [0] * blocks, [0] * len(cost)
    for item in sorted(range(len(cost)), key=lambda i: (-cost[i], i)):
        block = min(range(blocks), key=lambda b: (load[b], b))
        block_of_item[item] = block
        load[block] += cost[item]
    return block_of_item


@settings(deadline=None)
@given(costs, st.integers(1, 12))
def test_longest_first_agrees_with_its_naive_twin(cost, blocks):
    assert longest_first(np.array(cost, np.int64), blocks).tolist() == naive_longest_first(cost, blocks)


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 12))
def test_no_block_exceeds_the_mean_by_more_than_one_item(cost, blocks):
    """List scheduling: the block that finishes last was the least loaded before its last item."""
    loads = block_loads(np.array(cost), longest_first(np.array(cost), blocks), blocks)
    assert loads.sum() == sum(cost)
    assert loads.max() <= sum(cost) / blocks + max(cost)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 3))
def test_longest_first_is_within_grahams_bound_of_the_best(cost, blocks):
    """Graham, Bounds on multiprocessing timing anomalies, 1969: 4/3 - 1/(3P) times the optimum."""
    found = block_loads(np.array(cost), longest_first(np.array(cost), blocks), blocks).max()
    best = min(
        max(sum(c for c, b in zip(cost, places, strict=True) if b == block) for block in range(blocks))
        for places in product(range(blocks), repeat=len(cost))
    )
    assert 3 * blocks * found <= (4 * blocks - 1) * best


def test_equal_items_go_round_robin():
    assert longest_first(np.full(7, 5), 3).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_a_list_ends_with_owners_and_begins_with_parts():
    items = split_items(items_keeping([40, 10, 20]), np.array([2, 1, 2]), 10)
    assigned = assign_longest_first(items, np.array([20, 20, 10, 10, 10]), 1)
    assert assigned.work.owner.tolist() == [0, 0, 1, 1, 1]
    assert assigned.work.tile.tolist() == [0, 2, 1, 0, 2]
    assert assigned.work.block_start.tolist() == [0, 5]


def test_a_static_list_runs_long_items_first():
    assigned = assign_longest_first(items_keeping([1, 3, 2]), np.array([1, 3, 2]), 1)
    assert assigned.work.tile.tolist() == [1, 2, 0]
    assert assigned.schedule is Schedule.STATIC


def test_more_blocks_than_items_leave_blocks_without_work():
    assigned = assign_longest_first(items_keeping([1]), np.array([1]), 3)
    assert assigned.work.block_start.tolist() == [0, 1, 1, 1]


def test_the_hardware_gets_one_block_per_item_parts_first():
    items = split_items(items_keeping([40, 10]), np.array([4, 1]), 10)
    assigned = assign_hardware(items)
    assert assigned.work.part.tolist() == [1, 2, 3, 0, 0]
    assert assigned.work.tile.tolist() == [0, 0, 0, 1, 0]
    assert assigned.work.block_start.tolist() == [0, 1, 2, 3, 4, 5]


def naive_stream_k(units: list[int], blocks: int) -> list[list[tuple[int, int, int]]]:
    """Walk all units one by one; per block the pieces (item, first unit, units)."""
    line = [(item, unit) for item, count in enumerate(units) for unit in range(count)]
    lists = []
    for block in range(blocks):
        share = line[block * len(line) // blocks : (block + 1) * len(line) // blocks]
        pieces: list[tuple[int, int, int]] = []
        for item, unit in share:
            if pieces and pieces[-1][0] == item:
                pieces[-1] = (item, pieces[-1][1], pieces[-1][2] + 1)
            else:
                pieces.append((item, unit, 1))
        lists.append(pieces)
    return lists


@settings(deadline=None)
@given(st.lists(st.integers(0, 90), max_size=12), st.integers(1, 9), st.integers(1, 3))
def test_stream_k_agrees_with_its_naive_twin(kept, blocks, ranges):
    items = items_keeping(kept, ranges)
    work = assign_stream_k(items, blocks, 10).work
    units = [max(-(-int(k) // 10), 1) for k in items.k_stop]
    expected = naive_stream_k(units, blocks)
    assert np.diff(work.block_start).tolist() == [len(pieces) for pieces in expected]
    pieces = [piece for block in expected for piece in block]
    assert work.tile.tolist() == [int(items.tile[item]) for item, _, _ in pieces]
    assert work.token_start.tolist() == [int(items.token_start[item]) for item, _, _ in pieces]
    assert work.k_start.tolist() == [10 * first for _, first, _ in pieces]
    stops = [min(10 * (first + count), int(items.k_stop[item])) for item, first, count in pieces]
    assert work.k_stop.tolist() == stops


@settings(deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=12), st.integers(1, 9))
def test_stream_k_loads_differ_by_at_most_one_step(kept, blocks):
    work = assign_stream_k(items_keeping(kept), blocks, 10).work
    steps = np.maximum(-(-(work.k_stop - work.k_start) // 10), 1)
    loads = block_loads(steps, np.repeat(np.arange(blocks), np.diff(work.block_start)), blocks)
    assert loads.max() - loads.min() <= 1


def test_stream_k_owns_a_tile_where_it_begins_and_does_that_part_last():
    work = assign_stream_k(items_keeping([30, 30, 30]), 2, 10).work
    assert work.tile.tolist() == [0, 1, 1, 2]
    assert work.owner.tolist() == [1, 1, 0, 1]
    assert work.part.tolist() == [0, 0, 1, 0]
    assert work.k_start.tolist() == [0, 0, 10, 0]
    assert work.block_start.tolist() == [0, 2, 4]


@pytest.mark.parametrize("blocks", [0, -1])
def test_a_grid_without_blocks_is_refused(blocks):
    items = items_keeping([5])
    for assign in (
        lambda: assign_longest_first(items, np.array([5]), blocks),
        lambda: assign_stream_k(items, blocks, 10),
    ):
        with pytest.raises(BadInput, match="at least 1 block"):
            assign()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 9))
def test_blocks_with_the_most_to_do_come_first(cost: list[int], blocks: int) -> None:
    items = items_keeping(cost)
    work = assign_longest_first(items, np.array(cost), blocks).work
    loads = [int(work.k_stop[a:b].sum()) for a, b in pairwise(work.block_start)]
    assert loads == sorted(loads, reverse=True)
    lists = longest_first(np.array(cost), blocks)
    assert sorted(loads) == sorted(block_loads(np.array(cost), lists, blocks).tolist())
