"""Axes that people can read, in the colours of a medium, and tables as bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from prunecast.kernels import KERNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """The colours of one medium.

    Parameters
    ----------
    ink, faint : of lines and of what stays behind
    series : colour of each kernel; a kernel without one is drawn in ink
    """

    ink: str
    faint: str
    series: Mapping[str, str]

    def of(self, kernel: str) -> str:
        """The colour that stands for a kernel in every picture."""
        return self.series.get(kernel, self.ink)


_HUES = (
    "#000000",
    "#0072b2",
    "#d55e00",
    "#332288",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#8c6d31",
    "#e69f00",
    "#6b8e23",
)
SCREEN = Palette(ink="#404040", faint="#b0b0b0", series=dict(zip(KERNELS, _HUES, strict=False)))
"""Colours of notebooks and files. Hues that colour-blind readers tell apart (Okabe and Ito, 2008)."""


def tip(text: str) -> str:
    """A group id that the report's page shows as a tooltip."""
    return f"tip:{text}"


MOST_LABELS = 7


def new_axes(width: float = 4.4, height: float = 3.0) -> Axes:
    """Axes of a new figure, sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def log_axis(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> None:
    """Logarithmic from low to high with a few labels as plain numbers, not as powers of ten."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    axis.set_major_locator(FixedLocator(_ticks(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _ticks(low: float, high: float) -> list[float]:
    """The finest of some series of round numbers that has no more than a few between low and high."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{step * 10.0**decade:.3g}") for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= MOST_LABELS:
            return ticks
    return ticks[:: -(-len(ticks) // MOST_LABELS)]


def in_thousands(axes: Axes, what: str) -> None:
    """Label the y axis with `what`, in thousands where the numbers are that large."""
    large = max(axes.get_ylim()) >= 10_000
    axes.set_ylabel(f"{what}, thousands" if large else what)
    if large:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:,g}"))


WIDE = 10
"""Longest over shortest time of a figure above which its axis is logarithmic."""
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
    times = [time for row in microseconds[:shown] for time in row if time]
    if times and max(times) > WIDE * min(times):
        log_axis(axes, "y", min(times) / 2, 2 * max(times))
    axes.figure.legend(loc="outside lower center", frameon=False, ncols=4)
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
    """A kernel's own colour; for other names the colour of their place."""
    others = list(SCREEN.series.values())[1:]
    return SCREEN.series.get(name) or others[place % len(others)]
