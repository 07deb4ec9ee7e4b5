"""Bytes of weights that blocks request before their first rows of B."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS
from prunecast.kernels.small_n.configs import SmallConfig
from prunecast.launch import launch_context
from prunecast.models.block_times import DRAM_GRAIN, block_times, dram_busy_cycles
from prunecast.models.prefetch import posted_bytes, unposted_bytes
from prunecast.models.roofline import estimate, look_up
from prunecast.models.waves import first_burst_cycles, later_burst_cycles, unit_costs
from prunecast.patterns import element_map_from_mask
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.program import Instruction, Op, WarpProgram
from prunecast.simulator import simulate
from tests.models.hand_plans import hand_plan, tile_map
from tests.toy_gpu import toy_gpu

BLOCK_K = 64


def bytes_of(load: Instruction, warps: int, kept: list[int]) -> int:
    """Column by column: which the step has, and how many groups of 16 they begin."""
    columns = [[c for c in range(count) if c // BLOCK_K == load.ahead] for count in kept]
    times = [len({c // 16 for c in own}) if load.per_k16 else bool(own) for own in columns]
    return load.amount * warps * sum(times)


loads = st.fixed_dictionaries(
    {
        "op": st.sampled_from([Op.LOAD_A, Op.LOAD_INDEX]),
        "amount": st.integers(1, 4096),
        "ahead": st.integers(0, 4),
        "per_k16": st.booleans(),
        "posted": st.booleans(),
    }
).map(lambda fields: Instruction(**fields))


@given(
    begin=st.lists(loads, max_size=4),
    kept=st.lists(st.integers(1, 250), min_size=1, max_size=6),
    warps=st.integers(1, 8),
    data=st.data(),
)
def test_bytes_are_those_of_the_columns_that_each_step_has(begin, kept, warps, data):
    program = WarpProgram(role="w", warps=warps, begin=tuple(begin), step=(Instruction(Op.FMA),))
    context = launch_context(hand_plan(kept, 64, k=256, programs=(program,)), toy_gpu())
    weights = [load for load in begin if load.op is Op.LOAD_A]
    blocks = data.draw(st.integers(0, len(kept)))
    assert np.array_equal(context.plan.work.k_stop, kept)
    assert posted_bytes(context) == sum(bytes_of(i, warps, kept) for i in weights if i.posted)
    assert unposted_bytes(context, blocks) == sum(
        bytes_of(i, warps, kept[:blocks]) for i in weights if not i.posted
    )


def test_only_blocks_of_the_first_wave_queue_after_the_weights_of_all():
    gpu = load_gpu("h200-sxm")
    plans = (fastest_plan("small-n", tile_map([384] * t, 1024, 16), 64, "fp16", gpu) for t in (100, 2000))
    one_wave, waves = (look_up(launch_context(plan, gpu)) for plan in plans)
    first = waves.blocks_in_flight
    assert one_wave.blocks_in_flight == one_wave.plan.blocks
    assert first < waves.plan.blocks
    times = block_times(one_wave)
    assert (times.refill == times.first).all()
    times = block_times(waves)
    assert (times.refill < times.first).all()
    alone = unit_costs(waves, times).alone
    assert (alone[:first] == times.first).all()
    later = later_burst_cycles(waves, np.ones(waves.plan.blocks))
    assert np.allclose(alone[first:], times.refill + later, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(("rows", "block_n"), [(256, 8), (256, 16), (4096, 8), (4096, 16), (12800, 16)])
def test_first_rows_of_b_follow_the_weights_of_all_blocks(rows, block_n):
    """One DRAM serves all weights of the first wave, then rows of B; later blocks find it idle.

    256 rows of 256 columns are 0.1 us of DRAM, less than a latency; 4,096 rows are 1.6 us. 12,800 rows are
    more blocks than the GPU holds at once.
    """
    gpu = load_gpu("a100-sxm4-80gb")
    plan = KERNELS["small-n"].plan(
        dense_tile_map(rows, 256, 16), 8, "fp16", gpu, config=SmallConfig(16, block_n, 6, 8)
    )
    case = look_up(launch_context(plan, gpu))
    (worker,) = case.context.programs
    at_once = case.blocks_in_flight
    assert at_once == min(plan.blocks, case.context.held)
    requested = gpu.block_start_cycles + sum(i.issue for i in worker.start)
    # A column of a tile has 16 weights and an index, each of two bytes
    served = at_once * 256 * (16 + 1) * 2 / gpu.dram_bytes_per_s * gpu.max_clock_hz
    assert abs(dram_busy_cycles(case) - requested - served) <= DRAM_GRAIN / 2
    assert first_burst_cycles(case) == 0.0
    times = block_times(case)
    rows_arrive = requested + served + gpu.dram_latency_cycles
    assert (times.first >= rows_arrive - DRAM_GRAIN).all()
    assert (times.refill <= times.first).all()
    if block_n == 16:
        assert estimate(plan, gpu).cycles == pytest.approx(simulate(plan, gpu).cycles, rel=0.06)


def test_weights_that_token_ranges_share_are_served_once():
    gpu, config = load_gpu("a100-sxm4-80gb"), SmallConfig(16, 16, 6, 8)
    one, four = (
        look_up(launch_context(KERNELS["small-n"].plan(kept, n, "fp16", gpu, config=config), gpu))
        for kept in (dense_tile_map(1024, 256, 16),)
        for n in (16, 64)
    )
    assert 4 * one.plan.blocks == four.plan.blocks == four.blocks_in_flight
    assert dram_busy_cycles(four) == dram_busy_cycles(one) > 0


def balanced_case(gpu, n):
    """8,192 rows that keep 13 of each 32 columns."""
    kept = np.random.default_rng(1).random((8192, 8, 32)).argsort(axis=2) < 13
    elements = element_map_from_mask(kept.reshape(8192, 256), "balanced:32")
    case = look_up(launch_context(fastest_plan("balanced", elements, n, "fp16", gpu), gpu))
    assert case.context.co_resident
    return case


def test_blocks_that_fill_an_sm_wait_for_the_weights_of_all():
    gpu = load_gpu("h100-sxm")
    case = balanced_case(gpu, 16)
    assert case.context.fit.blocks_per_sm == 1
    # One wave reads all weights, and evicts as large a part of C as its reads are of all bytes
    a, b, c = case.traffic.a_bytes, case.traffic.b_bytes, case.traffic.written_bytes
    assert case.plan.blocks == case.blocks_in_flight
    evicted_s = (a + b) / (a + b + c) * c / gpu.dram_write_bytes_per_s
    cycles = ((a + b) / gpu.dram_bytes_per_s + evicted_s) * a / (a + b) * gpu.max_clock_hz
    assert case.plan.resources.stages == 2
    in_first_step = case.plan.shape.block_k / (case.plan.work.k_stop - case.plan.work.k_start)
    (late,) = {i.late for p in case.context.programs for i in p.fill if i.op is Op.COPY_B}
    wait = first_burst_cycles(case)
    assert wait == pytest.approx(min(in_first_step.mean(), 1.0) * cycles - late)
    found, simulated = estimate(case.plan, gpu).cycles, simulate(case.plan, gpu).cycles
    assert found == pytest.approx(simulated, rel=0.04)
    assert found - wait < 0.95 * simulated
    endless = replace(gpu, dram_bytes_per_s=1e16, dram_write_bytes_per_s=1e16)
    assert first_burst_cycles(look_up(launch_context(case.plan, endless))) == 0.0


def test_blocks_that_share_an_sm_do_not_wait_for_the_weights_of_all():
    case = balanced_case(load_gpu("h100-sxm"), 1)
    assert case.context.fit.blocks_per_sm > 1
    assert first_burst_cycles(case) == 0.0
