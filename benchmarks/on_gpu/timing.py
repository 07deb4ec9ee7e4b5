"""Timing on the GPU: CUDA graphs of at most 4 ms, all contestants in turn, with rests: bursts.

The card never reaches its power limit. L2 is cold, where inputs rotate over more than twice its size, or
warm, where one set stays in it.
"""

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from prunecast.validation.measure.timing import ClockProbe, captured, rough_seconds

GRAPH_SECONDS = 4e-3
MOST_LAUNCHES = 200
REST_SECONDS = 0.03
L2_BYTES = 60e6
MOST_SETS = 64


class Contestant(NamedTuple):
    """Something to be timed: a graph of `launches` products."""

    name: str
    replay: Callable[[], object]
    launches: int
    clock: Any = None
    """Device array of cycles and nanoseconds at start and end of the last launch, or None."""
    holds: Any = None
    """What the graph needs to stay alive: modules, weights, outputs."""


class Sample(NamedTuple):
    """What one contestant gave."""

    name: str
    seconds: list[float]
    """Per product, one entry per turn."""
    clock_mhz: list[float]

    @property
    def median(self) -> float:
        """Seconds."""
        return float(np.median(self.seconds))


def rotations(set_bytes: float) -> int:
    """Input sets to rotate over, so that they exceed twice the L2 together."""
    return min(max(math.ceil(2.2 * L2_BYTES / set_bytes), 2), MOST_SETS)


def sets_for(set_bytes: float, l2: str) -> int:
    """Input sets for a cold or a warm L2."""
    return 1 if l2 == "warm" else rotations(set_bytes)


def contestant(
    name: str, stream: Any, launch: Callable[[int], object], *, sets: int, clock: Any = None
) -> Contestant:
    """Capture `launch(set)` for rotating sets in a graph of at most 4 ms."""
    for i in range(max(sets, 3)):
        launch(i % sets)
    seconds = rough_seconds(stream, launch, sets)
    launches = min(max(int(GRAPH_SECONDS / seconds), 1), MOST_LAUNCHES)
    graph = captured(stream, launch, launches, sets)
    graph.upload(stream) if hasattr(graph, "upload") else None
    return Contestant(name, lambda: graph.launch(stream), launches, clock, launch)


def take_turns(stream: Any, contestants: list[Contestant], turns: int) -> dict[str, Sample]:
    """Time all contestants `turns` times, one after the other, behind a turn that does not count."""
    samples = {c.name: Sample(c.name, [], []) for c in contestants}
    for turn in range(1 + turns):
        for c in contestants:
            seconds = _time_burst(stream, c)
            if turn == 0:
                continue
            samples[c.name].seconds.append(seconds)
            if c.clock is not None:
                samples[c.name].clock_mhz.append(_clock_mhz(c.clock))
    return samples


def _time_burst(stream: Any, c: Contestant) -> float:
    """The stream is held until the host has enqueued all: else the GPU waits for it, and all takes longer."""
    time.sleep(REST_SECONDS)
    _probe().hold(stream)
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    start.record(stream)
    c.replay()
    stop.record(stream)
    stop.synchronize()
    return cp.cuda.get_elapsed_time(start, stop) * 1e-3 / c.launches


@cache
def _probe() -> ClockProbe:
    return ClockProbe()


def _clock_mhz(clock: Any) -> float:
    cycles0, ns0, cycles1, ns1 = (int(x) for x in clock.get())
    return 1e3 * (cycles1 - cycles0) / max(ns1 - ns0, 1)
