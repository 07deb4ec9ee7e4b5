"""Traces of passes: launches, busy and idle time."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from prunecast.validation.torch_models import timing  # noqa: E402
from prunecast.validation.torch_models.timing import KernelTime, _Event, trace_of  # noqa: E402


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


class Profiler:
    """A profiler that has seen `events`, each (name, begin, end, device), in this order."""

    def __init__(self, events):
        self.seen = events

    def __call__(self, activities):
        assert activities == [torch.profiler.ProfilerActivity.CUDA]
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def events(self):
        types = torch.autograd.DeviceType
        return [
            SimpleNamespace(
                name=name,
                time_range=SimpleNamespace(start=begin, end=end),
                device_type=getattr(types, device),
            )
            for name, begin, end, device in self.seen
        ]


def test_a_rest_separates_the_kernels_of_two_passes(monkeypatch):
    """Half of a rest of 5 ms is between passes, and less within one; what runs on the host does not count."""
    rests, calls = [], []
    seen = [("b", 112.0, 120.0, "CUDA"), ("a", 100.0, 110.0, "CUDA"), ("host", 0.0, 9e5, "CPU")]
    seen += [("a", 120.0 + 2600.0, 2732.0, "CUDA"), ("b", 2732.0 + 2400.0, 5142.0, "CUDA")]
    monkeypatch.setattr(torch.profiler, "profile", Profiler(seen))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(timing.time, "sleep", rests.append)
    found = timing.traced(lambda: calls.append(torch.zeros(1)), passes=2)
    assert rests == [timing.REST_S] * 2 == [0.005] * 2
    assert len(calls) == 1 + 2  # the first pass is not traced
    assert found.kernels == (KernelTime("a", 1.0, 11.0), KernelTime("b", 1.0, 9.0))
    assert found.busy_us == 20.0
    assert found.span_us == pytest.approx((20.0 + 2422.0) / 2)


def test_without_a_gpu_passes_are_not_captured_and_take_the_time_of_the_host(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    order, clock = [], [0.0]

    def lasting(name, seconds):
        def forward():
            order.append(name)
            clock[0] += seconds
            return torch.zeros(1)

        return forward

    variants = {"slow": lasting("slow", 0.25), "quick": lasting("quick", 0.125)}
    assert all(timing.captured(forward) is forward for forward in variants.values())
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    assert timing.times_us(variants, 2, rest_s=0.0) == {"slow": 250_000.0, "quick": 125_000.0}
    assert order[:6] == ["slow"] * 3 + ["quick"] * 3
    assert sorted(order[6:8]) == sorted(order[8:10]) == ["quick", "slow"]


def test_the_error_is_relative_to_what_is_wanted():
    wanted = torch.tensor([3.0, -4.0]).half()
    assert timing.error(wanted, wanted) == 0.0
    assert timing.error(torch.tensor([3.0, -3.5]), wanted) == pytest.approx(0.1)


def test_rows_add_up_the_launches_of_a_kernel():
    one = [_Event("a", 0.0, 10.0), _Event("b", 8.0, 12.0), _Event("a", 15.0, 20.0)]
    found = trace_of([one, one])
    assert found.rows() == [("a", 2.0, 15.0, 18.0), ("b", 1.0, 4.0, 2.0)]
    other = [_Event("a", 0.0, 10.0), _Event("b", 8.0, 22.0), _Event("a", 15.0, 20.0)]
    assert [row[3] for row in trace_of([one, other]).rows()] == [0.0, 0.0]
    long = trace_of([[_Event("k" * 101, 0.0, 1.0)]]).record()
    assert long["kernels"] == [["k" * 100, 1.0, 1.0]]
    assert long["ends"] == [["k" * 100, 1.0, 1.0]]
