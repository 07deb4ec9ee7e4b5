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
"""Most layers for which the dynamic program is run. Rounding then wastes at most 0.3 % of the budget on
average."""
PRICE_ROUNDS = 40
"""Bisection steps for the price of a kept weight (a Lagrange multiplier)."""
ROUNDING = 1e-13
"""Relative tolerance of the time budget: sums of the same times in different order differ by up to this."""


class Menu(NamedTuple):
    """The options of one layer, as float64 arrays (options,)."""

    seconds: FloatArray
    importance: FloatArray
    """Retained importance, which can be added over layers."""
    kept: FloatArray
    """Number of kept weights."""


class Totals(NamedTuple):
    """Sums of the chosen options over all layers."""

    seconds: float
    importance: float
    kept: float


def totals(menus: Sequence[Menu], choice: ChoiceArray) -> Totals:
    """Return the sums of the chosen options; `choice` (layers,) has the index of an option for each layer."""
    picked = [(m.seconds[c], m.importance[c], m.kept[c]) for m, c in zip(menus, choice, strict=True)]
    seconds, importance, kept = (float(sum(column)) for column in zip(*picked, strict=True))
    return Totals(seconds, importance, kept)


def floor_seconds(menus: Sequence[Menu]) -> float:
    """Return the sum of the fastest options' times over all layers, in seconds."""
    return float(sum(menu.seconds.min() for menu in menus))


def allocate(menus: Sequence[Menu], budget_s: float, most_kept: float = np.inf) -> ChoiceArray:
    """Return the index of the chosen option of each layer, (layers,) int64.

    The choice maximises the retained importance, summed over layers.

    Parameters
    ----------
    menus : options of each layer, at least one per layer
    budget_s : upper limit of the summed time, in seconds
    most_kept : upper limit of the summed number of kept weights

    Raises
    ------
    BadInput : no choice keeps both limits; the message gives the least possible time or number of weights
    """
    floor = floor_seconds(menus)
    if floor > budget_s:
        raise BadInput(
            f"wanted {budget_s * 1e6:.1f} us or less, the fastest options take {floor * 1e6:.1f} us together"
        )
    budget_s *= 1.0 + ROUNDING
    free = _within_time(menus, menus, budget_s)
    if totals(menus, free).kept <= most_kept:
        return free
    return _within_both(menus, budget_s, most_kept)


def _within_both(menus: Sequence[Menu], budget_s: float, most_kept: float) -> ChoiceArray:
    """Return the best choice within both limits.

    A price per kept weight is subtracted from the importance. Bisection finds the lowest price at which the
    choice keeps `most_kept`.
    """
    # The first upper bound exceeds the importance that one more weight can add in any layer
    steps = [np.ptp(m.importance) / max(np.diff(np.unique(m.kept)).min(initial=np.inf), 1.0) for m in menus]
    low, high = 0.0, 1.0 + 2.0 * float(max(steps))
    best = _within_time(_priced(menus, high), menus, budget_s)
    if totals(menus, best).kept > most_kept:
        least = sum(float(menu.kept.min()) for menu in menus)
        raise BadInput(
            f"no choice meets both targets: {most_kept:.0f} weights may stay, {least:.0f} at least do"
        )
    for _ in range(PRICE_ROUNDS):
        price = 0.5 * (low + high)
        choice = _within_time(_priced(menus, price), menus, budget_s)
        if totals(menus, choice).kept <= most_kept:
            best, high = choice, price
        else:
            low = price
    return _polish(menus, best, budget_s, most_kept)


def _priced(menus: Sequence[Menu], price: float) -> list[Menu]:
    return [menu._replace(importance=menu.importance - price * menu.kept) for menu in menus]


def _within_time(priced: Sequence[Menu], menus: Sequence[Menu], budget_s: float) -> ChoiceArray:
    """Return the choice with the highest importance whose summed time is at most `budget_s`.

    `priced` are the options of `menus`, with the same times and with importance reduced by a price.
    """
    found = [_along_hulls(priced, budget_s)]
    if len(menus) <= MOST_GRID_LAYERS:
        found.append(_on_grid(priced, budget_s))
    polished = [_polish(priced, choice, budget_s, np.inf) for choice in found]
    return max(polished, key=lambda choice: totals(priced, choice).importance)


