"""Scatter plot of predicted against measured times."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prunecast.validation.judged import Judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"simulator": "#1f6f8b", "model": "#d1603d"}
NAMES = {"simulator": "simulator", "model": "closed form"}
PANEL = (4.0, 3.8)
"""Width and height in inches of the axes of one engine: with two engines, a figure is 800 pixels wide at 100
pixels per inch."""


def draw_scatter(rows: Sequence[Judged], title: str, engines: Sequence[str]) -> "Figure | None":
    """Draw predicted against measured times of the valid rows (`Judged.counts`), with axes for each engine.

    Return None if no row is valid.
    """
    from prunecast.axes import new_figure
    from prunecast.codesign.pictures.comparisons import Series, draw_agreement

    counted = [row for row in rows if row.counts]
    if not counted:
        return None
    width, height = PANEL
    figure = new_figure(width * len(engines), height)
    for axes, engine in zip(figure.subplots(1, len(engines), squeeze=False)[0], engines, strict=True):
        series = []
        for use in ("judge", "fit"):
            own = [row for row in counted if row.case.use == use]
            measured_s = [float(row.measured.seconds or 0.0) for row in own]
            predicted_s = [row.predicted[engine].seconds for row in own]
            if own:
                series.append(Series(use, COLOURS[engine], measured_s, predicted_s, filled=use == "judge"))
        draw_agreement(series, axes, band=0.1)
        axes.set_title(f"{title}, {NAMES[engine]}", fontsize="medium")
        axes.legend(frameon=False)
    return figure
