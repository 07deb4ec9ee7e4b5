"""Samples of the engine against the engine itself on whole plans of one block."""

import numpy as np
import pytest

from benchmarks.house.engines import WARM, lone_block
from prunecast.hardware import load_gpu
from prunecast.kernels.tile.configs import tile_configs
from prunecast.launch import Conditions, launch_context
from prunecast.simulator import engine
from prunecast.simulator.sample import ALONE, BlockSamples, SampledBlock, SampledItem, SampledRun
from prunecast.simulator.simulate import settle

ENDLESS = 1e9
"""Bytes per cycle that no block needs."""


def sampled(context, read_latency):
    plan, gpu = context.plan, context.gpu
    return SampledBlock(
        context.programs,
        plan.shape,
        plan.resources.stages,
        plan.dtype,
        plan.tensor,
        gpu,
        context.store_latency_cycles,
        ENDLESS,
        read_latency,
    )


def item(plan):
    return SampledItem(int(plan.tiles.kept_per_tile[0]), plan.shape.block_m, plan.shape.block_n)


def lone_blocks(gpu, steps):
    blocks = [lone_block(each, steps, gpu) for each in tile_configs(gpu, "fp16", 256)]
    found = [launch_context(each, gpu, Conditions(l2=WARM)) for each in blocks]
    assert found
    return found


@pytest.mark.parametrize("name", ["a100-sxm4-80gb", "v100-sxm2-32gb", "t4", "rtx-4090"])
@pytest.mark.parametrize("steps", [1, 9])
def test_a_sample_is_the_whole_plan_of_one_block(name, steps):
    gpu = load_gpu(name)
    for context in lone_blocks(gpu, steps):
        whole = settle(context, policy="gty")
        block = sampled(context, context.gpu.dram_latency_cycles)
        # The plan's L2 has one reader too, and is slower than it by a few cycles at most
        cycles = BlockSamples(block)[item(context.plan), ALONE]
        assert not context.prologue_is_hidden
        assert cycles == pytest.approx(int(whole.run.mem[engine.G_END]), rel=0.02)


@pytest.mark.parametrize("name", ["h200-sxm", "a100-sxm4-80gb", "v100-sxm2-32gb"])
def test_a_step_lasts_as_long_as_in_the_whole_plan(name):
    gpu = load_gpu(name)
    pairs = zip(lone_blocks(gpu, 16), lone_blocks(gpu, 32), strict=True)
    for fewer, more in pairs:
        whole = [settle(c, policy="gty").run.mem[engine.G_END] for c in (fewer, more)]
        block = sampled(more, more.gpu.l2_latency_cycles)
        short, long = (BlockSamples(block)[item(context.plan), ALONE] for context in (fewer, more))
        assert long - short == pytest.approx(int(whole[1] - whole[0]), rel=0.005)


def test_items_in_turn_share_prologue_and_fetches_overlap():
    gpu = load_gpu("h200-sxm")
    context = lone_blocks(gpu, 8)[0]
    block, one = sampled(context, context.gpu.l2_latency_cycles), item(context.plan)
    times = [BlockSamples(block)[one, SampledRun(items=count)] for count in (1, 2, 3)]
    later = np.diff(times)
    assert later[0] < times[0]
    assert later[1] == pytest.approx(later[0], rel=0.05)


def test_blocks_that_share_an_sm_take_at_least_their_busiest_pipe():
    gpu = load_gpu("a100-sxm4-80gb")
    for context in lone_blocks(gpu, 8):
        block, one = sampled(context, context.gpu.l2_latency_cycles), item(context.plan)
        alone, both = BlockSamples(block)[one, ALONE], BlockSamples(block)[one, SampledRun(2, 2)]
        assert alone <= both <= 2 * alone
        assert BlockSamples(block)[one, SampledRun(1, 2)] >= both


def test_later_data_and_slower_stores_never_make_a_sample_faster():
    gpu = load_gpu("a100-sxm4-80gb")
    for context in lone_blocks(gpu, 4):
        one, l2 = item(context.plan), context.gpu.l2_latency_cycles
        near, far = (sampled(context, latency) for latency in (l2, 2 * l2))
        assert BlockSamples(near)[one, ALONE] < BlockSamples(far)[one, ALONE]
        slow = near._replace(store_bytes_per_clk=4.0)
        assert BlockSamples(near)[one, ALONE] < BlockSamples(slow)[one, ALONE]


def test_an_owner_of_a_split_tile_ends_later_than_the_parts():
    gpu = load_gpu("a100-sxm4-80gb")
    context = lone_blocks(gpu, 4)[0]
    block, whole = sampled(context, context.gpu.l2_latency_cycles), item(context.plan)
    owner = BlockSamples(block)[whole._replace(parts=2), ALONE]
    part = BlockSamples(block)[whole._replace(parts=2, owner=False), ALONE]
    assert part < owner
    assert BlockSamples(block)[whole, ALONE] < owner
