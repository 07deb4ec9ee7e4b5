"""Tables as figures: a group of bars for each layer, and the Pareto front of a pruned model."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from prunecast.codesign.pictures.axes import SCREEN, new_axes

MOST_GROUPS = 24
"""Layers of a figure; the rest is left out, and the title says how many."""


def draw_bars(
    layers: Sequence[str], columns: Sequence[str], microseconds: Sequence[Sequence[float | None]], title: str
) -> Figure:
    """A group of bars for each layer, a bar for each column; None leaves one out.

    Parameters
    ----------
    microseconds : layer by layer, one for each column
    """
    shown = min(len(layers), MOST_GROUPS)
    axes = new_axes(max(5.0, 1.5 + 0.12 * shown * (len(columns) + 1)), 3.6)
    width = 0.85 / len(columns)
    for place, name in enumerate(columns):
        heights = np.array([row[place] for row in microseconds[:shown]], dtype=np.float64)  # None is NaN
        left = np.arange(shown) + width * (place - (len(columns) - 1) / 2)
        axes.bar(left, heights, width, label=name, color=_colour(name, place))
    axes.set_xticks(np.arange(shown), layers[:shown], rotation=30, ha="right", parse_math=False)
    axes.set_ylabel("time, us")
    axes.set_title(title + (f", {shown} of {len(layers)} layers" if shown < len(layers) else ""), loc="left")
    axes.legend(frameon=False, ncols=3)
    return axes.figure  # type: ignore[return-value]


def draw_front(shares: Sequence[float], kept: Sequence[float], found: tuple[float, float]) -> Figure:
    """Importance kept over time as a share of dense, and the solution on it."""
    axes = new_axes(5.0, 3.4)
    axes.plot(*(100 * np.array([shares, kept])), marker=".", color=_colour("", 0), label="other budgets")
    axes.plot(100 * found[0], 100 * found[1], marker="o", ls="", color=_colour("", 1), label="this one")
    axes.set_xlabel("time, % of dense")
    axes.set_ylabel("importance kept, %")
    axes.legend(frameon=False)
    return axes.figure  # type: ignore[return-value]


def _colour(name: str, place: int) -> str:
    """That of a kernel, else the next one."""
    others = list(SCREEN.series.values())[1:]
    return SCREEN.series.get(name) or others[place % len(others)]
