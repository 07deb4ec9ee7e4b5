"""Traces of passes: launches, busy and idle time."""

import pytest

torch = pytest.importorskip("torch")

from prunecast.validation.torch_models.timing import _Event, trace_of  # noqa: E402


def test_overlapping_launches_are_busy_once():
    one = [_Event("a", 0.0, 10.0), _Event("b", 8.0, 12.0), _Event("a", 15.0, 20.0)]
    found = trace_of([one, one])
    assert [tuple(kernel) for kernel in found.kernels] == [("a", 2.0, 15.0), ("b", 1.0, 4.0)]
    assert (found.busy_us, found.span_us) == (17.0, 20.0)


def test_a_launch_inside_another_adds_nothing():
    found = trace_of([[_Event("a", 0.0, 10.0), _Event("b", 2.0, 3.0)]])
    assert (found.busy_us, found.span_us) == (10.0, 10.0)


def test_what_a_kernel_adds_is_the_time_from_the_end_before():
    one = [_Event("a", 0.0, 10.0), _Event("b", 8.0, 12.0), _Event("c", 15.0, 20.0)]
    found = trace_of([one, [*one[:2], _Event("c", 15.0, 24.0)], one])
    assert found.ends == (("a", 10.0, 10.0), ("b", 2.0, 4.0), ("c", 8.0, 5.0))
    assert trace_of([one, one[:2]]).ends == ()


def test_no_pass_has_no_kernels():
    assert trace_of([]).kernels == ()
    assert trace_of([]).ends == ()
