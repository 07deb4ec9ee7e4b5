"""Time kernels on the GPU: CUDA graphs of a few milliseconds, alternately, in bursts or sustained.

Burst: a graph runs for at most 1.5 ms, or for two launches if these need longer. Then the GPU rests nine
times as long, and at least 8 ms, so that it is busy for at most a tenth of the time. Sustained: a graph is
replayed without pauses, and the first half second does not count.
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
"""Nanoseconds for which a stream is blocked: longer than a host needs to enqueue a graph of 240 launches.
Records up to 2026-11-21 18:37 blocked it for 60 us. If the host needed longer, the GPU waited for it, and
this time was divided among the launches of the graph (`docs/decisions/0007`)."""


class CupyStream:
    """`EventStream` and `ClockReader` of a CuPy stream. It reads clock64 and globaltimer on all SMs.

    A reading needs about 2 us between two events, so the timed work should be much longer.
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
        """Record an event and return it."""
        event = cp.cuda.Event()
        event.record(self._stream)
        return event

    def seconds(self, start: Any, stop: Any) -> float:
        """Wait for the stream and return the seconds between two events."""
        self._stream.synchronize()
        return float(cp.cuda.get_elapsed_time(start, stop)) * 1e-3

    def read(self, place: int) -> None:
        """Enqueue a reading of the clocks: number 0 before the timed work, number 1 after it."""
        with self._stream:
            self._kernel((2 * self._sms,), (32,), (self._readings[place],))

    def mhz(self) -> float:
        """Return the median clock in MHz between the readings before and after the timed work.

        The median is over the SMs that have both readings. All readings are then cleared.
        """
        before, after = self._readings.get().astype(np.int64)
        elapsed = after - before
        answered = (before[:, 1] > 0) & (after[:, 1] > 0) & (elapsed[:, 1] > 0)
        self._readings.fill(0)
        return float(np.median(1e3 * elapsed[answered, 0] / elapsed[answered, 1]))


@cache
def _clock_kernels() -> tuple[Any, Any]:
    return bench_function("clock_probe.cu", "read_clocks"), bench_function("clock_probe.cu", "hold_stream")


# Records state the protocol that these numbers define (`suite_run.PROTOCOL`): times of other protocols are
# not comparable
BURST_GRAPH_S = 1.5e-3
"""Seconds of work in a graph that is timed in bursts. Kind: choice, short enough for the clock to stay
high."""
MOST_LAUNCHES = 240
"""Maximum number of launches in such a graph. Kind: choice."""
ROUGH_LAUNCHES = 16
"""Launches of the graph from whose time the number of launches of a burst is computed. Kind: choice."""
REST_TIMES_WORK = 9.0
"""Rest after a burst, as a multiple of the seconds of its work. Kind: choice, so that the GPU stays below its
power limit."""
SHORTEST_REST_S = 8e-3
"""Minimum seconds of a rest. Kind: choice."""
WARM_UP_S = 0.5
"""Seconds of replays before the samples of the state `sustained`, until the clock has fallen. Kind:
choice."""
SUSTAINED_S = 0.4
"""Seconds of samples in the state `sustained`. Kind: choice, four updates of the driver's energy counter."""


class Burst(NamedTuple):
    """Limits of the number of launches in a graph that is timed in bursts."""

    graph_s: float = BURST_GRAPH_S
    least: int = 2
    """Minimum number of launches."""
    most: int = MOST_LAUNCHES


def burst_timer(stream: Any) -> Timer:
    """Return a timer of a CuPy stream that rests nine times as long as it works, and at least 8 ms."""
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
    """Capture launches that rotate over `sets` sets of operands in a graph, and return it as a contestant.

    The graph has as many launches as fit into a burst, by default at least one for each set. `launch(i)` must
    enqueue the launch with set i on `stream`, which must be the current stream.
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
    """Return a CUDA graph of `launches` launches that rotate over `sets` sets of operands.

    If a launch cannot be captured, end the capture and raise the error of the launch.
    """
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
    """Return the approximate seconds of one launch inside a graph.

    The number of launches of a timed graph is computed from the result. The time of a launch without a graph
    would not do: it contains 50 to 80 us of host time, so that graphs of short products would get 15 to 50
    launches instead of 240.
    """
    graph = captured(stream, launch, ROUGH_LAUNCHES, sets)
    timer = Timer(stream=CupyStream(stream))
    # The first replay uploads the graph to the device and does not count
    _, seconds = (timer.seconds(lambda: graph.launch(stream), held=False) for _ in range(2))
    return max(seconds / ROUGH_LAUNCHES, 1e-6)


def sustain(
    stream: Any, c: Contestant, timer: Timer, energy_mj: Callable[[], float | None]
) -> tuple[Sample, float | None]:
    """Return samples and mean power (W) of replays without pauses, after half a second of warm-up.

    Power is the difference of the driver's energy counter divided by the time, between two updates of the
    counter (about ten per second). It is None if there are fewer than three updates.
    """
    began = time.perf_counter()
    while time.perf_counter() - began < WARM_UP_S:
        for _ in range(8):
            c.replay()
        stream.synchronize()
    sample, began = Sample([], []), time.perf_counter()
    ticks: list[tuple[float, float]] = []
    while time.perf_counter() - began < SUSTAINED_S:
        timer.add(c, sample, replays=8)
        energy = energy_mj()
        if energy is not None and (not ticks or energy != ticks[-1][1]):
            ticks.append((time.perf_counter(), energy))
    if len(ticks) < 3:
        return sample, None
    # The first reading may be long after an update of the counter.
    (start_s, start_mj), (stop_s, stop_mj) = ticks[1], ticks[-1]
    return sample, (stop_mj - start_mj) * 1e-3 / (stop_s - start_s)


Raw = dict[str, Any]
"""Raw results of a group of microbenchmarks, by name."""
MIB = 1 << 20


def bench_function(source: str, name: str, **defines: int) -> Any:
    """Compile a CUDA source of the microbenchmarks with macros `defines`; return one of its kernels."""
    cubin = compile_cubin(MICROBENCHMARKS / source, ARCH, defines, allow_spills=True).cubin
    return cp.RawModule(path=str(cubin)).get_function(name)


def launch_seconds(launch: Callable[[], object], repeats: int = 5, *, held: bool = True) -> float:
    """Return the median seconds of `repeats` launches on the current stream; a first one is not timed.

    If `held`, the stream is blocked until the host has enqueued the launch, so that no host time is measured.
    """
    return Timer(stream=CupyStream(cp.cuda.get_current_stream())).median(launch, repeats, held=held)


def sm_count() -> int:
    """Return the number of SMs of the current device."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])
