"""Predicted against measured times, with the interval of each prediction."""

from collections.abc import Sequence

from prunecast.codesign.pictures import log_axis, new_axes, tip
from prunecast.report.measured import MeasuredPoint
from prunecast.report.pictures.canvas import PAGE, svg_text

__all__ = ["draw_measured"]


def draw_measured(points: Sequence[MeasuredPoint], *, salt: str) -> str:
    """Both axes logarithmic; on the line they agree."""
    axes = new_axes(height=4.2)
    for point in points:
        x, y = 1e6 * point.measured_s, 1e6 * point.predicted_s
        colour = PAGE.of(point.kernel)
        axes.plot([x, x], [1e6 * point.low_s, 1e6 * point.high_s], color=colour, lw=0.6)
        told = tip(f"{point.case}, {point.kernel}: measured {x:.3g} us, predicted {y:.3g} us")
        axes.plot([x], [y], "o", color=colour, ms=4, gid=told)
    for kernel in dict.fromkeys(point.kernel for point in points):
        axes.plot([], [], "o", color=PAGE.of(kernel), label=kernel)
    times = [1e6 * point.measured_s for point in points]
    ends = (min(times) / 1.5, 1.5 * max(times))
    axes.plot(ends, ends, color=PAGE.ink, lw=1)
    for which in ("x", "y"):
        log_axis(axes, which, *ends)
    axes.set(xlabel="measured, us", ylabel="predicted, us")
    axes.grid(visible=True)
    axes.figure.legend(loc="outside lower center", ncols=3)
    return svg_text(axes, "Predicted against measured", salt=salt)
