"""Board power at an activity, and the time of long runs at the power limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.hardware import gpu_names, load_gpu
from prunecast.hardware.clock import IDLE_SHARE, activity_of, at_power_limit
from prunecast.hardware.power import launch_power, power_costs

H200 = load_gpu("h200-sxm")
activities = st.floats(0.0, 2.0)
times = st.floats(1e-6, 1.0)


@given(times, activities, activities)
def test_more_activity_draws_more_power_and_is_slowed_more(seconds, one, other):
    less, more = (launch_power(H200, seconds, activity) for activity in sorted((one, other)))
    assert less.watts <= more.watts
    assert less.seconds <= more.seconds * (1 + 1e-12)
    assert more.joules == pytest.approx(more.watts * more.seconds)


@given(times, activities)
def test_power_is_between_idle_and_what_the_limit_allows(seconds, activity):
    power = launch_power(H200, seconds, activity)
    assert 0.8 * IDLE_SHARE * H200.power_limit_w < power.watts
    assert power.watts < power_costs(90)["limit_share"] * H200.power_limit_w
    assert power.seconds >= seconds


def test_short_launches_leave_the_board_idle_between_them():
    short, long = (launch_power(H200, seconds, 0.8).watts for seconds in (3e-6, 1e-3))
    assert short < 0.8 * long


def test_a_lower_limit_draws_less_and_takes_longer():
    limited = at_power_limit(H200, 400.0)
    assert launch_power(limited, 1e-3, 1.0).watts < 0.7 * launch_power(H200, 1e-3, 1.0).watts


def test_activity_counts_tensor_work_and_traffic():
    none = activity_of(H200, 0.0, 0.0, 0.0, "fp16")
    assert none == 0.0
    assert activity_of(H200, 0.5, 0.0, 0.0, "bf16") == 0.5 * H200.clock_bf16_duty
    assert activity_of(H200, 0.5, 10.0, 5.0, "fp16") > activity_of(H200, 0.5, 10.0, 0.0, "fp16") > 0.5


def test_every_gpu_has_a_power_law():
    for name in gpu_names():
        gpu = load_gpu(name)
        assert 0 < launch_power(gpu, 1e-3, 0.5).watts < 1.3 * gpu.power_limit_w
