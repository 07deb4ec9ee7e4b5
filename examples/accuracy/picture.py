"""Loss against time: one panel for each sparsity, every pattern named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from prunecast.codesign.pictures import log_axis

NAME_SIZE = 7.5
PREDICTED, MEASURED = "#0072b2", "#d55e00"


class Row(Protocol):
    """What is drawn of a case."""

    case: str
    target: float
    score: float
    predicted_us: float | None
    measured_us: float | None


class Mark(NamedTuple):
    """A case at its predicted and its measured time."""

    name: str
    us: float
    measured_us: float
    score: float


def draw(rows: Sequence[Row], sparsities: Sequence[float], label: str) -> Figure:
    """Predictions as dots with names, measurements as crosses, the best predictions on a line."""
    pruned = [sparsity for sparsity in sparsities if any(row.target == sparsity for row in rows)]
    figure = Figure(figsize=(8.0, 3.6 * len(pruned)), layout="constrained")
    for panel, sparsity in zip(figure.subplots(len(pruned), 1, squeeze=False)[:, 0], pruned, strict=True):
        shown = [row for row in rows if row.target in (0.0, sparsity)]
        _draw_panel(panel, shown)
        panel.set(title=f"{sparsity:.0%} pruned", ylabel=label)
    panel.set_xlabel("all pruned layers on an H200, us")
    figure.axes[0].legend(frameon=False, loc="upper right")
    figure.draw_without_rendering()  # names are placed in points: the axes must have their places
    figure.set_layout_engine("none")
    for panel, sparsity in zip(figure.axes, pruned, strict=True):
        shown = [row for row in rows if row.target in (0.0, sparsity)]
        marks = [Mark(r.case, r.predicted_us, r.measured_us or r.predicted_us, r.score) for r in shown]
        _write_names(panel, [mark for mark in marks if mark.us])
    return figure


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> None:
    predicted = [(row.predicted_us, row.score) for row in rows if row.predicted_us is not None]
    measured = [(row.measured_us, row.score) for row in rows if row.measured_us is not None]
    for row in rows:
        if row.predicted_us is not None and row.measured_us is not None:
            axes.plot([row.predicted_us, row.measured_us], [row.score] * 2, color="0.8", lw=1, zorder=1)
    for points, look in (
        (_front(predicted), {"color": "0.5", "lw": 0.8, "zorder": 1, "label": "best predictions"}),
        (predicted, {"marker": "o", "ls": "", "color": PREDICTED, "ms": 4.5, "label": "predicted"}),
        (measured, {"marker": "x", "ls": "", "color": MEASURED, "ms": 5, "label": "measured"}),
    ):
        if points:
            axes.plot([us for us, _ in points], [score for _, score in points], **look)
    times = [us for us, _ in predicted + measured]
    log_axis(axes, "x", min(times) / 1.5, 1.35 * max(times))
    axes.margins(y=0.12)
    axes.grid(alpha=0.3)


def _front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those (time, loss) that no other beats in both."""
    front: list[tuple[float, float]] = []
    for us, score in sorted(points):
        if not front or score < front[-1][1]:
            front.append((us, score))
    return front


def _write_names(axes: Axes, marks: Sequence[Mark]) -> None:
    """Each name at the nearest place beside its mark that no mark and no other name has."""
    per_point = axes.figure.dpi / 72
    centres = [axes.transData.transform((mark.us, mark.score)) for mark in marks]
    ends = [axes.transData.transform((mark.measured_us, mark.score)) for mark in marks]
    taken = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in (*centres, *ends)]
    taken += [
        Bbox.from_extents(x, y - 1, end, y + 1)
        for (x, y), (end, _) in zip(centres, ends, strict=True)
        if end > x + 6
    ]
    for mark, (x, y) in sorted(zip(marks, centres, strict=True), key=lambda each: -each[1][1]):
        size = (0.56 * NAME_SIZE * len(mark.name) * per_point, 1.05 * NAME_SIZE * per_point)
        box = next((box for box in _places(x, y, *size) if _is_free(box, taken, axes)), None)
        if box is None:
            box = next(_places(x, y, *size))
        taken.append(box)
        at = axes.transData.inverted().transform((box.x0, box.y0 + 0.2 * size[1]))
        axes.text(*at, mark.name, fontsize=NAME_SIZE)
        if abs((box.y0 + box.y1) / 2 - y) > 1.5 * size[1]:
            near = box.x0 if box.x0 > x else box.x1
            end = axes.transData.inverted().transform((near, (box.y0 + box.y1) / 2))
            axes.plot([mark.us, end[0]], [mark.score, end[1]], color="0.6", lw=0.4, zorder=1)


def _places(x: float, y: float, width: float, height: float):
    """Boxes around a mark, the nearest first, right before left."""
    for step in range(0, 12):
        for up in (0.8 * step, -0.8 * step) if step else (0,):
            yield Bbox.from_bounds(x + 5 + 2 * step, y + (up - 0.5) * height, width, height)
            yield Bbox.from_bounds(x - 5 - 2 * step - width, y + (up - 0.5) * height, width, height)


def _is_free(box: Bbox, taken: Sequence[Bbox], axes: Axes) -> bool:
    frame = axes.bbox
    inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
    return inside and not any(box.overlaps(other) for other in taken)
