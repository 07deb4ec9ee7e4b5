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
from prunecast.models.amounts import plan_amounts
from prunecast.models.traffic import plan_traffic
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
