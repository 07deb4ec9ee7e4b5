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
import numpy.typing as npt

from prunecast.kernels.device.build import compile_cubin
from prunecast.kernels.device.form import ARCH
from prunecast.validation.measure.sources import MICROBENCHMARKS

HOLD_NS = 1_000_000
"""Longer than a host takes to enqueue a graph of 240 launches. Records up to 2026-11-21 18:37 held 60 us:
where the host took longer the GPU waited for it, and every launch of the graph got a share
(`docs/decisions/0007`)."""


class ClockProbe:
    """Two readings of clock64 and globaltimer on all SMs; NVML's clock does not follow bursts.

    A reading takes about two microseconds between events, so what lies between two of them should last much
    longer.
    """

    def __init__(self) -> None:
        cubin = compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {}).cubin
        module = cp.RawModule(path=str(cubin))
        self._kernel, self._hold = module.get_function("read_clocks"), module.get_function("hold_stream")
        self._sms = cp.cuda.Device().attributes["MultiProcessorCount"]
        self._readings = cp.zeros((2, self._sms, 2), cp.uint64)

    def hold(self, stream: Any) -> None:
        """Keep the stream busy until the host has enqueued what follows."""
        with stream:
            self._hold((1,), (1,), (np.uint64(HOLD_NS),))

    def read(self, stream: Any, place: int) -> None:
        """Enqueue reading 0 (before) or 1 (after)."""
        with stream:
            self._kernel((2 * self._sms,), (32,), (self._readings[place],))

    def mhz(self) -> npt.NDArray[np.float64]:
        """(SMs that answered twice,) MHz between the readings."""
        before, after = self._readings.get().astype(np.int64)
        elapsed = after - before
        answered = (before[:, 1] > 0) & (after[:, 1] > 0) & (elapsed[:, 1] > 0)
        self._readings.fill(0)
        return np.asarray(1e3 * elapsed[answered, 0] / elapsed[answered, 1], np.float64)


BURST_GRAPH_S = 1.5e-3
MOST_LAUNCHES = 240
ROUGH_LAUNCHES = 16
REST_TIMES_WORK = 9.0
SHORTEST_REST_S = 8e-3
WARM_UP_S = 0.5
SUSTAINED_S = 0.4


class Contestant(NamedTuple):
    """A graph of launches over rotating inputs."""

    name: str
    replay: Callable[[], object]
    launches: int
    holds: Any
    """What the graph needs to stay alive."""


class Sample(NamedTuple):
    """What one contestant gave, one entry per turn."""

    seconds: list[float]
    clock_mhz: list[float]


def capture(name: str, stream: Any, launch: Callable[[int], object], sets: int) -> Contestant:
    """Record `launch(set)` for sets in turn; as many as fit into a burst, and every set at least once.

    Launches are enqueued on `stream`, which must be the current one.
    """
    for i in range(min(sets, 3)):
        launch(i)
    stream.synchronize()
    seconds = rough_seconds(stream, launch, sets)
    launches = min(max(int(BURST_GRAPH_S / seconds), 2, min(sets, MOST_LAUNCHES)), MOST_LAUNCHES)
    graph = captured(stream, launch, launches, sets)
    if hasattr(graph, "upload"):
        graph.upload(stream)
    return Contestant(name, lambda: graph.launch(stream), launches, (graph, launch))


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
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    for _ in range(2):  # the first replay brings the graph to the device
        start.record(stream)
        graph.launch(stream)
        stop.record(stream)
        stop.synchronize()
    return max(float(cp.cuda.get_elapsed_time(start, stop)) / ROUGH_LAUNCHES * 1e-3, 1e-6)


def take_turns(
    stream: Any, contestants: list[Contestant], turns: int, probe: ClockProbe
) -> dict[str, Sample]:
    """Time all contestants `turns` times in bursts, one after the other."""
    samples = {c.name: Sample([], []) for c in contestants}
    worked_s = 0.0
    for turn in range(turns + 1):  # the first turn warms up
        for c in contestants:
            time.sleep(max(REST_TIMES_WORK * worked_s, SHORTEST_REST_S))
            seconds, clock_mhz = _time_once(stream, c, probe)
            worked_s = seconds * c.launches
            if turn:
                samples[c.name].seconds.append(seconds)
                samples[c.name].clock_mhz.append(clock_mhz)
    return samples


def sustain(stream: Any, c: Contestant, probe: ClockProbe, energy_mj: Callable[[], float | None]) -> Any:
    """Samples and mean power of back-to-back replays at the power limit.

    Power is taken between ticks of the driver's energy counter, which come about every tenth of a second.
    """
    _replay_for(stream, c, WARM_UP_S)
    sample, began = Sample([], []), time.perf_counter()
    ticks: list[tuple[float, float]] = []
    while time.perf_counter() - began < SUSTAINED_S:
        seconds, clock_mhz = _time_once(stream, c, probe, replays=8)
        sample.seconds.append(seconds)
        sample.clock_mhz.append(clock_mhz)
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


def _time_once(stream: Any, c: Contestant, probe: ClockProbe, replays: int = 1) -> tuple[float, float]:
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    probe.hold(stream)
    probe.read(stream, 0)
    start.record(stream)
    for _ in range(replays):
        c.replay()
    stop.record(stream)
    probe.read(stream, 1)
    stop.synchronize()
    stream.synchronize()
    seconds = cp.cuda.get_elapsed_time(start, stop) * 1e-3 / (c.launches * replays)
    return float(seconds), float(np.median(probe.mhz()))


Raw = dict[str, Any]
"""Numbers by name, as they were measured."""
MIB = 1 << 20


def bench_function(source: str, name: str, **defines: int) -> Any:
    """A kernel of one of the microbenchmarks' sources."""
    cubin = compile_cubin(MICROBENCHMARKS / source, ARCH, defines, allow_spills=True).cubin
    return cp.RawModule(path=str(cubin)).get_function(name)


@cache
def _probe() -> ClockProbe:
    return ClockProbe()


def launch_seconds(launch: Callable[[], object], repeats: int = 5, *, held: bool = True) -> float:
    """Median over repeats on the current stream; the first launch does not count.

    held : whether the stream waits until the host has enqueued all, so that nothing of the host is measured
    """
    stream = cp.cuda.get_current_stream()
    launch()
    found = []
    for _ in range(repeats):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        if held:
            _probe().hold(stream)
        start.record(stream)
        launch()
        stop.record(stream)
        stop.synchronize()
        found.append(float(cp.cuda.get_elapsed_time(start, stop)) * 1e-3)
    return float(np.median(found))


def sm_count() -> int:
    """SMs of the GPU at hand."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])
