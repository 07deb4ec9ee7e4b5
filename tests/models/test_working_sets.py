"""Blocks that replace each other, and what L2 holds of their data, against slow twins."""

import heapq
from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.launch import launch_context
from prunecast.launch.memory import memory_rules
from prunecast.models.amount_loops import RowsOfItems
from prunecast.models.amounts import plan_amounts
from prunecast.models.traffic import bytes_between_uses, differ_one_by_one, plan_traffic
from prunecast.models.working_sets import start_times
from prunecast.plan.kernel_plan import Schedule, WorkList
from tests.models.hand_plans import hand_plan, tile_map
from tests.toy_gpu import toy_gpu


def test_a_block_starts_when_another_one_ends():
    # Two slots: 10 and 30 columns start, 25 follow the 10, and 5 follow the 30
    assert start_times(hand_plan([10, 30, 25, 5], 64), 2).tolist() == [0, 0, 10, 30]
    assert start_times(hand_plan([10, 30, 25, 5], 64), 4).tolist() == [0, 0, 0, 0]


@settings(deadline=None)
@given(
    kept=st.lists(st.integers(0, 50), min_size=1, max_size=9), slots=st.integers(1, 5), lists=st.booleans()
)
def test_items_start_as_in_a_slow_twin(kept, slots, lists):
    ends = [*range(0, len(kept), 2), len(kept)] if lists else list(range(len(kept) + 1))
    schedule = Schedule.STATIC if lists else Schedule.HARDWARE
    plan = hand_plan(kept, 64, k=50, block_start=ends, schedule=schedule)
    free, expected = [0] * slots, []
    for first, stop in pairwise(ends):
        now = heapq.heappop(free)
        for columns in kept[first:stop]:
            expected.append(now)
            now += columns
        heapq.heappush(free, now)
    assert start_times(plan, slots).tolist() == expected


def longest_first(counts, tokens, k):
    """Blocks of tiles with random columns, in descending order of their columns."""
    rng = np.random.default_rng(0)
    columns = np.concatenate([np.sort(rng.choice(k, count, replace=False)) for count in counts])
    tiles = replace(tile_map(counts, k), column_index=columns)
    plan = hand_plan(counts, tokens, k=k)
    order, work = np.argsort(-plan.work.k_stop, kind="stable"), plan.work._asdict()
    starts = work.pop("block_start")
    work = {name: column[order] for name, column in work.items()}
    return replace(plan, tiles=tiles, work=WorkList(**work, block_start=starts))


