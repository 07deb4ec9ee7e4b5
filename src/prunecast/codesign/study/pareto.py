"""Retained importance against time: the best of a study beside what the plain allocation reaches."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prunecast.codesign.search import FrontPoint

STEP = 0.05
"""Distance between two points, as a share of the dense time."""


class ParetoPoint(NamedTuple):
    """The most that is retained within one time, by closed-form times."""

    time_share: float
    """Most time, as a share of the dense model's."""
    plain_importance: float | None
    """Retained without further patterns; None below what they can reach."""
    retained_importance: float
    trial: int
    """The trial that reaches it."""


def pareto(
    plain: Iterable[FrontPoint], fronts: Mapping[int, Iterable[FrontPoint]], dense_seconds: float
) -> tuple[ParetoPoint, ...]:
    """One point for every step of time that retains more than a shorter one.

    Parameters
    ----------
    plain : front without further patterns
    fronts : trial -> its front
    dense_seconds : of the whole model
    """
    plainly = _by_step(plain, dense_seconds)
    by_trial = {trial: _by_step(front, dense_seconds) for trial, front in fronts.items()}
    steps = sorted({step for found in by_trial.values() for step in found})
    points: list[ParetoPoint] = []
    for step in steps:
        offers = {
            trial: max(v for s, v in found.items() if s <= step)
            for trial, found in by_trial.items()
            if min(found, default=math.inf) <= step
        }
        trial = max(offers, key=lambda t: (offers[t], -t))
        if not points or offers[trial] > points[-1].retained_importance:
            known = [value for s, value in plainly.items() if s <= step]
            points.append(ParetoPoint(round(step * STEP, 2), max(known, default=None), offers[trial], trial))
    return tuple(points)


def _by_step(front: Iterable[FrontPoint], dense_seconds: float) -> dict[int, float]:
    """Number of steps that a time fits into -> most importance."""
    best: dict[int, float] = {}
    for point in front:
        step = math.ceil(point.seconds / dense_seconds / STEP - 1e-9)
        best[step] = max(best.get(step, 0.0), point.retained_importance)
    return best
