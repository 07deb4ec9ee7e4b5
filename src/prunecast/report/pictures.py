"""SVG plots of the HTML report, in the colours of the page.

The plots are speedup over density, retained importance over time, predicted against measured times with
intervals, and heat maps of the kept columns of each tile. Roofline and work per SM are drawn by
`codesign/pictures`. Matplotlib does not support CSS variables. Figures are therefore drawn in placeholder
colours, which are replaced by CSS variables in the SVG text. A group id that begins with `tip:` becomes a
tooltip.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from prunecast.axes import Palette, log_axis, new_axes, new_figure, tip
from prunecast.codesign.pictures.comparisons import Series, draw_agreement
from prunecast.codesign.search.allocation import pareto_optimal
from prunecast.kernels import KERNELS
from prunecast.patterns import TileMap
from prunecast.patterns.tile_map import MOST_TILES, draw_heat
from prunecast.report.study import Curve

_SERIES = {kernel: f"#0a0a{place + 1:02x}" for place, kernel in enumerate([*KERNELS][:10])}
"""The page has ten colours, `--series-1` to `--series-10`; kernels without one are drawn in ink."""
PAGE = Palette(ink="#010101", faint="#020202", series=_SERIES)
"""Placeholder colours, which `svg_text` replaces by the CSS colours of the page."""
_CSS = {PAGE.ink: "currentColor", PAGE.faint: "var(--faint)"} | {
    colour: f"var(--series-{place + 1})" for place, colour in enumerate(_SERIES.values())
}
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "prunecast",
    "font.family": ["sans-serif"],
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": False,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.3,
    "grid.linewidth": 0.5,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), PAGE.ink
    ),
    "grid.color": PAGE.faint,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}


@contextmanager
def drawing() -> Iterator[None]:
    """Use the report's Matplotlib settings inside the block, independently of the user's."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)  # type: ignore[arg-type]
        yield


def svg_text(axes: Axes, label: str, *, salt: str) -> str:
    """Return the figure of the axes as the text of an `svg` element.

    Parameters
    ----------
    label : text for screen readers (`aria-label`), which is escaped here
    salt : text that differs between the plots of a page, so that their element ids differ
    """
    from markupsafe import escape

    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt}):
        figure = cast(Figure, axes.get_figure(root=True))
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'<g id="tip:([^"]*)"', r'<g data-tip="\1"', svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    name = str(escape(label)).replace("\\", "\\\\")
    opening = rf'<svg role="img" aria-label="{name}" viewBox="\1">'
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', opening, svg, count=1)
    for colour, css in _CSS.items():
        svg = svg.replace(colour, css)
    return re.sub(r"\n\s*", "\n", svg).strip()


class MeasuredPoint(NamedTuple):
    """Measured and predicted time of one case, with the interval `low_s` to `high_s` of the prediction."""

    case: str
    kernel: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    """Upper end of the interval of the prediction, in seconds."""

    @property
    def inside(self) -> bool:
        """True if the interval contains the measured value."""
        return self.low_s <= self.measured_s <= self.high_s


SLOWEST_SHOWN = 0.4
"""Least speedup in the plot: lower speedups would compress the important range around 1."""


def draw_crossover(curves: Sequence[Curve], *, salt: str) -> str:
    """Return an SVG plot of speedup over dense against density.

    `curves` begins with the dense curve. A kernel that is always slower than `SLOWEST_SHOWN` is only in the
    legend.
    """
    dense_s = curves[0].points[0].seconds
    axes = new_axes()
    axes.axhline(1.0, color=PAGE.ink, lw=1, gid=tip(f"dense: {1e6 * dense_s:.3g} us"))
    for curve in curves[1:]:
        points = sorted(curve.points)
        xs, ys = [100 * p.density for p in points], [dense_s / p.seconds for p in points]
        colour = PAGE.of(curve.kernel)
        axes.plot(xs, ys, "-", color=colour, lw=1.5)
        for x, y in zip(xs, ys, strict=True):
            tooltip = tip(f"{curve.kernel}, {curve.pattern}: density {x:.0f} %, {y:.2f}x over dense")
            if y >= SLOWEST_SHOWN:
                axes.plot([x], [y], "o", color=colour, ms=4, gid=tooltip)
        outside = f" (below {SLOWEST_SHOWN}x)" if max(ys) < SLOWEST_SHOWN else ""
        axes.plot([], [], "o-", color=colour, label=curve.kernel + outside)
    log_axis(axes, "y", *speedup_range(curves))
    axes.set(xlabel="density (weights kept), %", ylabel="speedup over dense", xlim=(0, 75))
    axes.grid(visible=True)
    axes.figure.legend(loc="outside lower center", ncols=2)
    return svg_text(axes, "Speedup over density", salt=salt)


