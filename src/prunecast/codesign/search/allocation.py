"""Selection of one option per layer: the highest retained importance within a time and, optionally, a weight
count.

This is a multiple-choice knapsack. With many layers, the greedy algorithm along the concave hulls is nearly
exact, because the step of one layer is small compared with the whole. With few layers it is not, and a
dynamic program over a grid of times is run too. Both keep the budget, and the better result is improved
further by local search.
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
"""Time steps of the dynamic program; rounding up loses half a step per layer."""
MOST_GRID_LAYERS = 48
"""Layers up to which the dynamic program is run. Rounding then loses at most 0.3 % of the time."""
PRICE_ROUNDS = 40
"""Bisection steps for the price of a kept weight (a Lagrange multiplier)."""
ROUNDING = 1e-13
"""Relative difference of sums of times in different orders of addition."""


class Menu(NamedTuple):
    """The options of one layer, as arrays (options,)."""

    seconds: FloatArray
    importance: FloatArray
    """Retained importance, on one scale for all layers."""
    kept: FloatArray
    """Number of kept weights."""


class Totals(NamedTuple):
    """Sums of a choice over all layers."""

    seconds: float
    importance: float
    kept: float


def totals(menus: Sequence[Menu], choice: ChoiceArray) -> Totals:
    """Return the sums over the chosen options."""
    picked = [(m.seconds[c], m.importance[c], m.kept[c]) for m, c in zip(menus, choice, strict=True)]
    seconds, importance, kept = (float(sum(column)) for column in zip(*picked, strict=True))
    return Totals(seconds, importance, kept)


def floor_seconds(menus: Sequence[Menu]) -> float:
    """Return the least time of any choice, in seconds."""
    return float(sum(menu.seconds.min() for menu in menus))


def allocate(menus: Sequence[Menu], budget_s: float, most_kept: float = np.inf) -> ChoiceArray:
    """Return one option per layer, (layers,) int64.

    Parameters
    ----------
    menus : one per layer, each with at least one option
    budget_s : longest time of all layers together
    most_kept : most weights of all layers together

    Raises
    ------
    BadInput : no choice keeps the budgets; the message gives the floor
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
    """Return the best choice within both budgets, by the least price per kept weight that
    meets `most_kept`.
    """
    # The highest price is above the value of a weight in any layer
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
    """Return the choice with the highest importance of `priced` within the time; both menus have the same
    times.
    """
    found = [_along_hulls(priced, budget_s)]
    if len(menus) <= MOST_GRID_LAYERS:
        found.append(_on_grid(priced, budget_s))
    polished = [_polish(priced, choice, budget_s, np.inf) for choice in found]
    return max(polished, key=lambda choice: totals(priced, choice).importance)


def _along_hulls(menus: Sequence[Menu], budget_s: float) -> ChoiceArray:
    """Start from the fastest options and apply the steps with the most importance per second that fit."""
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
    """Return the options on the upper concave hull, from the fastest to the one that retains most."""
    from prunecast.codesign.search.loops import keep_hull  # numba is slow to import

    hull = _undominated(menu.seconds, menu.importance)
    return hull[: keep_hull(menu.seconds, menu.importance, hull)]


def _on_grid(menus: Sequence[Menu], budget_s: float) -> ChoiceArray:
    """Return the optimal choice by dynamic programming, exact except that times are rounded
    up to the grid.
    """
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
    """Return the options that retain more than every option that costs at most as much, cheapest first."""
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
    """Replace options of single layers by better ones as long as one fits."""
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
