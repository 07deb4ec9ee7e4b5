"""Figures that compare: bars over layers, the Pareto front of a search, predicted over measured times."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from prunecast.axes import Palette, log_axis, new_axes
from prunecast.codesign.pictures.palette import SCREEN

WIDE = 10
"""Ratio of the longest to the shortest time of a figure above which its axis is logarithmic."""
PIXELS_WIDE = 800
"""Width of a picture of speedups in a notebook and in a file of 100 dots per inch."""
NAME_WIDTH = 28
"""Maximum number of characters of a layer's name next to its bars."""
MOST_GROUPS = 24
"""Maximum number of layers in a figure. If layers are left out, the title gives the number of drawn ones."""


def draw_bars(
    layers: Sequence[str],
    columns: Sequence[str],
    microseconds: Sequence[Sequence[float | None]],
    title: str,
    *,
    are_parts: bool = False,
) -> Figure:
    """Draw one group of bars per layer, with one bar per column, as a new figure.

    At most `MOST_GROUPS` layers are drawn.

    Parameters
    ----------
    layers : texts below the groups
    columns : names of the bars of a group
    microseconds : for each layer, the time of each column in us; None leaves out a bar
    are_parts : True for parts of one time: the axis is then linear, so that lengths can be added
    """
    shown = min(len(layers), MOST_GROUPS)
    axes = new_axes(max(5.0, 1.5 + 0.12 * shown * (len(columns) + 1)), 3.6)
    _draw_groups(axes.bar, columns, microseconds[:shown])
    axes.set_xticks(np.arange(shown), layers[:shown], rotation=30, ha="right", parse_math=False)
    axes.set_ylabel("time, us")
    axes.set_title(title + (f", {shown} of {len(layers)} layers" if shown < len(layers) else ""), loc="left")
    times = [time for row in microseconds[:shown] for time in row if time]
    if times and not are_parts and max(times) > WIDE * min(times):
        log_axis(axes, "y", min(times) / 2, 2 * max(times))
    axes.figure.legend(loc="outside lower center", frameon=False, ncols=4)
    return axes.figure  # type: ignore[return-value]


def draw_speedups(
    layers: Sequence[str], kernels: Sequence[str], speedups: Sequence[Sequence[float | None]], title: str
) -> Figure:
    """Draw the speedup over dense of each layer with each kernel as horizontal bars, in a new figure.

    At most `MOST_GROUPS` layers are drawn. The axis is linear, so that a slow kernel has a short bar and does
    not shrink the others.

    Parameters
    ----------
    layers : names of the layers, texts of one or two lines
    kernels : names of the bars of a layer
    speedups : for each layer, dense time over the time of each kernel; None leaves out a bar
    """
    shown = min(len(layers), MOST_GROUPS)
    axes = new_axes(PIXELS_WIDE / 100, 1.3 + shown * max(0.45, 0.2 * len(kernels) + 0.1))
    for bars in _draw_groups(axes.barh, kernels, speedups[:shown]):
        texts = ["" if np.isnan(width) else f"{width:.2f}x" for width in bars.datavalues]
        axes.bar_label(bars, texts, padding=3, fontsize="small")
    axes.axvline(1.0, color=SCREEN.ink, lw=1)
    axes.set_yticks(np.arange(shown), layers[:shown], parse_math=False)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("dense time / time")
    axes.set_title(title + (f", {shown} of {len(layers)} layers" if shown < len(layers) else ""), loc="left")
    axes.figure.legend(loc="outside lower center", frameon=False, ncols=4)
    return axes.figure  # type: ignore[return-value]


def _draw_groups(
    draw: Callable[..., Any], names: Sequence[str], rows: Sequence[Sequence[float | None]]
) -> list[Any]:
    """Draw one group of bars per row, and return the bars of each name; None leaves out a bar.

    Parameters
    ----------
    draw : `bar` or `barh` of the axes
    names : names of the bars of a group
    """
    values = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))  # None is NaN
    size = 0.85 / len(names)
    first = np.arange(len(values)) - size * (len(names) - 1) / 2
    return [
        draw(first + size * place, values[:, place], size, label=name, color=_colour(name, place))
        for place, name in enumerate(names)
    ]


def draw_front(shares: Sequence[float], kept: Sequence[float], found: tuple[float, float]) -> Figure:
    """Draw a Pareto front of retained importance over time, with one solution marked, in a new figure.

    Parameters
    ----------
    shares : time of each point of the front over the dense time
    kept : share of the importance that each point retains
    found : both shares (time, retained importance) of the marked solution
    """
    axes = new_axes(5.0, 3.4)
    axes.plot(*(100 * np.array([shares, kept])), marker=".", color=_colour("", 0), label="other budgets")
    axes.plot(100 * found[0], 100 * found[1], marker="o", ls="", color=_colour("", 1), label="this one")
    axes.set_xlabel("time, % of dense")
    axes.set_ylabel("importance kept, %")
    axes.legend(frameon=False)
    return axes.figure  # type: ignore[return-value]


def _colour(name: str, place: int) -> str:
    """Return the colour of a kernel; other names get the colour of their position."""
    others = list(SCREEN.series.values())[1:]
    return SCREEN.series.get(name) or others[place % len(others)]


class Series(NamedTuple):
    """Predicted and measured times in seconds that are drawn with one colour and label.

    All sequences that are not empty have the same length.
    """

    label: str
    colour: str
    measured_s: Sequence[float]
    predicted_s: Sequence[float]
    filled: bool = True
    intervals_s: Sequence[tuple[float, float]] = ()
    """Bounds of each prediction, or empty."""
    tips: Sequence[str] = ()
    """SVG group id of each point, which becomes a tooltip (see `axes.tip`); or empty."""


def draw_agreement(
    series: Sequence[Series], axes: Axes, palette: Palette = SCREEN, *, band: float = 0.0
) -> None:
    """Draw predicted over measured times on logarithmic axes, with the line on which both are equal.

    Parameters
    ----------
    band : relative width of the shaded band on each side of the line, such as 0.1; 0 for none
    """
    times_us = [1e6 * time for one in series for time in one.measured_s]
    ends = (min(times_us) / 1.5, 1.5 * max(times_us))
    axes.plot(ends, ends, color=palette.ink, lw=1)
    if band:
        low, high = ([(1 + side * band) * end for end in ends] for side in (-1, 1))
        axes.fill_between(ends, low, high, color=palette.faint, alpha=0.3, lw=0)
    for one in series:
        xs, ys = 1e6 * np.array(one.measured_s), 1e6 * np.array(one.predicted_s)
        for x, bounds in zip(xs, one.intervals_s, strict=False):
            axes.plot([x, x], 1e6 * np.array(bounds), color=one.colour, lw=0.6)
        face = one.colour if one.filled else "none"
        style: dict[str, Any] = {"ls": "", "marker": "o", "ms": 4, "mfc": face, "mec": one.colour, "mew": 0.7}
        if one.tips:  # a tooltip belongs to one Matplotlib line, so each point is a separate line
            for x, y, tooltip in zip(xs, ys, one.tips, strict=True):
                axes.plot([x], [y], gid=tooltip, **style)
            axes.plot([], [], label=one.label, **style)
        else:
            axes.plot(xs, ys, label=one.label, **style)
    for which in ("x", "y"):
        log_axis(axes, which, *ends)
    axes.set(xlabel="measured, us", ylabel="predicted, us")
    axes.grid(visible=True, alpha=0.5)
