"""List scheduling over SMs, against a slow twin and cases reckoned by hand."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prunecast.launch import launch_context
from prunecast.models import waves
from prunecast.models.amounts import units_of
from prunecast.models.bounds import L2Seconds
from prunecast.models.chip import l2_phases, last_reads
from prunecast.models.loops import SlotsApart, stretched
from prunecast.models.roofline import look_up
from prunecast.models.waves import place_units
from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Instruction, Op
from tests.models.hand_plans import hand_plan, one_role_programs
from tests.toy_gpu import toy_gpu


def place(alone, demand=None, *, sms=4, slots=1):
    alone = np.array(alone, dtype=np.float64)
    demand = np.zeros_like(alone) if demand is None else np.array(demand, dtype=np.float64)
    return place_units(launched(alone.size, sms, slots), alone, demand)


def launched(units, sms, slots):
    """So many blocks, `slots` to an SM."""
    context = launch_context(hand_plan([64] * units, 64), toy_gpu(sm_count=sms))
    return replace(context, fit=replace(context.fit, blocks_per_sm=slots))


class Naive(NamedTuple):
    finish: np.ndarray
    """(SMs,) cycle in which each runs dry."""
    tied: bool
    """Whether two units ended so nearly together that rounding says where the next one went."""


def duration(unit, together, alone, demand):
    """Cycles of a unit of an SM, which the others delay by the geometric means of what equal ones would."""
    others = [other for other in together if other != unit]
    if not others or not alone[unit]:
        return alone[unit]
    count = len(together)
    delay = {u: max(count * demand[u] / max(alone[u], 1e-300) - 1, 0) / (count - 1) for u in together}
    return alone[unit] * (1 + sum((delay[unit] * delay[other]) ** 0.5 for other in others))


def naive_finish(alone, demand, sms, slots):
    """Every event in turn, every resident looked at every time."""
    waiting = list(range(len(alone)))
    residents = [[] for _ in range(sms)]
    for place in range(sms * slots):
        if waiting:
            residents[place % sms].append([waiting.pop(0), 1.0])
    finish, now, tied = [0.0] * sms, 0.0, False
    while any(residents):
        left = {}
        for sm, units in enumerate(residents):
            for unit, share in units:
                left[unit, sm] = share * duration(unit, [other for other, _ in units], alone, demand)
        # The lowest SM, then the lowest slot, goes first on a tie.
        (unit, sm), step = min(left.items(), key=lambda item: (round(item[1], 9), item[0][1]))
        now += step
        others = [later - step for other, later in left.items() if other != (unit, sm)]
        tied |= bool(waiting) and any(abs(late) < 1e-9 * max(now, 1.0) for late in others)
        for units in residents:
            together = [other for other, _ in units]
            for entry in units:
                whole = duration(entry[0], together, alone, demand)
                entry[1] = max(entry[1] - step / whole, 0.0) if whole else 0.0
        units = residents[sm]
        slot = [entry[0] for entry in units].index(unit)
        finish[sm] = now
        if waiting:
            units[slot] = [waiting.pop(0), 1.0]
        else:
            units.pop(slot)
    return Naive(np.array(finish), tied)


def test_equal_units_make_whole_waves():
    # 9 units of 100 cycles on 4 SMs: three waves
    placement = place([100] * 9)
    assert placement.sm_finish.max() == 300
    assert np.bincount(placement.sm).tolist() == [3, 2, 2, 2]


def test_slots_that_come_free_together_are_filled_evenly():
    # 4 SMs of 3 slots: 12 units end together, and of the 8 that are left every SM takes two
    placement = place([100] * 20, [100] * 20, slots=3)
    assert np.bincount(placement.sm).tolist() == [5, 5, 5, 5]
    assert placement.sm_finish.max() == 500


def test_free_sm_takes_the_next_unit():
    # 2 SMs. 0: 30 ends at 30, takes 40 until 70. 1: 50 until 50, takes 5 until 55, takes 5 until 60.
    placement = place([30, 50, 40, 5, 5], sms=2)
    assert placement.sm.tolist() == [0, 1, 0, 1, 1]
    assert placement.sm_finish.tolist() == [70, 60]


def test_slots_that_come_free_together_are_spread_over_the_sms():
    # Two blocks on each of three SMs all end at 100; of the three that are left every SM gets one.
    found = place([100] * 9, [50] * 9, sms=3, slots=2)
    assert sorted(found.sm[6:]) == [0, 1, 2]
    assert found.sm_finish.max() == pytest.approx(200.0)


@settings(deadline=None)
@given(
    sms=st.integers(2, 9),
    slots=st.integers(2, 4),
    apart=st.builds(SlotsApart, *(st.integers(0, most).map(float) for most in (3, 4, 12, 9))),
    left=st.integers(1, 36),
    waves_before=st.integers(1, 2),
)
def test_slots_that_come_free_together_are_filled_in_turn(sms, slots, apart, left, waves_before):
    # Against a slow twin: every slot of every SM, in the order in which its block of the last whole wave ends
    held = sms * slots
    left = min(left, held)
    alone = np.full(waves_before * held + left, 100.0)
    found = place_units(launched(alone.size, sms, slots), alone, alone, apart)
    order = []
    for sm in range(sms):
        freed = sm * apart.first
        order.append((freed, 0, sm))
        for slot in range(1, slots):
            least = apart.after_first if slot == 1 else apart.on_sm
            freed = max(sm * apart.later, freed + least)
            order.append((freed, slot, sm))
    assume(waves_before == 1 or max(order)[0] < slots * 100.0)
    ends = [freed for freed, *_ in order]
    assume(len(set(ends)) == len(ends) or not any(apart))
    assert found.sm[-left:].tolist() == [sm for *_, sm in sorted(order)[:left]]


@pytest.mark.parametrize(("step", "expected"), [(0.0, [0, 0]), (5.0, [0, 0]), (30.0, [0, 1])])
def test_an_sm_whose_blocks_end_together_gets_a_second_one_a_k_step_later(step, expected):
    # Two blocks on each of two SMs, which end at 400 and 410
    alone = np.array([200.0, 205.0, 200.0, 205.0, 100.0, 100.0])
    found = place_units(launched(6, 2, 2), alone, alone, SlotsApart(after_first=step, on_sm=step))
    assert found.sm[-2:].tolist() == expected


@settings(deadline=None)  # the first example may compile
@given(first=st.floats(1e3, 1e5), later=st.floats(1e3, 1e5), share=st.floats(0.01, 1.0))
def test_rounding_of_times_does_not_give_one_sm_two_units_of_the_last_wave(first, later, share):
    # 28 SMs of two slots: two whole waves, and 16 units for 16 of the SMs
    alone = np.array([first] * 56 + [later] * 72)
    placement = place(alone, share * alone, sms=28, slots=2)
    assert sorted(np.bincount(placement.sm)) == [4] * 12 + [5] * 16


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("cycles", [1000.0, 1024.0, 1e6 / 3])
@pytest.mark.parametrize("first", [0, 1])
def test_times_that_differ_by_a_rounding_error_are_equal(slots, cycles, first):
    # Two SMs, whose first units end together but for a rounding error: each gets one of the last two
    below = np.nextafter(cycles, 0.0)
    alone = [below if unit % 2 == first else cycles for unit in range(2 * slots)] + [500.0, 500.0]
    assert place(alone, sms=2, slots=slots).sm[-2:].tolist() == [0, 1]


def test_residents_share_the_sm_only_as_far_as_they_need_it():
    # Two blocks on one SM. Each alone takes 100 cycles, of which its busiest pipe works 30: both end at 100.
    assert place([100, 100], [30, 30], sms=1, slots=2).sm_finish.max() == 100
    # With 80 of 100 both together take 160.
    assert place([100, 100], [80, 80], sms=1, slots=2).sm_finish.max() == 160


def test_a_unit_that_hardly_uses_the_pipes_delays_no_other():
    # Two like the first delay each other by 100 %, two like the second by 4 %: both by sqrt(1 * 0.04), 20 %
    assert place([100, 100], [100, 52], sms=1, slots=2).sm_finish.max() == pytest.approx(120)
    assert place([100, 100], [100, 50], sms=1, slots=2).sm_finish.max() == 100


def test_the_one_that_stays_goes_on_at_its_own_pace():
    # Together until the first has done its 100 at half speed, at 200; the second has 1/2 left, 100 alone.
    placement = place([100, 200], [100, 200], sms=1, slots=2)
    assert sorted(placement.slot_finish[0].tolist()) == [200, 300]


def test_first_blocks_go_to_empty_sms_before_they_share():
    assert place([100] * 4, [100] * 4, sms=4, slots=2).sm_finish.max() == 100


def test_static_lists_are_added_up():
    plan = hand_plan([64] * 4, 64, schedule=Schedule.STATIC, block_start=[0, 3, 3, 4])
    assert units_of(plan, np.array([1.0, 2.0, 3.0, 10.0])).tolist() == [6, 0, 10]


@settings(deadline=None)  # the first example may compile
@given(
    alone=st.lists(st.integers(1, 1000), min_size=1, max_size=40),
    share=st.floats(0, 1),
    sms=st.integers(1, 5),
    slots=st.integers(1, 3),
)
def test_agrees_with_the_slow_twin(alone, share, sms, slots):
    alone = [cost + i / 64 for i, cost in enumerate(alone)]
    demand = [share * cost for cost in alone]
    slow = naive_finish(alone, demand, sms, slots)
    assume(not slow.tied)
    fast = place(alone, demand, sms=sms, slots=slots)
    assert fast.sm_finish.max() == pytest.approx(slow.finish.max(), rel=1e-6)
    last = np.zeros(sms)
    np.maximum.at(last, fast.sm, fast.unit_end)
    np.testing.assert_allclose(last, fast.sm_finish, rtol=1e-12)


@settings(deadline=None)
@given(alone=st.lists(st.integers(0, 1000), min_size=1, max_size=40), sms=st.integers(1, 6))
def test_list_scheduling_is_within_grahams_bound(alone, sms):
    # Graham 1966: at most total / SMs + (1 - 1 / SMs) * the longest
    cycles = place(alone, sms=sms).sm_finish.max()
    assert cycles >= max(sum(alone) / sms, max(alone)) * (1 - 1e-12)
    assert cycles <= sum(alone) / sms + (1 - 1 / sms) * max(alone) + 1e-9


@pytest.mark.parametrize("slots", [1, 3])
def test_many_waves_end_where_they_would_unit_by_unit(slots, monkeypatch):
    rng = np.random.default_rng(slots)
    alone, sms = rng.uniform(50, 150, 4 * slots * 200 + 3), 4
    demand = alone / 2
    together = place(alone, demand, sms=sms, slots=slots)
    monkeypatch.setattr(waves, "EXACT_WAVES", 10**9)
    exact = place(alone, demand, sms=sms, slots=slots)
    longest = float(np.maximum(alone, slots * demand).max())
    assert together.sm_finish.max() == pytest.approx(exact.sm_finish.max(), abs=longest)
    assert np.bincount(together.sm).sum() == alone.size
    # The units that are placed one by one end after all others
    placed = np.flatnonzero(together.unit_end)
    last = np.zeros(sms)
    np.maximum.at(last, together.sm[placed], together.unit_end[placed])
    np.testing.assert_allclose(last, together.sm_finish, rtol=1e-12)
    work = [np.bincount(one.sm, weights=alone, minlength=sms) for one in (together, exact)]
    # Waves that are placed together fill SMs evenly but for one unit, the last ones and the rest for one each
    np.testing.assert_allclose(work[0], work[1], rtol=0.0, atol=3 * longest)


def test_what_an_sm_has_fetched_is_told_by_its_last_unit():
    # SM 0 runs the first unit and then the third one, which is quiet for its last 20 cycles
    placement = place_units(launched(3, 2, 1), np.array([100.0, 300.0, 50.0]), np.zeros(3))
    assert placement.sm.tolist() == [0, 1, 0]
    assert last_reads(placement, np.array([70.0, 10.0, 20.0])).tolist() == [130.0, 290.0]
    # The second unit is an owner and waits for partial sums for 200 of its 300 cycles
    waiting = replace(placement, unit_wait=np.array([0.0, 200.0, 0.0]))
    assert last_reads(waiting, np.array([70.0, 10.0, 20.0])).tolist() == [130.0, 90.0]


def test_intervals_in_which_blocks_read_and_store():
    # Each of two SMs runs two blocks of 3,000 cycles. The first ones read from cycle 1000, the second ones
    # after a prologue of 1,000 cycles, and all until 200 cycles before they end. In these 200 cycles they
    # store C; that of the last blocks comes after the last read and does not count
    (worker,) = one_role_programs(2)
    worker = replace(worker, step=(*worker.step, Instruction(Op.LOAD_B, 0, per_k16=True, ahead=1)))
    plan = hand_plan([256] * 4, 64, programs=(worker,), stages=2, shared_bytes=200_000)
    case = look_up(launch_context(plan, toy_gpu(sm_count=2)))
    assert (case.before_data, case.context.prologue_cycles) == (1000, 1000)
    ends = np.array([3000.0, 3000.0, 6000.0, 6000.0])
    placement = waves.Placement(
        slot_finish=ends[2:, None], sm=np.array([0, 1, 0, 1]), unit_end=ends, unit_wait=np.zeros(4)
    )

    def found(reads, stores):
        return l2_phases(case, placement, np.full(4, 200.0), L2Seconds(reads, reads, stores, stores))

    assert stretched(found(1.0, 0.0), 3600.0) == pytest.approx(1000 + 1800 + 1200 + 1800)
    assert stretched(found(1.0, 0.0), 7200.0) == pytest.approx(1000 + 3600 + 1200 + 3600)
    # Reads of 3,600 cycles, and 180 of 360 cycles of stores before the last read
    assert stretched(found(10.0, 1.0), 3600.0 + 180.0) == pytest.approx(1000 + 1800 + 1200 + 1800)
    # Stores of 1,000 and as many reads: 800 cycles more than the 200 in which the first blocks store
    assert stretched(found(1.0, 2.0), 1000.0 + 1000.0) == pytest.approx(1000 + 1800 + 800 + 1200 + 1800)
