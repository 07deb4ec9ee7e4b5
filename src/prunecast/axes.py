"""Matplotlib figures and axes that all plots share, colour palettes, and image files.

Importing this module imports Matplotlib, so other modules import it inside functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from prunecast.files import aside


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Colours for one output medium, such as a notebook or the HTML report.

    Parameters
    ----------
    ink : colour of lines and text
    faint : colour of grids and secondary lines
    series : kernel name -> colour; kernels that are missing are drawn in `ink`
    """

    ink: str
    faint: str
    series: Mapping[str, str]

    def of(self, kernel: str) -> str:
        """Return the colour of a kernel, which is the same in every plot."""
        return self.series.get(kernel, self.ink)


def tip(text: str) -> str:
    """Return an SVG group id that the HTML report shows as the tooltip `text`."""
    return f"tip:{text}"


MOST_LABELS = 7
"""Largest number of tick labels on a logarithmic axis."""


class Picture(Figure):
    """A figure that notebooks display even if pyplot is not in use."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.savefig(content, format="png", dpi=100)
        return content.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return a new figure that does not need a display; `width` and `height` are in inches."""
    return Picture(figsize=(width, height), layout="constrained")


def new_axes(width: float = 4.4, height: float = 3.0) -> Axes:
    """Return the axes of a new figure; `width` and `height` are in inches."""
    return new_figure(width, height).add_subplot()


def write_figure(axes: Axes, path: Path, *, dpi: int = 100) -> None:
    """Write the figure of the axes as PNG or SVG, depending on the suffix; equal figures give equal bytes.

    Raises
    ------
    BadInput : the file cannot be written
    """
    # Dates, versions and random element ids would make equal pictures differ.
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    figure = cast(Figure, axes.get_figure(root=True))
    with aside(path) as unfinished, mpl.rc_context({"svg.hashsalt": "prunecast"}):
        figure.savefig(unfinished, format=path.suffix.removeprefix("."), dpi=dpi, metadata=metadata)


def log_axis(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> None:
    """Make an axis logarithmic from `low` to `high`, with a few tick labels in plain decimal numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    axis.set_major_locator(FixedLocator(_ticks(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _ticks(low: float, high: float) -> list[float]:
    """Return at most `MOST_LABELS` ticks between low and high, from a series of round numbers."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{step * 10.0**decade:.3g}") for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= MOST_LABELS:
            return ticks
    return ticks[:: -(-len(ticks) // MOST_LABELS)]


def in_thousands(axes: Axes, title: str) -> None:
    """Label the y axis with `title`; show thousands if the axis reaches 10,000."""
    large = max(axes.get_ylim()) >= 10_000
    axes.set_ylabel(f"{title}, thousands" if large else title)
    if large:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:,g}"))
