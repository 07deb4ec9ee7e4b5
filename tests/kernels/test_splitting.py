"""When tiles are cut: only if blocks would otherwise finish far apart, and never into crumbs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.hardware import load_gpu
from prunecast.kernels.tile.form_items import form_item, form_load
from prunecast.kernels.tile.splitting import ItemCost, even_pieces, item_cost, item_cycles, tile_item_cost
from prunecast.kernels.tile.step_cost import step_cost
from prunecast.kernels.tile.stspmm import choose_stspmm
from prunecast.kernels.tile.tile_plan import items_of
from prunecast.kernels.tile.tile_wise import choose_tile_wise
from prunecast.plan.kernel_plan import WorkList
from prunecast.plan.order import block_loads, longest_first
from prunecast.plan.tile_rows import cut_rows
from prunecast.plan.work_items import raster, split_items, whole_items
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


def test_the_longer_of_multiplying_and_fetching_counts():
    """Multiplying goes by sixteenths of columns, fetching by k-steps, both by the fewest columns at least."""
    cost = ItemCost(
        step=1000.0, overhead=200.0, fix_up=0.0, fetch=900.0, fetch_overhead=50.0, fewest_columns=80
    )
    kept = np.array([0, 80, 100, 640], np.int32)
    items = whole_items(kept, raster(4, 1, 1), n=1, block_n=1)
    fetched, multiplied = 2 * 900 + 50, 10 * 1000 + 200
    assert item_cycles(items, BLOCK_K, cost).tolist() == [fetched, fetched, 7 * 250 + 200, multiplied]


def test_an_owner_that_waits_for_its_parts_counts():
    """Halves that run at once end after 8 steps, an overhead, and sums both written and read."""
    items = items_of_steps([16])
    uncut, half = 16 * 1000 + 2500, 8 * 1000 + 2500
    pays_up_to = (uncut - 1000 - half) / 2
    for fix_up, pieces in ((pays_up_to - 100, 2), (pays_up_to + 100, 1)):
        assert even_pieces(items, 2, BLOCK_K, COST._replace(fix_up=fix_up)).pieces.tolist() == [pieces]


@pytest.mark.parametrize("kept", [80, 128, 100, 1024])
def test_an_item_costs_what_the_choice_of_forms_says(kept):
    gpu = load_gpu("h200-sxm")
    tiles = tiles_keeping([kept] * 32, height=128, k=4096)
    for chosen in choose_stspmm(tiles, 2048, "fp16", gpu):
        config, cut = chosen.config, cut_rows(tiles, chosen.config.shape.block_m)
        load = form_load(config, cut, 2048)
        alone = form_item(config, load, step_cost(config, load.tokens, gpu), gpu).alone
        cycles = item_cycles(
            items_of(cut, config, 2048, gpu), config.shape.block_k, tile_item_cost(config, load, gpu)
        )
        assert cycles.tolist() == [pytest.approx(alone, abs=0.5)] * cycles.size


def test_blocks_that_share_an_sm_slow_each_others_steps_down():
    gpu = toy_gpu(compute_capability=80)
    found = choose_tile_wise(tiles_keeping([640] * 8, height=128, k=640), 4096, "fp16", gpu)
    chosen = next(c for c in found if c.blocks_per_sm == 2)
    assert item_cost(chosen, gpu).step == 2 * chosen.step_cycles
    assert item_cost(chosen, gpu).overhead == 2500


def test_balanced_work_is_left_whole():
    assert even_pieces(items_of_steps([40] * 8), 4, BLOCK_K, COST).pieces.tolist() == [1] * 8


def test_one_heavy_tile_is_cut_and_short_ones_stay_whole():
    items = items_of_steps([200, 12, 12, 12, 12, 12])
    pieces = even_pieces(items, 4, BLOCK_K, COST).pieces
    assert pieces[0] > 1
    assert pieces[1:].tolist() == [1] * 5
    assert finish(split_items(items, pieces, BLOCK_K), 4) < 0.5 * finish(items, 4)


def test_a_last_wave_of_few_tiles_is_cut_into_parts_that_fill_it():
    items = items_of_steps([64] * 160)
    pieces = even_pieces(items, 132, BLOCK_K, COST).pieces
    assert (pieces == 1).sum() == 132
    assert set(pieces[pieces > 1].tolist()) == {4}


def test_fewer_tiles_than_blocks_are_cut():
    items = items_of_steps([64] * 3)
    assert even_pieces(items, 12, BLOCK_K, COST).pieces.min() >= 3


def test_tiles_too_short_for_two_parts_are_left_whole():
    assert even_pieces(items_of_steps([15] * 5), 4, BLOCK_K, COST).pieces.tolist() == [1] * 5


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.integers(1, 16))
def test_cutting_never_delays_the_last_block_nor_makes_short_parts(steps, blocks):
    items = items_of_steps(steps)
    parts = split_items(items, even_pieces(items, blocks, BLOCK_K, COST).pieces, BLOCK_K)
    assert finish(parts, blocks) <= finish(items, blocks)
    cut = parts.parts > 1
    assert np.all((parts.k_stop - parts.k_start)[cut] >= 8 * BLOCK_K)
