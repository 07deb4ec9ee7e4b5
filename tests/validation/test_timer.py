"""The one timer, on a GPU that is made up: a clock that work and rests move on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.validation.measure.timer import Contestant, Sample, Timer


class FakeGpu:
    """A stream that works off what is enqueued; the host needs `host_s` for each call."""

    def __init__(self, host_s: float = 0.0) -> None:
        self.host_s, self.host_at, self.gpu_at = host_s, 0.0, 0.0
        self.log: list[object] = []

    def sleep(self, seconds: float) -> None:
        self.log.append(("sleep", seconds))
        self.host_at += seconds

    def work(self, seconds: float, name: str = "work") -> None:
        self.log.append(name)
        self.host_at += self.host_s
        self.gpu_at = max(self.gpu_at, self.host_at) + seconds

    def hold(self) -> None:
        self.work(1.0, "hold")

    def mark(self) -> float:
        self.log.append("mark")
        return max(self.gpu_at, self.host_at)

    def seconds(self, start: float, stop: float) -> float:
        self.log.append("wait")
        self.host_at = max(self.host_at, self.gpu_at)
        return stop - start

    def read(self, place: int) -> None:
        self.log.append(f"read {place}")

    def mhz(self) -> float:
        return 1800.0


def test_the_hosts_time_counts_only_where_the_stream_is_not_held() -> None:
    gpu = FakeGpu(host_s=0.01)
    timer = Timer(stream=gpu)
    assert timer.seconds(lambda: gpu.work(0.002)) == pytest.approx(0.002)
    assert timer.seconds(lambda: gpu.work(0.002), held=False) == pytest.approx(0.012)


def test_events_lie_around_the_work_and_readings_around_the_events() -> None:
    gpu = FakeGpu()
    Timer(stream=gpu, clock=gpu).seconds(lambda: gpu.work(0.002))
    assert gpu.log == ["hold", "read 0", "mark", "work", "mark", "read 1", "wait"]


@given(times=st.lists(st.floats(1e-6, 1e-2), min_size=2, max_size=9))
def test_the_median_leaves_the_first_call_out(times: list[float]) -> None:
    gpu, left = FakeGpu(), iter(times)
    found = Timer(stream=gpu).median(lambda: gpu.work(next(left)), len(times) - 1)
    assert found == pytest.approx(Sample(times[1:], []).median)


def test_contestants_take_turns_with_rests_after_work() -> None:
    gpu = FakeGpu()
    timer = Timer(stream=gpu, clock=gpu, rest_s=lambda worked_s: max(9 * worked_s, 0.008), sleep=gpu.sleep)
    short = Contestant("short", lambda: gpu.work(0.001, "short"), launches=10)
    long = Contestant("long", lambda: gpu.work(0.004, "long"), launches=2, held=False)
    samples = timer.take_turns([short, long], 3)
    assert [event for event in gpu.log if event in ("short", "long")] == ["short", "long"] * 4
    assert samples["short"].seconds == pytest.approx([1e-4] * 3)
    assert samples["long"].seconds == pytest.approx([2e-3] * 3)
    assert samples["long"].clock_mhz == [1800.0] * 3
    rests = [event[1] for event in gpu.log if isinstance(event, tuple)]
    assert rests == pytest.approx([0.008, 0.009, 0.036, 0.009, 0.036, 0.009, 0.036, 0.009])
    assert gpu.log.count("hold") == 4


def test_every_turn_counts_without_a_warm_up() -> None:
    gpu = FakeGpu()
    samples = Timer(stream=gpu).take_turns([Contestant("a", lambda: gpu.work(0.001))], 2, warm_up=0)
    assert len(samples["a"].seconds) == 2
    assert samples["a"].clock_mhz == []


def test_replays_share_their_time() -> None:
    gpu, sample = FakeGpu(), Sample([], [])
    worked = Timer(stream=gpu).add(Contestant("a", lambda: gpu.work(0.003), launches=3), sample, replays=8)
    assert worked == pytest.approx(0.024)
    assert sample.seconds == pytest.approx([0.001])
