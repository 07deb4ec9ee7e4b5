"""When tiles are cut: only if blocks would otherwise finish far apart, and never into crumbs."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels.tile.configs import tile_configs
from prunecast.kernels.tile.item_cost import chain_cycles, item_cost, item_times
from prunecast.kernels.tile.tile_plan import items_of
from prunecast.plan.assignment import (
    ItemCost,
    block_loads,
    even_slices,
    item_cycles,
    longest_first,
    split_items,
)
from prunecast.plan.kernel_plan import WorkList
from prunecast.plan.tensor_rate import fma_per_clk, tensor_fma_per_clk
from prunecast.plan.tile_rows import cut_rows
from prunecast.plan.work_items import raster, whole_items
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
        assert even_slices(items, 2, BLOCK_K, COST._replace(fix_up=fix_up)).tolist() == [pieces]


@pytest.mark.parametrize("kept", [80, 128, 100, 1024])
def test_lists_and_the_ranking_of_configs_see_the_same_item(kept):
    gpu, tiles = load_gpu("h200-sxm"), tiles_keeping([kept] * 32, height=128, k=4096)
    for config in tile_configs(gpu, "fp16", 128):
        cut = cut_rows(tiles, config.shape.block_m)
        alone = item_times([config], tiles, 2048, "fp16", gpu, persistent=True)[0].alone
        cost = item_cost(config, cut.kept_per_tile, cut.row_index.size, 2048, gpu)
        cycles = item_cycles(items_of(cut, config, 2048, gpu), config.shape.block_k, cost)
        assert cycles.tolist() == [pytest.approx(float(alone[0]), abs=0.5)] * cycles.size


def test_one_item_by_hand():
    """10 steps of 2048 cycles of tensor work, then rounding C and filling the staging buffer, at 64 B/cycle.

    The entry of the item, half a gather's latency and 36 issues; 4096 sums of a warp rounded in 64 + 20
    issues, and written in 16 with twice the latency of 30, 8 KB at 128 bytes a cycle; the second half of C
    waits until the first, 32 KB at 64 bytes a cycle, has left the staging buffer.
    """
    gpu = toy_gpu(l2_bytes_per_s=1e18, l2_store_bytes_per_s=1e18, dram_bytes_per_s=1e18)
    config, tiles = tile_configs(gpu, "fp16", 128)[0], tiles_keeping([640] * 4, height=128, k=640)
    cost = item_cost(config, tiles.kept_per_tile, tiles.row_index.size, 256, gpu)
    assert cost.step == 2048
    assert cost.overhead == 136 + 84 + 16 + 60 + 64 + 512
    # A producer sets itself up (300), finds its item (300), waits for indices (500); the block starts (500)
    assert cost.start == 300 + 300 + 500 + 500
    assert cost.fix_up == 4.0 * (128 * 256 * 4 / 64 + 200)


@pytest.mark.parametrize(("warps", "turns"), [(4, 1), (6, 2), (8, 2)])
@pytest.mark.parametrize(("path", "stored"), [("mma", 0), ("registers", 30 + 4096 / 128)])
def test_a_step_of_warps_that_copy_and_multiply_by_hand(warps, turns, path, stored):
    """Two k16 of 8 instructions, one read of 512 bytes, 3 others, and 4096 copied bytes, read and written.

    The warps of a scheduler issue in turn; their reads pass one port of 128 B/cycle after a latency of 30.
    A copy through registers is stored after another latency. A step ends with a barrier of 20 cycles.
    """
    config = SimpleNamespace(
        consumer_warps=warps,
        operand_bytes_per_warp_per_k16=512,
        share_bytes_per_k16=4096,
        instructions_per_k16=8,
        tensor_path=path,
        shape=SimpleNamespace(block_k=32),
    )
    issues = 8 + 1 + 2 * 4096 / warps / 512 + 3
    expected = 2 * (30 + warps * 512 / 128 + stored + turns * issues) + 20
    assert chain_cycles(config, 100.0, toy_gpu()) == pytest.approx(expected)
    assert chain_cycles(config, 100.0, toy_gpu(), walk=7.0) == pytest.approx(expected + 7)
    assert chain_cycles(config, 2000.0, toy_gpu()) == 2000 / turns


@pytest.mark.parametrize(("capability", "dtype"), [(70, "fp16"), (75, "fp32")])
def test_copies_through_registers_have_no_lists_to_walk_in_a_step(capability, dtype):
    gpu, tiles = toy_gpu(compute_capability=capability), tiles_keeping([640] * 8, height=64, k=640)
    for config in tile_configs(gpu, dtype, 64):
        assert config.tensor_path == "registers"
        products = config.shape.block_m * config.shape.block_n * config.shape.block_k
        chain = chain_cycles(config, products / fma_per_clk(gpu, dtype, config.tensor), gpu)
        kept = cut_rows(tiles, config.shape.block_m).kept_per_tile
        assert item_cost(config, kept, tiles.row_index.size, 4096, gpu).fetch == chain


def test_blocks_that_share_an_sm_slow_each_others_steps_down():
    gpu, tiles = toy_gpu(compute_capability=80), tiles_keeping([640] * 8, height=128, k=640)
    config = next(c for c in tile_configs(gpu, "fp16", 128) if occupancy(c.resources, gpu).blocks_per_sm == 2)
    cut = cut_rows(tiles, config.shape.block_m)
    cost = item_cost(config, cut.kept_per_tile, cut.row_index.size, 4096, gpu)
    products = config.shape.block_m * config.shape.block_n * config.shape.block_k
    assert cost.step >= 2 * products / tensor_fma_per_clk(gpu, "fp16", "mma")
    assert cost.shared_by(1, 8).step == cost.step / 2
    assert cost.overhead > 2500


def test_balanced_work_is_left_whole():
    assert even_slices(items_of_steps([40] * 8), 4, BLOCK_K, COST).tolist() == [1] * 8


def test_one_heavy_tile_is_cut_and_short_ones_stay_whole():
    items = items_of_steps([200, 12, 12, 12, 12, 12])
    pieces = even_slices(items, 4, BLOCK_K, COST)
    assert pieces[0] > 1
    assert pieces[1:].tolist() == [1] * 5
    assert finish(split_items(items, pieces, BLOCK_K), 4) < 0.5 * finish(items, 4)


def test_a_last_wave_of_few_tiles_is_cut_into_parts_that_fill_it():
    items = items_of_steps([64] * 160)
    pieces = even_slices(items, 132, BLOCK_K, COST)
    assert (pieces == 1).sum() == 132
    assert set(pieces[pieces > 1].tolist()) == {4}


def test_fewer_tiles_than_blocks_are_cut():
    items = items_of_steps([64] * 3)
    assert even_slices(items, 12, BLOCK_K, COST).min() >= 3


def test_tiles_too_short_for_two_parts_are_left_whole():
    assert even_slices(items_of_steps([15] * 5), 4, BLOCK_K, COST).tolist() == [1] * 5


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.integers(1, 16))
def test_cutting_never_delays_the_last_block_nor_makes_short_parts(steps, blocks):
    items = items_of_steps(steps)
    parts = split_items(items, even_slices(items, blocks, BLOCK_K, COST), BLOCK_K)
    assert finish(parts, blocks) <= finish(items, blocks)
    cut = parts.parts > 1
    assert np.all((parts.k_stop - parts.k_start)[cut] >= 8 * BLOCK_K)