def speedup_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the limits of the speedup axis; the range contains 1, the speedup of dense."""
    dense_s = curves[0].points[0].seconds
    speedups = [dense_s / point.seconds for curve in curves for point in curve.points]
    shown = [speedup for speedup in speedups if speedup >= SLOWEST_SHOWN]
    return min(shown) / 1.15, 1.15 * max(shown)


def draw_pareto(curves: Sequence[Curve], *, salt: str) -> str:
    """Return an SVG plot of retained importance against time, with a line through the Pareto front."""
    axes = new_axes()
    for curve in curves:
        colour = PAGE.of(curve.kernel)
        for point in curve.points:
            us, share = 1e6 * point.seconds, 100 * point.retained
            tooltip = tip(
                f"{curve.kernel}, {curve.pattern}: density {100 * point.density:.0f} %, {us:.3g} us, "
                f"{share:.1f} % of importance"
            )
            axes.plot([us], [share], "o", color=colour, ms=5, gid=tooltip)
        axes.plot([], [], "o", color=colour, label=curve.kernel)
    points = np.array([(p.seconds, p.retained) for curve in curves for p in curve.points])
    times_us, shares = 1e6 * points[:, 0], 100 * points[:, 1]
    front = pareto_optimal(times_us, shares)
    axes.plot(times_us[front], shares[front], "-", color=PAGE.ink, lw=1, zorder=0)
    log_axis(axes, "x", min(times_us) / 1.15, 1.15 * max(times_us))
    axes.set(xlabel="time, us", ylabel="retained importance, %", ylim=(0, 105))
    axes.grid(visible=True)
    axes.figure.legend(loc="outside lower center", ncols=3)
    return svg_text(axes, "Retained importance over time", salt=salt)


def draw_measured(points: Sequence[MeasuredPoint], *, salt: str) -> str:
    """Return an SVG plot of predicted against measured times, with one series for each kernel."""
    series = []
    for kernel in dict.fromkeys(point.kernel for point in points):
        own = [point for point in points if point.kernel == kernel]
        tips = [
            tip(
                f"{one.case}, {kernel}: measured {1e6 * one.measured_s:.3g} us, "
                f"predicted {1e6 * one.predicted_s:.3g} us"
            )
            for one in own
        ]
        series.append(
            Series(
                label=kernel,
                colour=PAGE.of(kernel),
                measured_s=[one.measured_s for one in own],
                predicted_s=[one.predicted_s for one in own],
                intervals_s=[(one.low_s, one.high_s) for one in own],
                tips=tips,
            )
        )
    axes = new_axes(height=4.2)
    draw_agreement(series, axes, PAGE)
    axes.figure.legend(loc="outside lower center", ncols=3)
    return svg_text(axes, "Predicted against measured", salt=salt)


def draw_tile_maps(before: TileMap, after: TileMap | None, *, salt: str) -> str:
    """Return an SVG with one row of plots for `before` and, if given, one for `after`.

    A row contains a heat map of the kept share, and bars with the number of kept columns of each tile.
    """
    maps = [tiles for tiles in (before, after) if tiles is not None]
    figure = new_figure(4.4, 2.0 * len(maps))
    most = max(max(int(tiles.kept_per_tile.max(initial=1)) for tiles in maps), 1)
    for place, tiles in enumerate(maps):
        heat = figure.add_subplot(len(maps), 4, (4 * place + 1, 4 * place + 3))
        bars = figure.add_subplot(len(maps), 4, 4 * place + 4)
        draw_heat(tiles, heat)
        _draw_counts(bars, tiles)
        bars.set(xlim=(0, 1.1 * most), xlabel="kept")
        bars.xaxis.set_major_locator(MaxNLocator(2, integer=True))
    return svg_text(figure.axes[0], "Kept columns by tile", salt=salt)


def _draw_counts(axes: Axes, tiles: TileMap) -> None:
    kept = tiles.kept_per_tile
    every = -(-tiles.tile_count // MOST_TILES)
    for tile in range(0, tiles.tile_count, every):
        count = float(kept[tile : tile + every].mean())
        tooltip = tip(f"tile {tile}: {count:g} of {tiles.k} columns kept")
        axes.barh(tile, count, height=0.8 * every, color=PAGE.of("stspmm"))[0].set_gid(tooltip)
    axes.axvline(float(kept.mean()), color=PAGE.ink, lw=1)
    axes.set(ylim=(tiles.tile_count - 0.5, -0.5), yticks=[])
