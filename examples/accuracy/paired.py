"""Paired comparisons of models on the same items: means, and bootstrap intervals over items and seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

DRAWS = 2000
LEVELS = (0.025, 0.975)

Cube = npt.NDArray[np.float64]
"""(seeds, items)."""


class Interval(NamedTuple):
    """A mean and where 95 % of its draws lie."""

    mean: float
    low: float
    high: float


def interval(differences: Cube, draws: int = DRAWS) -> Interval:
    """The mean of (seeds, items); each draw takes seeds anew, and items anew, the same ones for all seeds."""
    rng = np.random.default_rng(0)
    seeds, items = differences.shape
    by_seed = np.stack([rng.multinomial(seeds, np.full(seeds, 1 / seeds)) for _ in range(draws)]) / seeds
    by_item = rng.multinomial(items, np.full(items, 1 / items), size=draws) / items
    means = np.einsum("ds,si,di->d", by_seed, differences, by_item, optimize=True)
    low, high = np.quantile(means, LEVELS)
    return Interval(float(differences.mean()), float(low), float(high))
