"""Tiles steered by a cost: the most importance that fits a budget, whatever the cost function.

This is the hook by which predicted time steers adaptive tile pruning (`adaptive_tile`). The papers say that
a pattern is chosen for the problem at hand, not how; the search is our own. The cost sees kept counts only
and may be anything that does not fall when a tile keeps more: the sum of all work, its heaviest tile, or a
simulation of the launch.

1. For intervals around the mean from strict balance to none, the densest counts within the budget are found
   by bisection (`tile_quanta`: inside an interval, the best steps first). The best of these starts the rest.
2. Steps that still fit are added, the most important first. Where the heaviest tile decides, most are free.
3. A step is moved from one tile to another where that retains more and still fits; then back to 2.

Where all steps cost the same, and where only the heaviest tile counts, the outcome is the best there is, up
to the quantum. Otherwise no single addition or move improves it.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray
from prunecast.patterns.importance import checked_importance
from prunecast.patterns.segments import piece_sizes, piece_starts, row_sums
from prunecast.patterns.tile_map import IntArray, MaskArray
from prunecast.patterns.tile_quanta import best_columns

__all__ = ["TileCost", "prune_to_cost", "steps_within"]

TileCost = Callable[[IntArray], float]
"""From kept columns per tile, (tiles,) int32, to a cost in any unit."""

SPREADS = (0.0, 0.03, 0.1, 0.25, 0.5, 1.0, 1e9)
"""How far steps may lie from the mean, as shares of it; the last binds nobody."""

MOST_COSTS = 2000
"""Calls of the cost function after which steps are no longer moved."""

GainArray = npt.NDArray[np.float64]


def prune_to_cost(
    importance: npt.ArrayLike,
    cost: TileCost,
    budget: float,
    *,
    height: int,
    quantum: int = 16,
    most_costs: int = MOST_COSTS,
) -> MaskArray:
    """Mask (M, K) of tiles that retains the most importance for a cost of at most `budget`.

    Parameters
    ----------
    importance : (M, K), not negative
    cost : see `TileCost`; called with counts for tiles of `height` consecutive rows
    budget : in the unit of the cost
    height : rows of a tile, the last one possibly fewer
    quantum : step of the counts; a last step may be shorter, up to K
    most_costs : calls of `cost` after which no more steps are added or moved

    Raises
    ------
    BadInput : importance that cannot rank, sizes below 1, or a budget that even empty tiles exceed

    """
    scores = checked_importance("importance", importance)
    if min(height, quantum) < 1:
        raise BadInput(f"tiles: wanted height and quantum from 1, got {height} and {quantum}")
    m, k = scores.shape
    sums = row_sums(scores, piece_starts(m, height), power=1)
    edges = np.append(np.arange(0, k, quantum), k)
    ranked = -np.sort(-sums, axis=1)
    gains = np.add.reduceat(ranked, edges[:-1], axis=1)
    steps = steps_within(gains, lambda steps: cost(edges[steps].astype(np.int32)), budget, most_costs)
    return np.repeat(best_columns(sums, edges[steps]), piece_sizes(m, height), axis=0)


def steps_within(
    gains: GainArray, cost: Callable[[CountArray], float], budget: float, most_costs: int = MOST_COSTS
) -> CountArray:
    """(tiles,) int64: steps that each tile keeps.

    Parameters
    ----------
    gains : (tiles, steps) importance of each further step
    cost : from steps per tile to a cost; must not fall where a tile keeps more
    budget, most_costs : see `prune_to_cost`

    """
    empty = np.zeros(gains.shape[0], dtype=np.int64)
    least = cost(empty)
    if not least <= budget:
        raise BadInput(f"budget: wanted at least the {least:.4g} that empty tiles cost, got {budget:.4g}")
    started = [_densest(gains, spread, cost, budget) for spread in SPREADS]
    best = max(started, key=lambda steps: _retained(gains, steps))
    search = _Search(gains, cost, budget, most_costs)
    return search.improved(best)


def _densest(
    gains: GainArray, spread: float, cost: Callable[[CountArray], float], budget: float
) -> CountArray:
    """Bisection over the number of steps of all tiles together."""
    fits, beyond = 0, gains.size + 1
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        if cost(_spread_out(gains, middle, spread)) <= budget:
            fits = middle
        else:
            beyond = middle
    return _spread_out(gains, fits, spread)


def _spread_out(gains: GainArray, total: int, spread: float) -> CountArray:
    """The best `total` steps, with no tile further from the mean than `spread` of it, or one step."""
    tiles, most = gains.shape
    mean = total / tiles
    low = int(min(np.ceil(mean * max(1.0 - spread, 0.0)), total // tiles))
    high = int(min(max(mean * (1.0 + spread), -(-total // tiles)), most))
    inside = gains[:, low:high]
    chosen = np.zeros(inside.size, dtype=np.bool_)
    chosen[np.argsort(-inside, axis=None, kind="stable")[: total - tiles * low]] = True
    steps: CountArray = low + chosen.reshape(inside.shape).sum(axis=1)
    return steps


def _retained(gains: GainArray, steps: CountArray) -> float:
    return float(np.sum(gains, where=np.arange(gains.shape[1]) < steps[:, None]))


class _Search:
    """Adds and moves single steps while that retains more and fits."""

    def __init__(
        self, gains: GainArray, cost: Callable[[CountArray], float], budget: float, most_costs: int
    ) -> None:
        nothing = np.zeros((gains.shape[0], 1))
        self._next = np.hstack([gains, nothing])
        self._last = np.hstack([np.full(nothing.shape, np.inf), gains])
        self._most = gains.shape[1]
        self._cost, self._budget, self._calls_left = cost, budget, most_costs

    def improved(self, steps: CountArray) -> CountArray:
        while self._add(steps) or self._move(steps):
            pass
        return steps

    def _fits(self, steps: CountArray) -> bool:
        self._calls_left -= 1
        return self._cost(steps) <= self._budget

    def _add(self, steps: CountArray) -> bool:
        """Add the best steps that fit, in place; a tile that has once been too much is not tried again."""
        added = False
        tiles = set(np.flatnonzero(steps < self._most).tolist())
        while tiles and self._calls_left > 0:
            tile = max(tiles, key=lambda t: (self._next[t, steps[t]], -t))
            steps[tile] += 1
            if self._fits(steps):
                added = True
            else:
                steps[tile] -= 1
                tiles.remove(tile)
            if steps[tile] == self._most:
                tiles.discard(tile)
        return added

    def _move(self, steps: CountArray) -> bool:
        """Move the first step that gains and fits, in place."""
        places = np.arange(steps.size)
        gained, lost = self._next[places, steps], self._last[places, steps]
        for to in np.argsort(-gained, kind="stable"):
            for source in np.argsort(lost, kind="stable"):
                if gained[to] <= lost[source] or self._calls_left <= 0:
                    break
                if to == source or steps[to] == self._most:
                    continue
                steps[to] += 1
                steps[source] -= 1
                if self._fits(steps):
                    return True
                steps[to] -= 1
                steps[source] += 1
        return False
