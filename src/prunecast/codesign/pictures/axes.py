"""Axes that people can read, in the colours of a medium."""

from collections.abc import Mapping
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
"""For notebooks and files. Hues that colour-blind readers tell apart (Okabe and Ito, 2008)."""


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
