"""Amounts read off warp programs, against sums done by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.launch import launch_context
from prunecast.models.amounts import Amounts, launch_amounts, plan_amounts
from prunecast.models.terms import Quantity
from prunecast.plan.program import Instruction, Op, WarpProgram, When
from tests.models.hand_plans import hand_plan, one_role_programs, two_role_programs
from tests.toy_gpu import toy_gpu


def of_items(amounts: Amounts) -> np.ndarray:
    """Return the work of each item, (items, quantities)."""
    return amounts.whole[amounts.kinds.of_item]


def of_item(plan, quantity, item=0):
    return of_items(plan_amounts(plan))[item, quantity]


def one_step(*step, begin=(), end=()):
    return (WarpProgram(role="all", warps=4, begin=begin, step=step, end=end),)


def test_one_item_of_four_full_steps():
    # 64 rows x 64 tokens x 256 kept columns; per step A and B are 64 * 64 * 2 = 8192 bytes each
    plan = hand_plan([256], 64)
    assert of_item(plan, Quantity.FMA) == 64 * 64 * 256
    assert of_item(plan, Quantity.A) == 4 * 8192
    assert of_item(plan, Quantity.B) == 4 * 8192
    assert of_item(plan, Quantity.C) == 64 * 64 * 2
    assert of_item(plan, Quantity.PORT) == 4 * 16384
    assert of_item(plan, Quantity.L2) == 4 * 16384 + 8192
    # operands: 4 warps x 1024 bytes per k16, 16 groups; the copies write the same port
    assert of_item(plan, Quantity.SHARED) == 4 * 1024 * 16 + 4 * 16384
    # producer: 1 + 4 (per k16) + 1 in a step; consumers: 4 x (1 + 4 + 1) in a step, a release less in the
    # first, and 3 at the end
    assert of_item(plan, Quantity.ISSUE) == 4 * 6 + 4 * (4 * 7 - 1 + 3)


def test_last_step_is_counted_in_k16_groups_and_columns():
    # 70 columns: a step of 64 and one of 6, which is one group of 16
    plan = hand_plan([70], 64)
    assert of_item(plan, Quantity.FMA) == 64 * 64 * (64 + 16)
    assert of_item(plan, Quantity.A) == 2048 * 5
    assert of_item(plan, Quantity.B) == 128 * 70


def test_rows_and_tokens_clip_what_moves_but_not_what_is_multiplied():
    plan = hand_plan([64], 16, rows=32)
    assert of_item(plan, Quantity.FMA) == 64 * 64 * 64
    assert of_item(plan, Quantity.A) == 8192
    assert of_item(plan, Quantity.B) == 16 * 2 * 64
    assert of_item(plan, Quantity.C) == 32 * 16 * 2


@given(kept=st.integers(1, 700), stages=st.integers(1, 6))
def test_a_copy_that_runs_ahead_runs_once_per_step(kept, stages):
    ahead = hand_plan([kept], 64, stages=stages, programs=one_role_programs(stages))
    straight = hand_plan([kept], 64, stages=stages)
    for quantity in (Quantity.A, Quantity.B):
        assert of_item(ahead, quantity) == of_item(straight, quantity)


def test_refills_count_where_a_block_has_one_item():
    step = (Instruction(Op.SHARED, 128, when=When.REFILL),)
    plan = hand_plan([256], 64, programs=one_step(*step), stages=3)
    assert of_item(plan, Quantity.SHARED) == 0
    early = replace(launch_context(plan, toy_gpu()), co_resident=True)
    assert of_items(launch_amounts(early))[0, Quantity.SHARED] == 4 * 128


def test_loads_for_later_steps_count_once_for_each_step_that_exists():
    step = (Instruction(Op.ISSUE, issue=5), Instruction(Op.LOAD_A, 64, issue=7, ahead=3))
    amounts = plan_amounts(hand_plan([256], 64, programs=one_step(*step)))
    assert amounts.steps[0, Quantity.ISSUE] == 4 * (7 + 4 * 5)


@given(kept=st.lists(st.integers(0, 300), min_size=1, max_size=4).filter(any))
def test_total_is_the_sum_over_items(kept):
    plan = hand_plan(kept, 128)
    amounts = plan_amounts(plan)
    assert amounts.total[Quantity.B] == 128 * 2 * sum(kept)
    assert np.array_equal(of_items(amounts).sum(axis=0), amounts.total)


def test_leader_copies_once_and_multicast_spares_l2_only():
    copy = Instruction(Op.COPY_A, 4096, leader=True, multicast=2)
    plan = hand_plan([64], 64, programs=one_step(copy))
    assert of_item(plan, Quantity.A) == 4096
    assert of_item(plan, Quantity.PORT) == 4096
    assert of_item(plan, Quantity.L2) == 2048


def test_loads_into_registers_do_not_pass_shared_memory():
    loads = (Instruction(Op.LOAD_A, 100), Instruction(Op.LOAD_B, 128), Instruction(Op.LOAD_INDEX, 16))
    plan = hand_plan([64], 64, programs=one_step(*loads))
    assert of_item(plan, Quantity.SHARED) == 0
    assert of_item(plan, Quantity.A) == 400
    assert of_item(plan, Quantity.B) == 128 * 64
    assert of_item(plan, Quantity.INDEX) == 64


@pytest.mark.parametrize(
    ("when", "of_parts"),
    [(When.ALWAYS, [1, 1, 1]), (When.PARTIAL, [1, 0, 0]), (When.OWNER, [0, 1, 0]), (When.FINAL, [0, 1, 1])],
)
def test_when_chooses_the_items(when, of_parts):
    store = Instruction(Op.SHARED, 256, when=when)
    plan = split_plan(one_step(Instruction(Op.ISSUE), end=(store,)))
    assert (of_items(plan_amounts(plan))[:, Quantity.SHARED] == 4 * 256 * np.array(of_parts)).all()


def test_partial_sums_go_out_once_and_come_in_once_per_other_part():
    plan = split_plan(two_role_programs())
    amounts = of_items(plan_amounts(plan))
    assert amounts[:, Quantity.PARTIALS_OUT].tolist() == [4 * 4096, 0, 0]
    assert amounts[:, Quantity.PARTIALS_IN].tolist() == [0, 4 * 4096, 0]
    assert amounts[:, Quantity.C].tolist() == [0, 8192, 8192]


def test_whole_sums_are_no_fewer_where_a_tile_lacks_tokens():
    for whole in (False, True):
        programs = one_step(Instruction(Op.ISSUE), end=handing_over(whole))
        plan = split_plan(programs)
        plan = replace(plan, n=32, work=plan.work._replace(token_stop=np.full(3, 32)))
        amounts, size = of_items(plan_amounts(plan)), 4 * 4096 if whole else 2 * 4096
        assert amounts[:, Quantity.PARTIALS_OUT].tolist() == [size, 0, 0]
        assert amounts[:, Quantity.PARTIALS_IN].tolist() == [0, size, 0]


def handing_over(whole):
    return (
        Instruction(Op.STORE_PARTIAL, 4096, when=When.PARTIAL, whole=whole),
        Instruction(Op.WAIT_PARTS, when=When.OWNER),
        Instruction(Op.LOAD_PARTIALS, 4096, when=When.OWNER, whole=whole),
    )


def split_plan(programs):
    """A tile of 256 columns in two halves, the second one the owner, and a tile of 64 columns."""
    plan = hand_plan([256, 64], 64, programs=programs)
    work = plan.work._replace(
        block_start=np.arange(4),
        tile=np.array([0, 0, 1]),
        token_start=np.zeros(3),
        token_stop=np.full(3, 64),
        k_start=np.array([0, 128, 0]),
        k_stop=np.array([128, 256, 64]),
        group=np.array([0, 0, -1]),
        part=np.array([0, 1, 0]),
        parts=np.array([2, 2, 1]),
        owner=np.array([0, 1, 1]),
    )
    return replace(plan, work=work, blocks=3)


def test_full_step_is_what_one_more_step_adds():
    long, longer = hand_plan([640], 64), hand_plan([704], 64)
    added = of_items(plan_amounts(longer))[0] - of_items(plan_amounts(long))[0]
    assert np.array_equal(added, plan_amounts(long).step)


def test_an_item_without_columns_still_begins_and_ends():
    edge = (Instruction(Op.ISSUE, issue=7),)
    plan = hand_plan([0, 64], 64, programs=one_step(Instruction(Op.ISSUE), begin=edge, end=edge))
    assert of_items(plan_amounts(plan))[:, Quantity.ISSUE].tolist() == [4 * 14, 4 * 15]
