"""Curves over sparsity: where a kernel overtakes dense, and what importance its time buys."""

from collections.abc import Sequence

from prunecast.codesign.pictures import new_axes, tip
from prunecast.report.curves import Curve
from prunecast.report.pictures.canvas import PAGE, svg_text

__all__ = ["draw_crossover", "draw_pareto", "pareto_front"]


def draw_crossover(curves: Sequence[Curve], *, salt: str) -> str:
    """Time over that of dense against density."""
    dense_s = curves[0].points[0].seconds
    axes = new_axes()
    axes.axhline(1.0, color=PAGE.ink, lw=1, gid=tip(f"dense: {1e6 * dense_s:.3g} us"))
    for curve in curves[1:]:
        points = sorted(curve.points)
        xs, ys = [100 * p.density for p in points], [p.seconds / dense_s for p in points]
        colour = PAGE.of(curve.kernel)
        axes.plot(xs, ys, "-", color=colour, lw=1.5)
        for x, y in zip(xs, ys, strict=True):
            told = tip(f"{curve.kernel}, {curve.pattern}: density {x:.0f} %, {1 / y:.2f}x over dense")
            axes.plot([x], [y], "o", color=colour, ms=4, gid=told)
        axes.plot([], [], "o-", color=colour, label=curve.kernel)
    axes.set(yscale="log", xlabel="density, %", ylabel="time over dense", xlim=(0, 75))
    axes.grid(visible=True)
    axes.figure.legend(loc="outside lower center", ncols=3)
    return svg_text(axes, "Time over density", salt=salt)


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
    front = pareto_front([(p.seconds, p.retained) for curve in curves for p in curve.points])
    axes.plot([1e6 * s for s, _ in front], [100 * r for _, r in front], "-", color=PAGE.ink, lw=1, zorder=0)
    axes.set(xscale="log", xlabel="time, us", ylabel="retained importance, %")
    axes.grid(visible=True)
    axes.figure.legend(loc="outside lower center", ncols=3)
    return svg_text(axes, "Retained importance over time", salt=salt)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those (time, retained) that no other beats in both, by time."""
    front: list[tuple[float, float]] = []
    for seconds, retained in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or retained > front[-1][1]:
            front.append((seconds, retained))
    return front
