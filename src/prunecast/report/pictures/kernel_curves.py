"""Curves over sparsity: where a kernel overtakes dense, and what importance its time buys."""

from collections.abc import Sequence

from prunecast.codesign.pictures import log_axis, new_axes, tip
from prunecast.report.curves import Curve, CurvePoint
from prunecast.report.pictures.canvas import PAGE, svg_text

__all__ = ["draw_crossover", "draw_pareto", "pareto_front", "speedup_range"]

SLOWEST_SHOWN = 0.4
"""Speedups below are left out of the picture: they would flatten all that decides."""


def draw_crossover(curves: Sequence[Curve], *, salt: str) -> str:
    """Speedup over dense against density; a kernel that is always far slower is only named."""
    dense_s = curves[0].points[0].seconds
    axes = new_axes()
    axes.axhline(1.0, color=PAGE.ink, lw=1, gid=tip(f"dense: {1e6 * dense_s:.3g} us"))
    for curve in curves[1:]:
        points = sorted(curve.points)
        xs, ys = [100 * p.density for p in points], [dense_s / p.seconds for p in points]
        colour = PAGE.of(curve.kernel)
        axes.plot(xs, ys, "-", color=colour, lw=1.5)
        for x, y in zip(xs, ys, strict=True):
            told = tip(f"{curve.kernel}, {curve.pattern}: density {x:.0f} %, {y:.2f}x over dense")
            if y >= SLOWEST_SHOWN:
                axes.plot([x], [y], "o", color=colour, ms=4, gid=told)
        outside = f" (below {SLOWEST_SHOWN}x)" if max(ys) < SLOWEST_SHOWN else ""
        axes.plot([], [], "o-", color=colour, label=curve.kernel + outside)
    log_axis(axes, "y", *speedup_range(curves))
    axes.set(xlabel="density (weights kept), %", ylabel="speedup over dense", xlim=(0, 75))
    axes.grid(visible=True)
    axes.figure.legend(loc="outside lower center", ncols=2)
    return svg_text(axes, "Speedup over density", salt=salt)


def speedup_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """Lowest and highest speedup that the picture shows; dense, 1, lies between them."""
    dense_s = curves[0].points[0].seconds
    speedups = [dense_s / point.seconds for curve in curves for point in curve.points]
    shown = [speedup for speedup in speedups if speedup >= SLOWEST_SHOWN]
    return min(shown) / 1.15, 1.15 * max(shown)


def draw_pareto(curves: Sequence[Curve], *, salt: str) -> str:
    """Retained importance against time, the undominated points joined."""
    axes = new_axes()
    for curve in curves:
        colour = PAGE.of(curve.kernel)
        for point in curve.points:
            us, share = 1e6 * point.seconds, 100 * point.retained
            told = tip(
                f"{curve.kernel}, {curve.pattern}: density {100 * point.density:.0f} %, {us:.3g} us, "
                f"{share:.1f} % of importance"
            )
            axes.plot([us], [share], "o", color=colour, ms=5, gid=told)
        axes.plot([], [], "o", color=colour, label=curve.kernel)
    points = [point for curve in curves for point in curve.points]
    front = pareto_front([(point.seconds, point.retained) for point in points])
    axes.plot([1e6 * s for s, _ in front], [100 * r for _, r in front], "-", color=PAGE.ink, lw=1, zorder=0)
    log_axis(axes, "x", *_time_range(points))
    axes.set(xlabel="time, us", ylabel="retained importance, %", ylim=(0, 105))
    axes.grid(visible=True)
    axes.figure.legend(loc="outside lower center", ncols=3)
    return svg_text(axes, "Retained importance over time", salt=salt)


def _time_range(points: Sequence[CurvePoint]) -> tuple[float, float]:
    times_us = [1e6 * point.seconds for point in points]
    return min(times_us) / 1.15, 1.15 * max(times_us)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points (time, retained) that no other point beats in both, ordered by time."""
    front: list[tuple[float, float]] = []
    for seconds, retained in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or retained > front[-1][1]:
            front.append((seconds, retained))
    return front
