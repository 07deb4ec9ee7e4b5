"""Pictures of a sweep: a heat map of speed-ups per kernel, and where each kernel overtakes dense."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prunecast.errors import BadInput

__all__ = ["speedup_grids", "write_pictures"]

Row = dict[str, Any]


class SpeedupGrid(NamedTuple):
    """Speed-ups over dense of one GPU, kernel and pattern: one row per shape, one column per sparsity."""

    gpu: str
    kernel: str
    pattern: str
    shapes: tuple[str, ...]
    sparsities: tuple[float, ...]
    speedups: Any
    """(shapes, sparsities) float64, NaN where there is no result."""


def speedup_grids(rows: Sequence[Row]) -> list[SpeedupGrid]:
    """Grids of all kernels whose pattern was swept over more than one sparsity."""
    dense = {(r["gpu"], _shape(r)): r["seconds"] for r in rows if r["kernel"] == "dense"}
    kinds = {(r["gpu"], r["kernel"], r["pattern"]) for r in rows if r["sparsity"] is not None}
    grids = []
    for gpu, kernel, pattern in sorted(kinds):
        mine = [r for r in rows if (r["gpu"], r["kernel"], r["pattern"]) == (gpu, kernel, pattern)]
        shapes = tuple(sorted({_shape(r) for r in mine}, key=_size))
        sparsities = tuple(sorted({r["sparsity"] for r in mine}))
        speedups = np.full((len(shapes), len(sparsities)), np.nan)
        for r in mine:
            base = dense.get((gpu, _shape(r)))
            if r["seconds"] and base:
                place = shapes.index(_shape(r)), sparsities.index(r["sparsity"])
                speedups[place] = base / r["seconds"]
        grids.append(SpeedupGrid(gpu, kernel, pattern, shapes, sparsities, speedups))
    return grids


def write_pictures(rows: Sequence[Row], folder: Path) -> list[Path]:
    """One SVG per grid: colours for the speed-up, a line where it passes 1; returns the files.

    Raises
    ------
    BadInput : nothing to draw, or the folder cannot be written
    """
    grids = speedup_grids(rows)
    if not grids:
        raise BadInput("pictures need a pattern at several sparsities and dense beside it; there is none")
    try:
        folder.mkdir(exist_ok=True)
        return [_draw(grid, folder) for grid in grids]
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror}") from None


def _draw(grid: SpeedupGrid, folder: Path) -> Path:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 1.6 + 0.3 * len(grid.shapes)), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    most = max(float(np.nanmax(grid.speedups, initial=1.0)), 1.1)
    image = axes.imshow(
        grid.speedups, aspect="auto", cmap="RdBu", norm=TwoSlopeNorm(1.0, vmin=0.0, vmax=most)
    )
    _mark_crossovers(axes, grid)
    axes.set_xticks(range(len(grid.sparsities)), [f"{100 * s:.0f}" for s in grid.sparsities])
    axes.set_yticks(range(len(grid.shapes)), grid.shapes, fontsize="small")
    axes.set_xlabel("sparsity, %")
    axes.set_title(f"{grid.kernel} on {grid.pattern}, {grid.gpu}: speed-up over dense", fontsize="medium")
    figure.colorbar(image, ax=axes, label="dense time / time")
    path = folder / f"{grid.gpu}-{grid.kernel}-{grid.pattern}.svg".replace(":", "_").replace("/", "_")
    figure.savefig(path, metadata={"Date": None})
    return path


def _mark_crossovers(axes: Any, grid: SpeedupGrid) -> None:
    """A black step left of the first sparsity at which the kernel wins."""
    for place, row in enumerate(grid.speedups):
        wins = np.flatnonzero(row > 1.0)
        if wins.size:
            axes.plot([wins[0] - 0.5] * 2, [place - 0.5, place + 0.5], color="black", linewidth=2.0)


def _shape(row: Row) -> str:
    return f"{row['m']}x{row['k']}x{row['n']}"


def _size(shape: str) -> int:
    return int(np.prod([int(part) for part in shape.split("x")]))
