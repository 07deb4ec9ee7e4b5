"""When tiles are cut: only if blocks would otherwise finish far apart, and never into crumbs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.kernels.items import raster, split_items, whole_items
from prunecast.kernels.order import block_loads, longest_first
from prunecast.kernels.plan import WorkList
from prunecast.kernels.splitting import ItemCost, even_pieces, item_cost, item_cycles
from prunecast.kernels.tile_wise import choose_tile_wise
from tests.kernels.layouts import tiles_keeping
from tests.toy_gpu import toy_gpu

COST = ItemCost(step=1000.0, overhead=2500.0, fix_up=2000.0)
BLOCK_K = 64


def items_of_steps(steps: list[int]) -> WorkList:
    kept = np.array(steps, np.int32) * BLOCK_K
    return whole_items(kept, raster(len(steps), 1, 1), n=1, block_n=1)


def finish(items: WorkList, blocks: int) -> int:
    cycles = item_cycles(items, BLOCK_K, COST)
    return int(block_loads(cycles, longest_first(cycles, blocks), blocks).max())


def test_the_cost_of_an_item_counts_steps_and_fix_up():
    items = split_items(items_of_steps([9, 4]), np.array([3, 1]), BLOCK_K)
    assert item_cycles(items, BLOCK_K, COST).tolist() == [9500, 7500, 7500, 6500]


def test_blocks_that_share_an_sm_slow_each_others_steps_down():
    gpu = toy_gpu(compute_capability=80)
    found = choose_tile_wise(tiles_keeping([640] * 8, height=128, k=640), 4096, "fp16", gpu)
    chosen = next(c for c in found if c.blocks_per_sm == 2)
    assert item_cost(chosen, gpu).step == 2 * chosen.step_cycles
    assert item_cost(chosen, gpu).overhead == 2500


def test_balanced_work_is_left_whole():
    assert even_pieces(items_of_steps([40] * 8), 4, BLOCK_K, COST).tolist() == [1] * 8


def test_one_heavy_tile_is_cut_and_short_ones_stay_whole():
    items = items_of_steps([200, 12, 12, 12, 12, 12])
    pieces = even_pieces(items, 4, BLOCK_K, COST)
    assert pieces[0] > 1
    assert pieces[1:].tolist() == [1] * 5
    assert finish(split_items(items, pieces, BLOCK_K), 4) < 0.5 * finish(items, 4)


def test_a_last_wave_of_few_tiles_is_cut_into_parts_that_fill_it():
    items = items_of_steps([64] * 160)
    pieces = even_pieces(items, 132, BLOCK_K, COST)
    assert (pieces == 1).sum() == 132
    assert set(pieces[pieces > 1].tolist()) == {4}


def test_fewer_tiles_than_blocks_are_cut():
    items = items_of_steps([64] * 3)
    assert even_pieces(items, 12, BLOCK_K, COST).min() >= 3


def test_tiles_too_short_for_two_parts_are_left_whole():
    assert even_pieces(items_of_steps([15] * 5), 4, BLOCK_K, COST).tolist() == [1] * 5


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.integers(1, 16))
def test_cutting_never_delays_the_last_block_nor_makes_short_parts(steps, blocks):
    items = items_of_steps(steps)
    parts = split_items(items, even_pieces(items, blocks, BLOCK_K, COST), BLOCK_K)
    assert finish(parts, blocks) <= finish(items, blocks)
    cut = parts.parts > 1
    assert np.all((parts.k_stop - parts.k_start)[cut] >= 8 * BLOCK_K)
