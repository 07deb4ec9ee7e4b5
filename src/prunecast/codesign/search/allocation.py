"""Selection of one option per layer that maximises the retained importance within a time limit.

The number of kept weights can be limited too. The problem is a multiple-choice knapsack. With many layers,
the greedy algorithm along the concave hulls is nearly exact, because the step of one layer is small compared
with the whole. With few layers, a dynamic program over a grid of times is run in addition. Local search
improves the result of each algorithm, and the better one is returned. All results keep the limits.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput

FloatArray = npt.NDArray[np.float64]
ChoiceArray = npt.NDArray[np.int64]

GRID = 8192
"""Number of time steps of the dynamic program. Rounding times up wastes half a step per layer on average."""
MOST_GRID_LAYERS = 48
"""Largest number of layers for which the dynamic program is run. Rounding then wastes at most 0.3 % of the
budget on average."""
PRICE_ROUNDS = 40
"""Bisection steps for the price of a kept weight (a Lagrange multiplier)."""
ROUNDING = 1e-13
"""Relative tolerance of the time budget: sums of the same times in different order differ by up to this."""


class OptionValues(NamedTuple):
    """The options of one layer, as float64 arrays (options,)."""

    seconds: FloatArray
    importance: FloatArray
    """Retained importance, which can be added over layers."""
    kept: FloatArray
    """Number of kept weights."""


Layers = Sequence[OptionValues]
"""The options of each layer."""


class Totals(NamedTuple):
    """Sums of the chosen options over all layers."""

    seconds: float
    importance: float
    kept: float


def totals(layers: Layers, choice: ChoiceArray) -> Totals:
    """Return the sums of the chosen options; `choice` (layers,) has the index of an option for each layer."""
    picked = [(m.seconds[c], m.importance[c], m.kept[c]) for m, c in zip(layers, choice, strict=True)]
    seconds, importance, kept = (float(sum(column)) for column in zip(*picked, strict=True))
    return Totals(seconds, importance, kept)


def floor_seconds(layers: Layers) -> float:
    """Return the sum of the fastest options' times over all layers, in seconds."""
    return float(sum(options.seconds.min() for options in layers))


def allocate(layers: Layers, budget_s: float, most_kept: float = np.inf) -> ChoiceArray:
    """Return the index of the chosen option of each layer, (layers,) int64.

    The choice maximises the retained importance, summed over layers.

    Parameters
    ----------
    layers : options of each layer, at least one per layer
    budget_s : upper limit of the summed time, in seconds
    most_kept : upper limit of the summed number of kept weights

    Raises
    ------
    BadInput : no choice keeps both limits; the message gives the least possible time or number of weights
    """
    floor = floor_seconds(layers)
    if floor > budget_s:
        raise BadInput(
            f"wanted {budget_s * 1e6:.1f} us or less, the fastest options take {floor * 1e6:.1f} us together"
        )
    budget_s *= 1.0 + ROUNDING
    free = _within_time(layers, layers, budget_s)
    if totals(layers, free).kept <= most_kept:
        return free
    return _within_both(layers, budget_s, most_kept)


def _within_both(layers: Layers, budget_s: float, most_kept: float) -> ChoiceArray:
    """Return the best choice within both limits.

    A price per kept weight is subtracted from the importance. Bisection finds the lowest price at which the
    choice keeps at most `most_kept` weights.
    """
    # The first upper bound exceeds the importance that one more weight can add in any layer
    steps = [np.ptp(m.importance) / max(np.diff(np.unique(m.kept)).min(initial=np.inf), 1.0) for m in layers]
    low, high = 0.0, 1.0 + 2.0 * float(max(steps))
    best = _within_time(_priced(layers, high), layers, budget_s)
    if totals(layers, best).kept > most_kept:
        least = sum(float(options.kept.min()) for options in layers)
        raise BadInput(
            f"no choice meets both targets: {most_kept:.0f} weights may stay, {least:.0f} at least do"
        )
    for _ in range(PRICE_ROUNDS):
        price = 0.5 * (low + high)
        choice = _within_time(_priced(layers, price), layers, budget_s)
        if totals(layers, choice).kept <= most_kept:
            best, high = choice, price
        else:
            low = price
    return _polish(layers, best, budget_s, most_kept)


def _priced(layers: Layers, price: float) -> list[OptionValues]:
    return [options._replace(importance=options.importance - price * options.kept) for options in layers]


