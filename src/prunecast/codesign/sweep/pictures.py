"""Writers of sweep results: Parquet files, and figures of the speedup over dense for each kernel."""

import importlib
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.files import aside, folder_aside
from prunecast.kernels import KERNELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
COMPARED = ("gpu", "m", "k", "n", "dtype", "engine", "state", "launch")
"""Fields in which a dense result must agree with the result whose speedup it gives."""
MOST_NUMBERED = 12
"""Largest number of columns (sparsities) of a grid whose cells show numbers."""


class SpeedupGrid(NamedTuple):
    """Speedups over dense for one GPU, kernel and pattern: one row per shape, one column per sparsity."""

    gpu: str
    kernel: str
    pattern: str
    shapes: tuple[str, ...]
    sparsities: tuple[float, ...]
    speedups: Any
    """(shapes, sparsities) float64, NaN without a result."""


def with_speedups(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the additional field `speedup_over_dense`.

    The field is None if the case cannot be run, or if there is no dense result that agrees in all fields of
    `COMPARED`: a file can contain results of several formats, engines and clock states.
    """
    compared = itemgetter(*COMPARED)
    dense = {compared(r): r["seconds"] for r in rows if KERNELS[r["kernel"]].is_baseline}
    found = []
    for row in rows:
        base_s = dense.get(compared(row))
        speedup = base_s / row["seconds"] if base_s and row["seconds"] else None
        found.append({**row, "speedup_over_dense": speedup})
    return found


def speedup_grids(rows: Sequence[Row]) -> list[SpeedupGrid]:
    """Return one grid per GPU, kernel and pattern, for patterns without a fixed sparsity."""
    of_kind: dict[tuple[str, str, str], list[Row]] = {}
    for r in with_speedups(rows):
        if r["sparsity"] is not None:
            of_kind.setdefault((r["gpu"], r["kernel"], r["pattern"]), []).append(r)
    grids = []
    for (gpu, kernel, pattern), mine in sorted(of_kind.items()):
        shapes = tuple(sorted({shape_text(r) for r in mine}, key=_by_size))
        sparsities = tuple(sorted({r["sparsity"] for r in mine}))
        speedups = np.full((len(shapes), len(sparsities)), np.nan)
        for r in mine:
            place = shapes.index(shape_text(r)), sparsities.index(r["sparsity"])
            speedups[place] = r["speedup_over_dense"] or np.nan
        grids.append(SpeedupGrid(gpu, kernel, pattern, shapes, sparsities, speedups))
    return grids


def write_pictures(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write one SVG file per grid of speedups to a folder; return the paths.

    Raises
    ------
    BadInput : no kernel has results at given sparsities, or the folder cannot be written
    """
    grids = speedup_grids(rows)
    if not grids:
        raise BadInput("pictures need a pattern at several sparsities and dense; there is none")
    with folder_aside(folder) as unfinished:
        return [folder / _write(grid, unfinished) for grid in grids]


def _write(grid: SpeedupGrid, folder: Path) -> str:
    """Draw one grid to a file in the folder; return the name of the file."""
    from prunecast.axes import new_axes, write_figure

    axes = new_axes(7.0, 1.6 + 0.3 * len(grid.shapes))
    draw_grid(grid, axes)
    name = f"{grid.gpu}-{grid.kernel}-{grid.pattern}.svg".replace(":", "_").replace("/", "_")
    write_figure(axes, folder / name)
    return name


def draw_grid(grid: SpeedupGrid, axes: "Axes") -> None:
    """Draw a grid as a heat map of speedups; cells of cases that cannot be run are grey.

    The highest speedup has the darkest colour if it is at least 1.1. Smaller gains stay pale.
    A black line in each row is left of the first sparsity at which the kernel is faster than dense.
    """
    from matplotlib.colors import TwoSlopeNorm

    most = max(float(np.nanmax(grid.speedups, initial=1.0)), 1.1)
    norm = TwoSlopeNorm(1.0, vmin=0.0, vmax=most)
    axes.set_facecolor("0.85")
    image = axes.imshow(grid.speedups, aspect="auto", cmap="RdBu", norm=norm)
    for place, row in enumerate(grid.speedups):
        wins = np.flatnonzero(row > 1.0)
        if wins.size:
            ends = [place - 0.5, place + 0.5]
            axes.plot([wins[0] - 0.5] * 2, ends, color="black", linewidth=3.0, clip_on=False)
    if len(grid.sparsities) <= MOST_NUMBERED:
        _write_numbers(axes, grid, norm)
    axes.set_xticks(range(len(grid.sparsities)), [f"{100 * s:.4g}" for s in grid.sparsities])
    axes.set_yticks(range(len(grid.shapes)), grid.shapes, fontsize="small")
    axes.set(xlabel="sparsity, %; black line: beats dense from here on", ylabel="M x K x N (tokens)")
    axes.set_title(f"{grid.kernel} on {grid.pattern}, {grid.gpu}", fontsize="medium")
    axes.figure.colorbar(image, ax=axes, label="speedup over dense")


def _write_numbers(axes: "Axes", grid: SpeedupGrid, norm: Callable[[float], float]) -> None:
    """Write the speedup into each cell (`no` in grey ones), in white on the darkest colours."""
    for (row, column), speedup in np.ndenumerate(grid.speedups):
        dark = bool(abs(norm(speedup) - 0.5) > 0.35)
        text, colour = (
            ("no", "0.35") if np.isnan(speedup) else (f"{speedup:.2f}", "white" if dark else "black")
        )
        axes.text(column, row, text, ha="center", va="center", fontsize="small", color=colour)


def shape_text(row: Row) -> str:
    """Return the sizes of a product, such as `4096x4096x2048`."""
    return f"{row['m']}x{row['k']}x{row['n']}"


def _by_size(shape: str) -> tuple[int, list[int]]:
    """Return the sort key of a shape: the number of multiply-adds, then the sizes."""
    parts = [int(part) for part in shape.split("x")]
    return int(np.prod(parts)), parts


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows of a `SweepStore` as one Parquet file, atomically.

    Raises
    ------
    BadInput : the package `pyarrow` is not installed, or the file cannot be written
    """
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise BadInput("Parquet needs the package pyarrow: pip install 'prunecast[sweep]'") from None
    with aside(path) as unfinished:
        parquet.write_table(arrow.Table.from_pylist(list(rows)), unfinished)
