"""Predicted against measured: one scatter for each kernel family."""

from collections.abc import Sequence
from pathlib import Path

from prunecast.validation.judged import Judged

__all__ = ["draw_scatter"]

COLOURS = {"simulator": "#1f6f8b", "model": "#d1603d"}


def draw_scatter(rows: Sequence[Judged], title: str, engines: Sequence[str], path: Path) -> bool:
    """Write a PNG of the rows that count; False, and no file, if none do."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in rows if row.counts]
    if not rows:
        return False
    figure, axes = pyplot.subplots(figsize=(3.6, 3.4), dpi=100)
    measured = [1e6 * float(row.measured.seconds or 0.0) for row in rows]
    for engine in engines:
        for use, face in (("judge", COLOURS[engine]), ("fit", "none")):
            xy = [
                (x, 1e6 * row.predicted[engine].seconds)
                for x, row in zip(measured, rows, strict=True)
                if row.case.use == use
            ]
            if xy:
                xs, ys = zip(*xy, strict=True)
                label = f"{engine}, {use}"
                axes.scatter(xs, ys, s=9, facecolors=face, edgecolors=COLOURS[engine], lw=0.7, label=label)
    ends = [min(measured) / 1.5, max(measured) * 1.5]
    axes.plot(ends, ends, color="grey", lw=0.7)
    axes.fill_between(ends, [0.9 * e for e in ends], [1.1 * e for e in ends], color="grey", alpha=0.15, lw=0)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=title)
    axes.set(xlabel="measured us", ylabel="predicted us")
    axes.legend(fontsize=6, frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
    return True
