"""Lower bounds by level, reckoned by hand on the toy GPU.

Toy GPU: 4 SMs, 1024 tensor FMA/clk; L2 port 64, shared memory 128, L2 200, DRAM 100 bytes/clk.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware.clock import STATES
from prunecast.launch import launch_context
from prunecast.launch.memory import memory_rules
from prunecast.models.amounts import launch_amounts
from prunecast.models.bounds import bound_cycles, bounds_of
from prunecast.models.case import LEVELS
from prunecast.models.roofline import estimate
from prunecast.models.traffic import plan_traffic
from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Instruction, Op, WarpProgram
from tests.models.hand_plans import hand_plan, one_role_programs
from tests.toy_gpu import toy_gpu

CLOCK_HZ = 1e9


def test_one_item_has_one_sm():
    bounds = bound_cycles(hand_plan([256], 64), toy_gpu(), CLOCK_HZ)
    assert set(bounds) == set(LEVELS)
    # 64 * 64 * 256 FMA at 1024
    assert bounds["tensor"] == 1024
    # A and B 32768 bytes each at 64 bytes/clk; they and 8192 of C through L2 at 200 bytes/clk
    assert bounds["l2 port"] == 65536 / 64
    assert bounds["l2"] == pytest.approx(73728 / 200)
    # the same bytes, each once, at 100 bytes/clk
    assert bounds["dram"] == 73728 / 100
    # operands 4 * 1024 * 16, copies 65536, at 128 bytes/clk
    assert bounds["shared"] == 131072 / 128
    # 7 instructions of each consumer and step, a release less in the first, 3 at the end; 6 of the producer
    assert bounds["issue"] == (4 * 6 + 4 * (4 * 7 - 1 + 3)) / 4


def test_five_equal_items_on_four_sms_take_two():
    bounds = bound_cycles(hand_plan([256] * 5, 64), toy_gpu(), CLOCK_HZ)
    assert bounds["tensor"] == 2 * 1024


def test_longest_item_binds():
    bounds = bound_cycles(hand_plan([1024, 64, 64], 64, k=1024), toy_gpu(), CLOCK_HZ)
    assert bounds["tensor"] == 4096


def test_longest_list_of_a_static_plan_binds():
    plan = hand_plan([256] * 4, 64, schedule=Schedule.STATIC, block_start=[0, 3, 4])
    assert bound_cycles(plan, toy_gpu(), CLOCK_HZ)["tensor"] == 3 * 1024


def test_tensor_work_of_two_warps_has_two_sub_partitions():
    step = (Instruction(Op.BLOCKING_MMA, 16384, per_k16=True),)
    plan = hand_plan([64], 64, programs=(WarpProgram(role="w", warps=2, step=step),))
    # 4 groups x 2 warps x 16384 FMA at 2 x 256
    assert bound_cycles(plan, toy_gpu(), CLOCK_HZ)["tensor"] == 4 * 2 * 16384 / 512


def test_dram_reads_a_shared_row_of_b_once():
    # Two tiles keep columns 0..63 and 0..127 of 256: A 64 * 2 * (64 + 128), B 128 * 64 * 2, C 2 * 8192
    bounds = bound_cycles(hand_plan([64, 128], 64, k=256), toy_gpu(), CLOCK_HZ)
    assert bounds["dram"] == (64 * 2 * 192 + 128 * 128 + 16384) / 100


def test_dram_also_reads_what_completes_sectors_of_c():
    gpu = toy_gpu()
    context = launch_context(hand_plan([256], 64), gpu)
    amounts = launch_amounts(context)
    traffic = plan_traffic(context, memory_rules(context), amounts, resident_blocks=gpu.sm_count)
    merged = replace(traffic, merged_bytes=traffic.merged_bytes + 1000.0)
    without, with_them = (bounds_of(context, CLOCK_HZ, amounts, each)["dram"] for each in (traffic, merged))
    assert with_them - without == pytest.approx(1000.0 / 100)


def test_dram_reads_weights_once_for_all_tokens():
    one = bound_cycles(hand_plan([256], 64), toy_gpu(), CLOCK_HZ)["dram"]
    two = bound_cycles(hand_plan([256], 128), toy_gpu(), CLOCK_HZ)["dram"]
    # 64 tokens more: B 32768 and C 8192 bytes more
    assert two - one == pytest.approx((32768 + 8192) / 100)


def test_chip_levels_cost_more_cycles_at_a_higher_clock():
    slow = bound_cycles(hand_plan([256], 64), toy_gpu(), CLOCK_HZ)
    fast = bound_cycles(hand_plan([256], 64), toy_gpu(), 2 * CLOCK_HZ)
    assert fast["l2"] == 2 * slow["l2"]
    assert fast["dram"] == 2 * slow["dram"]
    assert fast["tensor"] == slow["tensor"]


def test_refuses_a_gpu_without_the_tensor_instructions():
    with pytest.raises(BadInput, match="dtype fp16 needs fp16 tensor cores, toy has none"):
        bound_cycles(hand_plan([64], 64), toy_gpu(tensor_fp16_fma_per_clk_per_sm=0), CLOCK_HZ)


@settings(deadline=None)  # the first example may compile
@given(
    kept=st.lists(st.integers(0, 400), min_size=1, max_size=12).filter(any),
    tokens=st.integers(1, 300),
    stages=st.integers(2, 5),
    one_role=st.booleans(),
    state=st.sampled_from(STATES),
    l2_bytes_per_s=st.sampled_from([2e9, 200e9, 1e15]),
    dram_bytes_per_s=st.sampled_from([1e9, 100e9, 1e15]),
)
def test_no_estimate_beats_a_bound(kept, tokens, stages, one_role, state, l2_bytes_per_s, dram_bytes_per_s):
    gpu = toy_gpu(l2_bytes_per_s=l2_bytes_per_s, dram_bytes_per_s=dram_bytes_per_s)
    programs = one_role_programs(stages) if one_role else None
    plan = hand_plan(kept, tokens, stages=stages, programs=programs)
    found = estimate(plan, gpu, state=state)
    for level, bound in bound_cycles(plan, gpu, found.clock_hz).items():
        assert found.bound_cycles[level] == bound
        assert bound <= found.cycles * (1 + 1e-9), level
