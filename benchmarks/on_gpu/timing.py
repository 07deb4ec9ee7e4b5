"""Timing on the GPU: CUDA graphs of at most 4 ms, all contestants in turn, with rests: bursts.

The card never reaches its power limit. L2 is cold where inputs rotate (`validation.measure.rotation`), or
warm where one set stays in it.
"""

from collections.abc import Callable
from typing import Any

from prunecast.validation.measure.timer import Contestant, Sample, Timer
from prunecast.validation.measure.timing import Burst, CupyStream, capture

MOST_LAUNCHES = 200
BURST = Burst(graph_s=4e-3, least=1, most=MOST_LAUNCHES)
REST_SECONDS = 0.03
MOST_SETS = 64
"""Maximum of `rotating_sets` in these benchmarks."""


def contestant(name: str, stream: Any, launch: Callable[[int], object], *, sets: int) -> Contestant:
    """Capture `launch(set)` for rotating sets in a graph of at most 4 ms."""
    return capture(name, stream, launch, sets, burst=BURST, warm_up=max(sets, 3))


def take_turns(stream: Any, contestants: list[Contestant], turns: int) -> dict[str, Sample]:
    """Time all contestants `turns` times, one after the other, after a turn that does not count."""
    timer = Timer(stream=CupyStream(stream), rest_s=lambda _: REST_SECONDS)
    return timer.take_turns(contestants, turns)
