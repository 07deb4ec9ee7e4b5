"""Times of passes in torch, eager or in CUDA graphs."""

import statistics
import time
from collections.abc import Callable

import torch

Forward = Callable[[], torch.Tensor]
REST_S = 0.005
BUSY_CYCLES = 400_000
"""What the GPU does first where a graph is timed, about 200 us: launching a graph takes the host as long."""


def captured(forward: Forward) -> Forward:
    """The same as a CUDA graph, after three passes on a stream of its own.

    The graph reads the tensors that `forward` holds at every replay, so the replay holds `forward`.
    """
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

    replay.is_graph = True
    return replay


def times_us(variants: dict[str, Forward], rounds: int) -> dict[str, float]:
    """Medians of single passes, all variants in turn, with rests.

    Graphs are enqueued behind a kernel that lasts until they are, as in a loop of replays; eager passes are
    not: their launches are part of their time.
    """
    for forward in variants.values():
        for _ in range(3):
            forward()
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, forward in variants.items():
            taken[name].append(_one_us(forward))
    return {name: statistics.median(each) for name, each in taken.items()}


def _one_us(forward: Forward) -> float:
    torch.cuda.synchronize()
    time.sleep(REST_S)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    if getattr(forward, "is_graph", False):
        torch.cuda._sleep(BUSY_CYCLES)
    first.record()
    forward()
    last.record()
    last.synchronize()
    return 1e3 * float(first.elapsed_time(last))


def kernels_us(forward: Forward, passes: int = 5) -> dict[str, float]:
    """Name of a kernel -> what all its launches of one pass take, the longest first."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        for _ in range(passes):
            forward()
        torch.cuda.synchronize()
    found: dict[str, float] = {}
    for event in traced.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name] = found.get(event.name, 0.0) + event.device_time / passes
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """RMS of the difference over RMS."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())
