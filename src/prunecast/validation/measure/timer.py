"""The one timer of GPU work: two events around what is enqueued, on a stream that is held until all of it is.

Whatever enqueues work (CuPy, torch) offers an `EventStream`. Needs no GPU itself.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np


class EventStream(Protocol):
    """A stream of a GPU with events that have times."""

    def hold(self) -> None:
        """Keep the GPU busy until the host has enqueued what follows."""

    def mark(self) -> Any:
        """Enqueue an event and return it."""

    def seconds(self, start: Any, stop: Any) -> float:
        """Wait until the stream is idle and return the seconds between two events."""


class ClockReader(Protocol):
    """Readings of the SM clock on a stream; NVML's clock does not follow bursts."""

    def read(self, place: int) -> None:
        """Enqueue reading 0 (before the work) or 1 (after it)."""

    def mhz(self) -> float:
        """Return the median clock of all SMs between the readings."""


class Contestant(NamedTuple):
    """Something to be timed: a call that enqueues `launches` launches."""

    name: str
    replay: Callable[[], object]
    launches: int = 1
    held: bool = True
    """Whether the stream is held while the host enqueues. Without it the host's time counts too."""
    holds: Any = None
    """Objects that the replay needs to stay alive."""


class Sample(NamedTuple):
    """Timings of one contestant, one entry per turn."""

    seconds: list[float]
    """Seconds per launch."""
    clock_mhz: list[float]
    """Empty without a clock reader."""

    @property
    def median(self) -> float:
        """Median seconds per launch."""
        return float(np.median(self.seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """Times work on one stream.

    Parameters
    ----------
    rest_s : seconds of work done before -> seconds of rest before the next contestant
    """

    stream: EventStream
    clock: ClockReader | None = None
    rest_s: Callable[[float], float] = lambda worked_s: 0.0
    sleep: Callable[[float], None] = time.sleep

    def seconds(self, enqueue: Callable[[], object], *, held: bool = True) -> float:
        """Seconds that the GPU needs for what `enqueue` enqueues, once."""
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
        """Median seconds over repeats, after a first call that does not count."""
        enqueue()
        return float(np.median([self.seconds(enqueue, held=held) for _ in range(repeats)]))

    def add(self, c: Contestant, sample: Sample, replays: int = 1) -> float:
        """Time replays of a contestant, append the time per launch to its sample, and return the seconds."""

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
        """Time all contestants `turns` times, one after the other; `warm_up` turns before do not count."""
        samples = {c.name: Sample([], []) for c in contestants}
        worked_s = 0.0
        for turn in range(warm_up + turns):
            for c in contestants:
                self.sleep(self.rest_s(worked_s))
                worked_s = self.add(c, Sample([], []) if turn < warm_up else samples[c.name])
        return samples
