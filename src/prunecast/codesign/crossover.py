"""The least sparsity at which a sparse kernel beats the dense one, on the layer's own weights."""

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prunecast.errors import BadInput
from prunecast.workload.candidates import Candidate
from prunecast.workload.layer_launches import LayerLaunches, seconds_of
from prunecast.workload.pruned_maps import MapMaker, sparsity_for, sparsity_range
from prunecast.workload.workload import WorkloadLayer

HIGHEST = 0.99
"""Sparsities above this are not looked at."""
STEPS = 100
"""Sparsities that are looked at are multiples of 1 / STEPS."""
TRIED_EARLY = 90
"""Step that is looked at before the ends: a nearly dense matrix costs the most to prune and plan."""
NEAR_LIKELY = (0, -1, 4, -5, 24, -25)
"""Steps beyond a likely crossing that are looked at first: two are enough where it is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """The density at which one kernel overtakes dense on one layer, by the closed-form model.

    Parameters
    ----------
    layer, kernel, pattern : what was pruned and run
    sparsity : the kernel is no slower than dense from here on, in whole percent; None if not even at the
        highest sparsity that the pattern has, 0.99 at most
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
    launches: LayerLaunches, layer: WorkloadLayer, candidates: Sequence[Candidate]
) -> list[Crossover]:
    """Crossovers of all kernels with a choice of sparsity, by the closed-form model.

    A kernel that cannot run the layer has no crossover, nor has a pattern that is guided by time: each of
    its points is a search.
    """
    alone = MapMaker({layer.name: layer}, "layer", remember=True)
    dense_seconds = seconds_of(launches.sequences(layer, (launches.dense_plan(layer),)), launches.engine)
    found = []
    for candidate in candidates:
        pattern = launches.maker.fit(layer.name, candidate.pattern, natural=launches.natural).pattern
        if sparsity_for(pattern, None, natural=launches.natural) is None or pattern.needs_times:
            continue
        with contextlib.suppress(BadInput):
            allowed, name = sparsity_range(pattern), pattern.canonical
            alike = (candidate.kernel, name, layer.shape, dense_seconds)
            sparsity = crossing(
                launches.seconds_at(alone, layer, candidate),
                dense_seconds,
                lowest=allowed.low,
                highest=allowed.high,
                likely=launches.likely_crossings.get(alike),
            )
            if sparsity is not None:
                launches.likely_crossings[alike] = sparsity
            found.append(
                Crossover(layer=layer.name, kernel=candidate.kernel, pattern=name, sparsity=sparsity)
            )
    return found


def crossing(
    seconds_at: Callable[[float], float],
    dense_seconds: float,
    *,
    lowest: float = 0.0,
    highest: float = HIGHEST,
    likely: float | None = None,
) -> float | None:
    """Least sparsity, of multiples of 1 / `STEPS`, at which a time that falls with sparsity reaches dense.

    Parameters
    ----------
    seconds_at : time of the sparse kernel at a sparsity, `lowest` to `highest`; infinite where the pattern
        would remove the whole matrix
    dense_seconds : time of the dense kernel
    lowest, highest : sparsities that the pattern can have
    likely : where the crossing may lie, as that of a layer of the same shape

    Returns
    -------
    `lowest` if the sparse kernel is as fast there; None if it is slower wherever weights are left; else a
    sparsity at which it is fast enough and a step below which it is not
    """
    first, last = round(lowest * STEPS), round(highest * STEPS)
    looks = [] if likely is None else [round(likely * STEPS) + aside for aside in NEAR_LIKELY]
    slower, faster, left = first - 1, last + 1, last + 1
    for step in itertools.chain(looks, (TRIED_EARLY, first, last), itertools.repeat(None)):
        if faster - slower <= 1:
            break
        here = (slower + faster) // 2 if step is None else step
        if not slower < here < faster:
            continue
        seconds = seconds_at(here / STEPS)
        if math.isinf(seconds):
            left = faster = here
        elif seconds <= dense_seconds:
            faster = here
        else:
            slower = here
    return None if faster >= left else faster / STEPS
