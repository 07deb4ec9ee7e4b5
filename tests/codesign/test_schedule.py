"""Schedules: what a stage may be, the cubic curve, and the state machine that runs the stages."""

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from prunecast.codesign.schedule import SparsitySchedule, Stage, cubic_sparsities, gradual, one_shot, staged
from prunecast.codesign.schedule_run import ScheduleRun, Update
from prunecast.errors import BadInput


@given(st.floats(0, 0.99), st.integers(1, 50), st.floats(0, 1))
def test_the_cubic_curve_never_falls_and_ends_exactly(sparsity, updates, start_share):
    levels = cubic_sparsities(sparsity, updates, sparsity * start_share)
    assert levels[-1] == sparsity
    assert all(a <= b for a, b in pairwise(levels))
    assert levels[0] >= sparsity * start_share


def test_the_cubic_curve_is_that_of_the_paper():
    """Zhu and Gupta (2017): s_t = s_f + (s_i - s_f) (1 - t)^3; at half way 7/8 of the sparsity is there."""
    assert cubic_sparsities(0.8, 2) == pytest.approx((0.7, 0.8))
    assert cubic_sparsities(0.8, 4, start=0.4)[0] == pytest.approx(0.8 - 0.4 * 27 / 64)


def run_through(schedule, steps, metric=None, groups=("all",)):
    """Every update by the step it came at."""
    run = ScheduleRun(schedule, groups)
    found = {0: run.begin()}
    found |= {step: run.advance(metric) for step in range(1, steps + 1)}
    return run, {step: update for step, update in found.items() if update}


def test_one_shot_prunes_once_and_is_finished():
    run, updates = run_through(one_shot(0.75), 5)
    assert updates == {0: Update(0.75, ("all",))}
    assert run.finished


def test_a_delay_counts_training_steps():
    _, updates = run_through(one_shot(0.75, delay_steps=3), 5)
    assert list(updates) == [3]


def test_gradual_updates_come_at_equal_steps():
    schedule = gradual(0.75, updates=3, every=10, delay_steps=5)
    run, updates = run_through(schedule, 40)
    assert list(updates) == [5, 15, 25]
    assert updates[25].sparsity == 0.75
    assert run.finished


def test_stages_without_floors_prune_all_groups_together():
    _, updates = run_through(staged([0.3, 0.6], steps=4), 10, groups=("a", "b"))
    assert updates == {0: Update(0.3, ("a", "b")), 4: Update(0.6, ("a", "b"))}


def test_a_floor_prunes_groups_one_after_another():
    run, updates = run_through(
        staged([0.3, 0.6], steps=2, floors=0.5), 20, metric=lambda: 0.9, groups=("a", "b")
    )
    assert updates == {
        0: Update(0.3, ("a",)),
        2: Update(0.3, ("b",)),
        4: Update(0.6, ("a",)),
        6: Update(0.6, ("b",)),
    }
    assert run.finished
    assert not run.stopped


def test_a_group_that_misses_its_floor_stops_and_the_others_go_on():
    metrics = iter([0.4, 0.4, 0.9, 0.9])  # group a fails both of its tries, b passes both stages
    run, updates = run_through(
        staged([0.3, 0.6], steps=2, floors=0.5, tries=2), 20, lambda: next(metrics), ("a", "b")
    )
    assert run.stopped == {"a": 0.3}
    assert updates == {0: Update(0.3, ("a",)), 4: Update(0.3, ("b",)), 6: Update(0.6, ("b",))}
    assert [measured.passed for measured in run.measured] == [False, False, True, True]
    assert run.finished


def test_a_second_try_may_save_a_group():
    metrics = iter([0.4, 0.6])
    run, _ = run_through(staged([0.3], steps=2, floors=0.5, tries=2), 10, lambda: next(metrics))
    assert not run.stopped
    assert [measured.step for measured in run.measured] == [2, 4]


def test_a_floor_without_a_metric_is_refused():
    run = ScheduleRun(staged([0.3], steps=1, floors=0.5))
    run.begin()
    with pytest.raises(BadInput, match="has a floor: wanted a metric"):
        run.advance()


def test_a_metric_that_is_no_number_is_refused():
    run = ScheduleRun(staged([0.3], steps=1, floors=0.5))
    run.begin()
    with pytest.raises(BadInput, match="metric: wanted a number, got nan"):
        run.advance(lambda: float("nan"))


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ((), "at least one stage"),
        ((Stage(0.5, 1), Stage(0.4, 1)), "sparsity must not fall, got 0.4 after 0.5"),
        ((Stage(1.0, 1),), "sparsity must be in"),
        ((Stage(0.5, -1),), "steps from 0"),
        ((Stage(0.5, 1, None, 0),), "tries from 1"),
        ((Stage(0.5, 0), Stage(0.6, 0)), "at least 1 step between stages"),
        ((Stage(0.5, 0, 0.9),), "stage with a floor must train"),
    ],
)
def test_schedules_that_cannot_be_are_refused(stages, said):
    with pytest.raises(BadInput, match=said):
        SparsitySchedule(name="staged", stages=stages)


def test_other_bad_input_is_refused():
    with pytest.raises(BadInput, match="wanted 2 floors"):
        staged([0.3, 0.6], steps=1, floors=[0.5])
    with pytest.raises(BadInput, match="updates and every from 1"):
        gradual(0.5, updates=0, every=1)
    with pytest.raises(BadInput, match="different names"):
        ScheduleRun(one_shot(0.5), ("a", "a"))
    run = ScheduleRun(one_shot(0.5))
    with pytest.raises(BadInput, match="must begin"):
        run.advance()
    run.begin()
    with pytest.raises(BadInput, match="begins once"):
        run.begin()


def test_a_schedule_can_be_written_down():
    assert staged([0.3], steps=2, floors=0.5).document() == {
        "name": "staged",
        "delay_steps": 0,
        "stages": [{"sparsity": 0.3, "steps": 2, "floor": 0.5, "tries": 1}],
    }