def bytes_through_lru(plan, slots, capacity):
    """Bytes of A and B that miss an LRU cache; a block passes a k-step per unit of time."""
    work, free, reads = plan.work, [0] * slots, []
    for item, tile in enumerate(work.tile):
        columns = plan.tiles.column_index[slice(*plan.tiles.column_start[tile : tile + 2])]
        steps = np.split(columns, range(plan.shape.block_k, columns.size, plan.shape.block_k))
        now = heapq.heappop(free)
        reads += [(now + step, item, tile, step, own) for step, own in enumerate(steps)]
        heapq.heappush(free, now + len(steps))
    cache, used, missed = OrderedDict(), 0, 0
    for _, item, tile, step, own in sorted(reads, key=lambda read: read[:2]):
        last = step == -(-plan.tiles.kept_per_tile[tile] // plan.shape.block_k) - 1
        touched = [(("A", tile, step), own.size * 64 * 2)]
        touched += [(("B", work.token_start[item], row), 64 * 2) for row in own.tolist()]
        touched += [(("C", item), 64 * 64 * 2)] * int(last)
        for key, size in touched:
            if key not in cache:
                cache[key] = size
                used += size
                missed += size * (key[0] != "C")
            cache.move_to_end(key)
            while used > capacity:
                used -= cache.popitem(last=False)[1]
    return missed


@pytest.mark.parametrize("room", [200, 400, 600])
def test_bytes_are_those_of_an_lru_cache_whose_blocks_replace_each_other(room):
    # Rows of B are 1 MiB, and 128 blocks of 87 to 1,024 columns end one by one. If all blocks of a wave
    # started together, 3 to 15 % less would be read
    counts = np.random.default_rng(3).lognormal(6.0, 0.6, 16).clip(64, 1024).astype(int)
    plan = longest_first(counts.tolist(), 512, 1024)
    context = launch_context(plan, toy_gpu(l2_usable_bytes=room * 1024))
    traffic = plan_traffic(context, memory_rules(context), plan_amounts(plan), 40)
    read = traffic.a_bytes + traffic.b_bytes + traffic.read_again_bytes
    assert read == pytest.approx(bytes_through_lru(plan, 40, room * 1024), rel=0.02)


@pytest.mark.parametrize(("capacity", "differs"), [(39, False), (45, True), (60, True), (100, False)])
def test_items_that_replace_each_other_use_weights_again_after_fewer_or_more_bytes_than_waves(
    capacity, differs
):
    # Five tiles in turn, four items at a time, 10 bytes each: 50 bytes from use to use. Counted by waves, it
    # is one wave (40 bytes), or two (80) for tile 3, which is used in the waves 0 and 2
    item = np.arange(15)
    assert differ_one_by_one(item // 4, item % 5, np.full(15, 10.0), capacity) is differs


def test_a_row_is_used_again_after_as_many_waves_as_use_it_once():
    # Wave 0 keeps 1 - 1/2 * 3/4 = 5/8 of the rows of token range 0 and none of range 1, wave 1 all. Of the
    # rows that are read, 3/4 are read in wave 0 of 80 bytes, and 1 in wave 1 of 30 bytes
    density, of_wave = np.array([0.5, 0.25, 0.0, 1.0]), np.array([0, 0, 1, 2])
    rows = RowsOfItems(
        key=of_wave,
        size=np.full(4, 100.0),
        start=np.zeros(4),
        stop=np.ones(4),
        density=density,
        segments=1,
        keys=3,
    )
    between = bytes_between_uses(rows, of_wave, np.array([80.0, 80.0, 80.0, 30.0]))
    assert between == pytest.approx((3 / 4 * 80 / (5 / 8) + 30) / (3 / 4 + 1))


def in_turn(counts, tokens, k):
    """Blocks of tiles with random columns; all tiles of a token range follow each other."""
    plan = longest_first(counts, tokens, k)
    work = plan.work._asdict()
    starts = work.pop("block_start")
    order = np.lexsort((work["tile"], work["token_start"]))
    return replace(plan, work=WorkList(**{n: c[order] for n, c in work.items()}, block_start=starts))


def read_of(plan, slots, room):
    """Bytes of A and B that DRAM reads, with `room` KiB of L2."""
    context = launch_context(plan, toy_gpu(l2_usable_bytes=room * 1024))
    traffic = plan_traffic(context, memory_rules(context), plan_amounts(plan), slots)
    return traffic.a_bytes + traffic.b_bytes + traffic.read_again_bytes


def test_l2_evicts_weights_whose_next_use_is_more_than_a_wave_later():
    # 42 tiles in turn, of which 40 run. Counted by waves, L2 would keep all weights: 1.3 MB
    counts = np.random.default_rng(5).integers(35, 256, 42).tolist()
    plan = in_turn(counts, 512, 256)
    assert read_of(plan, 40, 1150) == pytest.approx(bytes_through_lru(plan, 40, 1150 * 1024), rel=0.2)


@pytest.mark.parametrize(
    ("counts", "k", "room", "off"),
    [([64] * 100, 256, 1400, 0.15), ([256] * 48, 1024, 2400, 0.02), ([256] * 48, 1024, 2800, 0.02)],
)
def test_bytes_are_those_of_an_lru_cache_where_a_wave_uses_few_rows(counts, k, room, off):
    # Tiles keep a quarter of the rows, and 40 blocks use those of 2.5 tiles, 51 % of the rows. Counted by
    # waves, L2 would keep all rows that it can hold for a wave: 7.4 instead of 13.6 MB in the first case, and
    # 8.4 instead of 3.7 MB in the last one
    plan = longest_first(counts, 1024, k)
    assert read_of(plan, 40, room) == pytest.approx(bytes_through_lru(plan, 40, room * 1024), rel=off)
