"""Bytes of weights that blocks request before their first rows of B."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.launch import launch_context
from prunecast.models.block_times import block_times
from prunecast.models.prefetch import posted_bytes, unposted_bytes
from prunecast.models.roofline import look_up
from prunecast.models.waves import later_burst_cycles, unit_costs
from prunecast.plan.program import Instruction, Op, WarpProgram
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