def _within_time(priced: Layers, layers: Layers, budget_s: float) -> ChoiceArray:
    """Return the choice with the highest importance whose summed time is at most `budget_s`.

    `priced` are the options of `layers`, with the same times and with importance reduced by a price.
    """
    found = [_along_hulls(priced, budget_s)]
    if len(layers) <= MOST_GRID_LAYERS:
        found.append(_on_grid(priced, budget_s))
    polished = [_polish(priced, choice, budget_s, np.inf) for choice in found]
    return max(polished, key=lambda choice: totals(priced, choice).importance)


def _along_hulls(layers: Layers, budget_s: float) -> ChoiceArray:
    """Return a greedy choice: start from the fastest options, then take steps along the concave hulls.

    Steps are taken in the order of importance gained per second. A layer whose next step does not fit into
    the budget stays at its option.
    """
    hulls = [_hull(options) for options in layers]
    choice = np.array([hull[0] for hull in hulls], dtype=np.int64)
    steps: list[tuple[float, int, int]] = []
    for layer, (options, hull) in enumerate(zip(layers, hulls, strict=True)):
        rates = np.diff(options.importance[hull]) / np.diff(options.seconds[hull])
        steps += zip(rates.tolist(), itertools.repeat(layer), hull[1:].tolist(), strict=False)
    spent, closed = totals(layers, choice).seconds, set()
    for _, layer, option in sorted(steps, key=lambda step: (-step[0], step[1])):
        more = float(layers[layer].seconds[option] - layers[layer].seconds[choice[layer]])
        if layer in closed or spent + more > budget_s:
            closed.add(layer)
            continue
        choice[layer] = option
        spent += more
    return choice


def _hull(options: OptionValues) -> ChoiceArray:
    """Return indices of the options on the upper concave hull of importance over time, fastest first."""
    from prunecast.codesign.search.loops import keep_hull  # numba is slow to import

    hull = pareto_optimal(options.seconds, options.importance)
    return hull[: keep_hull(options.seconds, options.importance, hull)]


def _on_grid(layers: Layers, budget_s: float) -> ChoiceArray:
    """Return the optimal choice for times that are rounded up to a grid, found by dynamic programming."""
    from prunecast.codesign.search.loops import fill_grid

    spare = budget_s - floor_seconds(layers)
    step = max(spare, 1e-15) / GRID
    value = np.zeros(GRID + 1)
    taken = np.zeros((len(layers), GRID + 1), dtype=np.int32)
    cells = [np.ceil((options.seconds - options.seconds.min()) / step).astype(np.int64) for options in layers]
    for layer, (options, cell) in enumerate(zip(layers, cells, strict=True)):
        value = fill_grid(
            pareto_optimal(cell, options.importance), cell, options.importance, value, taken[layer]
        )
    # Follow the best path back, from the last layer to the first
    choice, place = np.zeros(len(cells), dtype=np.int64), GRID
    for layer in reversed(range(len(cells))):
        choice[layer] = taken[layer, place]
        place -= int(cells[layer][choice[layer]])
    return choice


def pareto_optimal(cost: FloatArray | ChoiceArray, importance: FloatArray) -> ChoiceArray:
    """Return indices of the Pareto-optimal options in importance and cost, cheapest first."""
    order = np.lexsort((-importance, cost))
    ranked = importance[order]
    better = np.append(True, ranked[1:] > np.maximum.accumulate(ranked)[:-1])
    found: ChoiceArray = order[better]
    return found


def _polish(layers: Layers, choice: ChoiceArray, budget_s: float, most_kept: float) -> ChoiceArray:
    """Improve a choice by local search.

    As long as both limits hold, the option of one layer is replaced by one that retains more importance.
    """
    choice = choice.copy()
    # Terminates: importance only increases, so a layer moves at most once to each option.
    moved = True
    while moved:
        moved = False
        now = totals(layers, choice)
        for layer, options in enumerate(layers):
            current = choice[layer]
            seconds = now.seconds - options.seconds[current] + options.seconds
            kept = now.kept - options.kept[current] + options.kept
            gain = np.where((seconds <= budget_s) & (kept <= most_kept), options.importance, -np.inf)
            option = int(gain.argmax())
            if gain[option] > options.importance[current]:
                choice[layer], moved = option, True
                now = totals(layers, choice)
    return choice
