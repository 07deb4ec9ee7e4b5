"""Timing on the GPU: graphs of a few milliseconds, rests between them, all contestants in turn.

Burst: a graph works for at most 1.5 ms (or two launches), then rests nine times as long and 8 ms at
least, so that the GPU works for a tenth of the time. Sustained: replays without a pause, half a second of
warming up before any counts.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from prunecast.kernels.device.build import compile_cubin
from prunecast.kernels.device.compile_inputs import ARCH
from prunecast.validation.measure.sources import MICROBENCHMARKS
from prunecast.validation.measure.timer import Contestant, Sample, Timer

HOLD_NS = 1_000_000
"""Longer than a host takes to enqueue a graph of 240 launches. Records up to 2026-11-21 18:37 held 60 us:
where the host took longer the GPU waited for it, and every launch of the graph got a share
(`docs/decisions/0007`)."""


class CupyStream:
    """`EventStream` and `ClockReader` of a CuPy stream, the clock from clock64 and globaltimer on all SMs.

    A reading takes about two microseconds between events, so what lies between two of them should last much
    longer.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._kernel, self._hold = _clock_kernels()
        self._sms = sm_count()
        self._readings = cp.zeros((2, self._sms, 2), cp.uint64)

    def hold(self) -> None:
        """Keep the stream busy for `HOLD_NS`."""
        with self._stream:
            self._hold((1,), (1,), (np.uint64(HOLD_NS),))

    def mark(self) -> Any:
        """Record an event."""
        event = cp.cuda.Event()
        event.record(self._stream)
        return event

    def seconds(self, start: Any, stop: Any) -> float:
        """Wait for the stream and return the seconds between two events."""
        self._stream.synchronize()
        return float(cp.cuda.get_elapsed_time(start, stop)) * 1e-3

    def read(self, place: int) -> None:
        """Enqueue reading 0 (before) or 1 (after)."""
        with self._stream:
            self._kernel((2 * self._sms,), (32,), (self._readings[place],))

    def mhz(self) -> float:
        """Median over the SMs that answered twice, in MHz."""
        before, after = self._readings.get().astype(np.int64)
        elapsed = after - before
        answered = (before[:, 1] > 0) & (after[:, 1] > 0) & (elapsed[:, 1] > 0)
        self._readings.fill(0)
        return float(np.median(1e3 * elapsed[answered, 0] / elapsed[answered, 1]))


@cache
def _clock_kernels() -> tuple[Any, Any]:
    return bench_function("clock_probe.cu", "read_clocks"), bench_function("clock_probe.cu", "hold_stream")


BURST_GRAPH_S = 1.5e-3
MOST_LAUNCHES = 240
ROUGH_LAUNCHES = 16
REST_TIMES_WORK = 9.0
SHORTEST_REST_S = 8e-3
WARM_UP_S = 0.5
SUSTAINED_S = 0.4


class Burst(NamedTuple):
    """Size of a graph that is timed in bursts."""

    graph_s: float = BURST_GRAPH_S
    least: int = 2
    """Launches at least."""
    most: int = MOST_LAUNCHES


def burst_timer(stream: Any) -> Timer:
    """Timer of a CuPy stream with a rest of nine times the work before."""
    gpu = CupyStream(stream)
    return Timer(
        stream=gpu, clock=gpu, rest_s=lambda worked_s: max(REST_TIMES_WORK * worked_s, SHORTEST_REST_S)
    )


def capture(
    name: str,
    stream: Any,
    launch: Callable[[int], object],
    sets: int,
    *,
    burst: Burst | None = None,
    warm_up: int | None = None,
) -> Contestant:
    """Record `launch(set)` for the sets, one after another: as many launches as fit into a burst, by default
    each set at least once.

    Launches are enqueued on `stream`, which must be the current one.
    """
    for i in range(min(sets, 3) if warm_up is None else warm_up):
        launch(i % sets)
    stream.synchronize()
    burst = burst or Burst(least=max(2, min(sets, MOST_LAUNCHES)))
    seconds = rough_seconds(stream, launch, sets)
    launches = min(max(int(burst.graph_s / seconds), burst.least), burst.most)
    graph = captured(stream, launch, launches, sets)
    if hasattr(graph, "upload"):
        graph.upload(stream)
    return Contestant(name, lambda: graph.launch(stream), launches, holds=(graph, launch))


def captured(stream: Any, launch: Callable[[int], object], launches: int, sets: int) -> Any:
    """A graph of `launch(set)` for sets in turn; what cannot be captured leaves the stream as it was."""
    stream.begin_capture()
    try:
        for i in range(launches):
            launch(i % sets)
    except Exception:
        with suppress(Exception):
            stream.end_capture()
        raise
    return stream.end_capture()


def rough_seconds(stream: Any, launch: Callable[[int], object], sets: int) -> float:
    """Seconds of one launch among others in a graph. Single launches take as long as the host needs for them,
    50 to 80 us, and graphs of short products would get 15 to 50 launches instead of 240.
    """
    graph = captured(stream, launch, ROUGH_LAUNCHES, sets)
    timer = Timer(stream=CupyStream(stream))
    # The first replay brings the graph to the device and does not count
    _, seconds = (timer.seconds(lambda: graph.launch(stream), held=False) for _ in range(2))
    return max(seconds / ROUGH_LAUNCHES, 1e-6)


def sustain(
    stream: Any, c: Contestant, timer: Timer, energy_mj: Callable[[], float | None]
) -> tuple[Sample, float | None]:
    """Samples and mean power of back-to-back replays at the power limit.

    Power is taken between ticks of the driver's energy counter, which come about every tenth of a second.
    """
    _replay_for(stream, c, WARM_UP_S)
    sample, began = Sample([], []), time.perf_counter()
    ticks: list[tuple[float, float]] = []
    while time.perf_counter() - began < SUSTAINED_S:
        timer.add(c, sample, replays=8)
        energy = energy_mj()
        if energy is not None and (not ticks or energy != ticks[-1][1]):
            ticks.append((time.perf_counter(), energy))
    if len(ticks) < 3:
        return sample, None
    # The first reading need not be at a tick.
    (start_s, start_mj), (stop_s, stop_mj) = ticks[1], ticks[-1]
    return sample, (stop_mj - start_mj) * 1e-3 / (stop_s - start_s)


def _replay_for(stream: Any, c: Contestant, seconds: float) -> None:
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(8):
            c.replay()
        stream.synchronize()


Raw = dict[str, Any]
"""Numbers by name, as they were measured."""
MIB = 1 << 20


def bench_function(source: str, name: str, **defines: int) -> Any:
    """A kernel of one of the microbenchmarks' sources."""
    cubin = compile_cubin(MICROBENCHMARKS / source, ARCH, defines, allow_spills=True).cubin
    return cp.RawModule(path=str(cubin)).get_function(name)


def launch_seconds(launch: Callable[[], object], repeats: int = 5, *, held: bool = True) -> float:
    """Median over repeats on the current stream; the first launch does not count.

    held : whether the stream waits until the host has enqueued all, so that nothing of the host is measured
    """
    return Timer(stream=CupyStream(cp.cuda.get_current_stream())).median(launch, repeats, held=held)


def sm_count() -> int:
    """SMs of the GPU at hand."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])