def _along_hulls(menus: Sequence[Menu], budget_s: float) -> ChoiceArray:
    """Return a greedy choice: start from the fastest options, then take steps along the concave hulls.

    Steps are taken in the order of importance gained per second. A layer whose next step does not fit into
    the budget stays at its option.
    """
    hulls = [_hull(menu) for menu in menus]
    choice = np.array([hull[0] for hull in hulls], dtype=np.int64)
    steps: list[tuple[float, int, int]] = []
    for layer, (menu, hull) in enumerate(zip(menus, hulls, strict=True)):
        rates = np.diff(menu.importance[hull]) / np.diff(menu.seconds[hull])
        steps += zip(rates.tolist(), itertools.repeat(layer), hull[1:].tolist(), strict=False)
    spent, closed = totals(menus, choice).seconds, set()
    for _, layer, option in sorted(steps, key=lambda step: (-step[0], step[1])):
        more = float(menus[layer].seconds[option] - menus[layer].seconds[choice[layer]])
        if layer in closed or spent + more > budget_s:
            closed.add(layer)
            continue
        choice[layer] = option
        spent += more
    return choice


def _hull(menu: Menu) -> ChoiceArray:
    """Return indices of the options on the upper concave hull of importance over time, fastest first."""
    from prunecast.codesign.search.loops import keep_hull  # numba is slow to import

    hull = _undominated(menu.seconds, menu.importance)
    return hull[: keep_hull(menu.seconds, menu.importance, hull)]


def _on_grid(menus: Sequence[Menu], budget_s: float) -> ChoiceArray:
    """Return the choice that is optimal if times are rounded up to the grid, by dynamic programming."""
    from prunecast.codesign.search.loops import fill_grid

    spare = budget_s - floor_seconds(menus)
    step = max(spare, 1e-15) / GRID
    value = np.zeros(GRID + 1)
    taken = np.zeros((len(menus), GRID + 1), dtype=np.int32)
    cells = [np.ceil((menu.seconds - menu.seconds.min()) / step).astype(np.int64) for menu in menus]
    for layer, (menu, cell) in enumerate(zip(menus, cells, strict=True)):
        value = fill_grid(_undominated(cell, menu.importance), cell, menu.importance, value, taken[layer])
    return _walk_back(taken, cells)


def _undominated(cost: FloatArray | ChoiceArray, importance: FloatArray) -> ChoiceArray:
    """Return indices of the Pareto-optimal options in importance and cost, cheapest first."""
    order = np.lexsort((-importance, cost))
    ranked = importance[order]
    better = np.append(True, ranked[1:] > np.maximum.accumulate(ranked)[:-1])
    found: ChoiceArray = order[better]
    return found


def _walk_back(taken: npt.NDArray[np.int32], cells: Sequence[ChoiceArray]) -> ChoiceArray:
    place = GRID
    choice = np.zeros(len(cells), dtype=np.int64)
    for layer in reversed(range(len(cells))):
        choice[layer] = taken[layer, place]
        place -= int(cells[layer][choice[layer]])
    return choice


def _polish(menus: Sequence[Menu], choice: ChoiceArray, budget_s: float, most_kept: float) -> ChoiceArray:
    """Improve a choice by local search.

    As long as both limits hold, the option of one layer is replaced by one that retains more importance.
    """
    choice = choice.copy()
    # Terminates: importance only increases, so a layer moves at most once to each option.
    moved = True
    while moved:
        moved = False
        now = totals(menus, choice)
        for layer, menu in enumerate(menus):
            current = choice[layer]
            seconds = now.seconds - menu.seconds[current] + menu.seconds
            kept = now.kept - menu.kept[current] + menu.kept
            gain = np.where((seconds <= budget_s) & (kept <= most_kept), menu.importance, -np.inf)
            option = int(gain.argmax())
            if gain[option] > menu.importance[current]:
                choice[layer], moved = option, True
                now = totals(menus, choice)
    return choice
