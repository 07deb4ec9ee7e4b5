"""Time GPU work by two events around it, on a stream that is blocked until all work is enqueued.

An `EventStream` adapts each framework (CuPy, torch). This module itself needs no GPU.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np


class EventStream(Protocol):
    """Stream of a GPU that records events with times."""

    def hold(self) -> None:
        """Keep the GPU busy until the host has enqueued the work that follows."""

    def mark(self) -> Any:
        """Enqueue an event and return it."""

    def seconds(self, start: Any, stop: Any) -> float:
        """Wait until the stream is idle and return the seconds between two events."""


class ClockReader(Protocol):
    """Reader of the SM clock on a stream. It replaces NVML, whose clock does not follow bursts."""

    def read(self, place: int) -> None:
        """Enqueue a reading of the clocks: number 0 before the timed work, number 1 after it."""

    def mhz(self) -> float:
        """Return the median over all SMs of the mean clock in MHz between the readings 0 and 1."""


class Contestant(NamedTuple):
    """Work to be timed: a function `replay` that enqueues `launches` launches."""

    name: str
    replay: Callable[[], object]
    launches: int = 1
    held: bool = True
    """True if the stream is blocked while the host enqueues, so that the measured time contains no host time.
    """
    holds: Any = None
    """Objects that `replay` uses and that must stay alive."""


class Sample(NamedTuple):
    """Times and SM clocks of one contestant, with one entry for each time that it was timed."""

    seconds: list[float]
    """Seconds per launch."""
    clock_mhz: list[float]
    """SM clock in MHz during each turn; empty if the timer has no clock reader."""

    @property
    def median(self) -> float:
        """Median seconds per launch."""
        return float(np.median(self.seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """Timer of work on one stream.

    Parameters
    ----------
    stream : stream with events
    clock : reader of the SM clock; None if clocks are not read
    rest_s : function that returns the seconds of rest after work, given the seconds of the work
    sleep : function that waits for a number of seconds
    """

    stream: EventStream
    clock: ClockReader | None = None
    rest_s: Callable[[float], float] = lambda worked_s: 0.0
    sleep: Callable[[float], None] = time.sleep

    def seconds(self, enqueue: Callable[[], object], *, held: bool = True) -> float:
        """Call `enqueue` once and return the seconds that the GPU needs for the enqueued work."""
        if held:
            self.stream.hold()
        if self.clock:
            self.clock.read(0)
        start = self.stream.mark()
        enqueue()
        stop = self.stream.mark()
        if self.clock:
            self.clock.read(1)
        return self.stream.seconds(start, stop)

    def median(self, enqueue: Callable[[], object], repeats: int, *, held: bool = True) -> float:
        """Return the median seconds of `repeats` calls of `enqueue`, after a first call that is not timed."""
        enqueue()
        return float(np.median([self.seconds(enqueue, held=held) for _ in range(repeats)]))

    def add(self, c: Contestant, sample: Sample, replays: int = 1) -> float:
        """Time `replays` replays of a contestant, and append the seconds per launch to `sample`.

        Return the seconds of all replays together.
        """

        def enqueue() -> None:
            for _ in range(replays):
                c.replay()

        seconds = self.seconds(enqueue, held=c.held)
        sample.seconds.append(seconds / (c.launches * replays))
        if self.clock:
            sample.clock_mhz.append(self.clock.mhz())
        return seconds

    def take_turns(
        self, contestants: Sequence[Contestant], turns: int, *, warm_up: int = 1
    ) -> dict[str, Sample]:
        """Time all contestants alternately, and return a dict from name to samples.

        Each contestant is replayed `warm_up` times without being counted, then `turns` times.
        """
        samples = {c.name: Sample([], []) for c in contestants}
        worked_s = 0.0
        for turn in range(warm_up + turns):
            for c in contestants:
                self.sleep(self.rest_s(worked_s))
                worked_s = self.add(c, Sample([], []) if turn < warm_up else samples[c.name])
        return samples
