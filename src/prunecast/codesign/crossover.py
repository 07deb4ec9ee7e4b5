"""From which sparsity on a sparse kernel beats the dense one, on the layer's own weights."""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from prunecast.codesign.contestants import Contestant
from prunecast.codesign.layer_launches import LayerLaunches, seconds_of
from prunecast.codesign.pruned_maps import MapMaker, sparsity_for, sparsity_range
from prunecast.errors import BadInput
from prunecast.patterns.sources import Layer

HIGHEST = 0.99
"""Sparsities above this are not looked at."""
RESOLUTION = 0.01
"""Width of the range of sparsity that the search ends with."""
TRIED_EARLY = 0.1
"""Density that is looked at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Where one kernel overtakes dense on one layer, by the closed-form model.

    Parameters
    ----------
    layer, kernel, pattern : what was pruned and run
    sparsity : the kernel is no slower than dense from here on, to 1 %; None if not even at the highest
        sparsity that the pattern has, 0.99 at most
    """

    layer: str
    kernel: str
    pattern: str
    sparsity: float | None

    @property
    def density(self) -> float | None:
        """1 - sparsity."""
        return None if self.sparsity is None else 1.0 - self.sparsity

    def row(self) -> dict[str, Any]:
        """The fields as JSON holds them."""
        return {**asdict(self), "density": self.density}


def layer_crossovers(
    launches: LayerLaunches, layer: Layer, contestants: Sequence[Contestant]
) -> list[Crossover]:
    """Where each kernel with a choice of sparsity overtakes dense, by the closed-form model.

    A kernel that cannot run the layer has no crossover, nor has a pattern that is guided by time: each of
    its points is a search.
    """
    engine = replace(launches.engine, name="model")
    alone = MapMaker({layer.name: layer}, "layer", remember=True)
    dense_seconds = seconds_of(launches.ways(layer, (launches.dense_plan(layer),)), engine)
    found = []
    for contestant in contestants:
        pattern = launches.maker.fit(layer.name, contestant.pattern, natural=launches.natural).pattern
        if sparsity_for(pattern, None, natural=launches.natural) is None or pattern.needs_times:
            continue
        with contextlib.suppress(BadInput):
            allowed = sparsity_range(pattern)
            sparsity = crossing(
                launches.seconds_at(alone, contestant, engine),
                dense_seconds,
                lowest=allowed.low,
                highest=allowed.high,
            )
            name = pattern.canonical
            found.append(
                Crossover(layer=layer.name, kernel=contestant.kernel, pattern=name, sparsity=sparsity)
            )
    return found


def crossing(
    seconds_at: Callable[[float], float],
    dense_seconds: float,
    *,
    lowest: float = 0.0,
    highest: float = HIGHEST,
) -> float | None:
    """Sparsity at which a time that falls with sparsity reaches that of the dense kernel.

    Parameters
    ----------
    seconds_at : time of the sparse kernel at a sparsity, `lowest` to `highest`
    dense_seconds : time to reach
    lowest, highest : sparsities that the pattern can have

    Returns
    -------
    `lowest` if the sparse kernel is as fast there; None if it is slower at `highest`; else the upper end of a
    range of at most `RESOLUTION` that holds the crossing, so that the kernel is fast enough there
    """
    # A nearly dense matrix costs the most to prune and plan, so the range is cut first
    early = min(max(1.0 - TRIED_EARLY, lowest), highest)
    middle = _Point(early, seconds_at(early))
    if middle.seconds <= dense_seconds:
        faster, slower = middle, _Point(lowest, seconds_at(lowest))
        if slower.seconds <= dense_seconds:
            return lowest
    else:
        faster, slower = _Point(highest, seconds_at(highest)), middle
        if faster.seconds > dense_seconds:
            return None
    # Times are nearly linear in density: aim just beyond and just before the interpolated crossing, so that
    # both ends close in on it. Every third step halves the range, whatever the times are.
    for aside in itertools.cycle((0.4 * RESOLUTION, -0.4 * RESOLUTION, None)):
        if faster.sparsity - slower.sparsity <= RESOLUTION:
            break
        sparsity = _between(slower, faster, dense_seconds, aside)
        point = _Point(sparsity, seconds_at(sparsity))
        if point.seconds > dense_seconds:
            slower = point
        else:
            faster = point
    return faster.sparsity


class _Point(NamedTuple):
    sparsity: float
    seconds: float


def _between(slower: _Point, faster: _Point, dense_seconds: float, aside: float | None) -> float:
    """The middle, or the interpolated crossing moved `aside`, if that lies inside the range."""
    width = faster.sparsity - slower.sparsity
    if aside is not None:
        share = (slower.seconds - dense_seconds) / (slower.seconds - faster.seconds)
        aimed = slower.sparsity + width * share + aside
        if slower.sparsity < aimed < faster.sparsity:
            return aimed
    return slower.sparsity + width / 2
