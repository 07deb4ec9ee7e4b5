"""Scatter of predicted over measured times."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prunecast.validation.judged import Judged

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"simulator": "#1f6f8b", "model": "#d1603d"}


def draw_scatter(rows: Sequence[Judged], title: str, engines: Sequence[str], axes: "Axes") -> bool:
    """Draw predicted over measured times of the rows that count; return False if none do."""
    from prunecast.codesign.pictures.comparisons import Series, draw_agreement

    series = []
    for engine in engines:
        for use in ("judge", "fit"):
            own = [row for row in rows if row.counts and row.case.use == use]
            measured_s = [float(row.measured.seconds or 0.0) for row in own]
            predicted_s = [row.predicted[engine].seconds for row in own]
            label = f"{engine}, {use}"
            if own:
                series.append(Series(label, COLOURS[engine], measured_s, predicted_s, filled=use == "judge"))
    if not series:
        return False
    draw_agreement(series, axes, band=0.1)
    axes.set_title(title)
    axes.legend(fontsize=6, frameon=False)
    return True
