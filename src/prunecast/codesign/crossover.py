"""Crossover: the least sparsity at which a sparse kernel is as fast as the dense one on a layer's weights."""

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
"""Highest sparsity that is tried."""
STEPS = 100
"""The tried sparsities are multiples of 1 / STEPS."""
TRIED_EARLY = 90
"""Step that is tried before the lowest and the highest sparsity. If the kernel is too slow here, the lowest
sparsity need not be tried: a nearly dense matrix is the slowest to prune and plan."""
NEAR_LIKELY = (0, -1, 4, -5, 24, -25)
"""Steps that are tried first, as offsets from the likely crossover. If it is right, the first two suffice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """The sparsity from which one kernel is faster than dense on one layer, by the closed-form model.

    Parameters
    ----------
    layer, kernel, pattern : name of the layer, kernel that runs it, pattern to which it is pruned
    sparsity : least sparsity (a multiple of 0.01) at which the kernel is no slower than dense; None if it is
        slower even at the highest sparsity of the pattern, which is at most 0.99
    """

    layer: str
    kernel: str
    pattern: str
    sparsity: float | None

    @property
    def density(self) -> float | None:
        """Highest density at which the kernel is no slower than dense, 1 - `sparsity`.

        It is None if the kernel is slower at every density.
        """
        return None if self.sparsity is None else 1.0 - self.sparsity

    def row(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {**asdict(self), "density": self.density}


def layer_crossovers(
    launches: LayerLaunches, layer: WorkloadLayer, candidates: Sequence[Candidate]
) -> list[Crossover]:
    """Return the crossovers of a layer for all candidates with variable sparsity, by the closed-form model.

    Candidates whose kernel cannot run the layer are left out. Patterns guided by predicted times are left out
    too, because they would need a search at every sparsity.
    """
    alone = MapMaker({layer.name: layer}, "layer", remember=True)
    dense_seconds = seconds_of(
        launches.sequences(layer, (launches.dense_plan(layer),)), launches.engine.estimated_seconds
    )
    found = []
    for candidate in candidates:
        pattern = launches.maker.fit(layer.name, candidate.pattern, natural=candidate.natural).pattern
        if sparsity_for(pattern, None, natural=candidate.natural) is None or pattern.needs_times:
            continue
        with contextlib.suppress(BadInput):
            (lowest, highest), name = sparsity_range(pattern), pattern.canonical
            alike = (candidate.kernel, name, layer.shape, dense_seconds)
            sparsity = crossing(
                launches.seconds_at(alone, layer, candidate),
                dense_seconds,
                lowest=lowest,
                highest=highest,
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
    """Return the least sparsity (a multiple of 1 / `STEPS`) at which a sparse kernel is as fast as dense.

    The search is a bisection, which assumes that the time falls with sparsity.

    Parameters
    ----------
    seconds_at : returns the seconds of the sparse kernel at a sparsity; infinite if the pattern would remove
        the whole matrix
    dense_seconds : time of the dense kernel
    lowest, highest : range of sparsities of the pattern
    likely : estimate of the result, such as the crossover of another layer of the same shape

    Returns
    -------
    `lowest` if the sparse kernel is no slower than dense at that sparsity. None if the sparse kernel is
    slower at every sparsity that leaves weights. Otherwise a sparsity at which it is no slower, although it
    is slower at one step less
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
