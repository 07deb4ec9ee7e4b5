"""Time forward passes in torch, eager or in CUDA graphs, and trace their kernels.

Without a GPU, passes run on the CPU and are timed by the host's clock; the benchmarks are tested this way.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import torch

from prunecast.validation.measure.timer import Contestant, EventStream, Timer

Forward = Callable[[], torch.Tensor]
"""One forward pass on inputs that it contains; returns its output."""
REST_S = 0.005
"""Seconds of rest between passes. In a trace, a gap of half of it separates the kernels of two passes; gaps
within a pass must be shorter. Kind: choice."""
RECORDED_NAME = 100
"""Maximum number of characters of a kernel's name in a record."""
BUSY_CYCLES = 400_000
"""Cycles, about 200 us, for which the GPU is kept busy before a timed graph, since the host needs this time
to launch the graph.
"""


def captured(forward: Forward) -> Forward:
    """Capture `forward` in a CUDA graph, after three passes on a separate stream, and return its replay.

    Every replay reads the tensors that `forward` refers to, so the returned function keeps `forward` alive.
    Without a GPU, return `forward` itself.
    """
    if not torch.cuda.is_available():
        return forward
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            forward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = forward()

    def replay(held: Forward = forward) -> torch.Tensor:
        graph.replay()
        return out

    replay.is_graph = True  # type: ignore[attr-defined]
    return replay


class _TorchStream:
    """`EventStream` for torch's current stream."""

    def hold(self) -> None:
        torch.cuda._sleep(BUSY_CYCLES)

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, stop: torch.cuda.Event) -> float:
        stop.synchronize()
        return 1e-3 * float(start.elapsed_time(stop))


class _HostStream:
    """`EventStream` for a machine without a GPU, where a pass has ended when its call returns."""

    def hold(self) -> None:
        """Do nothing: no launch is enqueued."""

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, start: float, stop: float) -> float:
        return stop - start


def times_us(variants: dict[str, Forward], rounds: int, *, rest_s: float = REST_S) -> dict[str, float]:
    """Return a dict from variant to the median time of a single forward pass in us.

    Variants are timed alternately, with rests of `rest_s` seconds. Before a graph, a kernel keeps the GPU
    busy until the host has enqueued the graph, so that the host time of the launch does not count, as in a
    loop of replays. The time of an eager pass includes its launches.
    """
    for forward in variants.values():
        for _ in range(3):
            forward()
    stream: EventStream = _HostStream()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        stream = _TorchStream()
    passes = [
        Contestant(name, forward, held=getattr(forward, "is_graph", False))
        for name, forward in variants.items()
    ]
    timer = Timer(stream=stream, rest_s=lambda _: rest_s)
    return {name: 1e6 * each.median for name, each in timer.take_turns(passes, rounds, warm_up=0).items()}


class KernelTime(NamedTuple):
    """Mean number of launches of one kernel in a pass, and their total time in us."""

    name: str
    launches: float
    us: float


class Trace(NamedTuple):
    """Kernels of a pass; numbers are means over the traced passes."""

    kernels: tuple[KernelTime, ...]
    """Kernels by descending total time."""
    busy_us: float
    """Time in us in which at least one kernel ran; overlapping launches count once."""
    span_us: float
    """Time in us from the begin of the first kernel to the end of the last one."""
    ends: tuple[tuple[str, float, float], ...] = ()
    """Kernels in the order of their ends, as (name, a, b): a is the time in us from the end of the preceding
    kernel to the end of this one, b the time in us from begin to end of this kernel. Both are medians over
    the passes. Empty if the passes ran different kernels."""

    def record(self) -> dict[str, Any]:
        """Return times and kernels for a record, names shortened to `RECORDED_NAME` characters."""
        kernels, ends = (
            [[name[:RECORDED_NAME], *rest] for name, *rest in each] for each in (self.kernels, self.ends)
        )
        return {"busy_us": self.busy_us, "span_us": self.span_us, "kernels": kernels, "ends": ends}

    def rows(self) -> list[tuple[str, float, float, float]]:
        """Return (name, launches, a, b) of each kernel; a and b are us per pass, summed over its launches.

        The time a is from begin to end of a launch. The time b is from the end of the preceding launch to the
        end of this one. Since launches overlap, only the times b add up to the time of the pass. All b are 0
        if the passes ran different kernels or ended them in a different order, because the ends of different
        passes then do not correspond.
        """
        added: dict[str, float] = {}
        for name, us, _ in self.ends:
            added[name] = added.get(name, 0.0) + us
        return [(*kernel, round(added.get(kernel.name, 0.0), 2)) for kernel in self.kernels]


class _Event(NamedTuple):
    """One launch in a trace, with the profiler's times in us."""

    name: str
    begin: float
    end: float


def traced(forward: Forward, passes: int = 5) -> Trace:
    """Trace the kernels of a pass with torch's profiler, over `passes` passes with rests between them."""
    from torch.profiler import ProfilerActivity, profile

    found: list[list[_Event]] = []
    forward()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(passes):
            forward()
            torch.cuda.synchronize()
            time.sleep(REST_S)
    events = sorted(
        (
            _Event(event.name, event.time_range.start, event.time_range.end)
            for event in profiler.events()
            if event.device_type == torch.autograd.DeviceType.CUDA
        ),
        key=lambda event: event.begin,
    )
    # The profiler does not name the passes: a new one begins after a rest
    for event in events:
        if not found or event.begin - found[-1][-1].end > 1e6 * REST_S / 2:
            found.append([])
        found[-1].append(event)
    return trace_of(found)


def trace_of(passes: list[list[_Event]]) -> Trace:
    """Return the mean launches and times of each kernel, and the mean busy time and span of a pass.

    Parameters
    ----------
    passes : for each pass, its events in the order of their start times
    """
    count = max(len(passes), 1)
    sums: dict[str, list[float]] = {}  # kernel -> launches, us
    busy = span = 0.0
    for events in passes:
        last = events[0].begin
        for event in events:
            own = sums.setdefault(event.name, [0.0, 0.0])
            own[0] += 1.0 / count
            own[1] += (event.end - event.begin) / count
            busy += max(event.end - max(event.begin, last), 0.0) / count
            last = max(last, event.end)
        span += (last - events[0].begin) / count
    kernels = (KernelTime(name, round(launches, 2), us) for name, (launches, us) in sums.items())
    return Trace(tuple(sorted(kernels, key=lambda kernel: -kernel.us)), busy, span, _ends_of(passes))


def _ends_of(passes: list[list[_Event]]) -> tuple[tuple[str, float, float], ...]:
    """Return `Trace.ends`. Times between ends add up to the time of a pass even if launches overlap."""
    ordered = [sorted(events, key=lambda event: event.end) for events in passes]
    names = {tuple(event.name for event in events) for events in ordered}
    if len(names) != 1:
        return ()
    found = []
    for place, name in enumerate(next(iter(names))):
        added = [e[place].end - (e[place - 1].end if place else e[0].begin) for e in ordered]
        lasted = [e[place].end - e[place].begin for e in ordered]
        found.append((name, round(median(added), 2), round(median(lasted), 2)))
    return tuple(found)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the RMS of (`found` - `wanted`), divided by the RMS of `wanted`."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())
