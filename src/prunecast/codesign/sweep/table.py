"""`SweepTable`: the results of a sweep as a table with one row for each case."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prunecast.codesign.result import Result
from prunecast.codesign.sweep.pictures import draw_grid, shape_text, speedup_grids, with_speedups
from prunecast.errors import BadInput
from prunecast.text import Cells, microseconds, percent, table_text
from prunecast.version import headed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = ("gpu", "shape", "pattern", "kernel", "conditions", "note")
"""Columns of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTable(Result):
    """The results of a sweep as a sequence of dictionaries, one for each case.

    Parameters
    ----------
    rows : the dictionaries. For a case that cannot be run, `seconds` is None and `error` has the reason
    """

    rows: tuple[dict[str, Any], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self.rows[place]

    def __str__(self) -> str:
        return table_text(self.cells(), words=WORDS)

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `prunecast sweep --json`."""
        return headed({"rows": self.frame_rows()})

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the rows with the additional field `speedup_over_dense`, see `with_speedups`."""
        return with_speedups(self.rows)

    def cells(self) -> list[Cells]:
        """Return the table as texts, one row per case, with a column of conditions if they differ."""
        are_mixed = len({(row["state"], row["launch"]) for row in self.rows}) > 1
        return [
            {
                "gpu": row["gpu"],
                "shape": shape_text(row),
                "pattern": row["pattern"],
                "kernel": row["kernel"],
                "removed %": "" if row["sparsity"] is None else percent(row["sparsity"]),
                **({"conditions": f"{row['state']}, {row['launch']}"} if are_mixed else {}),
                "time us": microseconds(row["seconds"]) if row["seconds"] else "-",
                "speedup": "" if not row["speedup_over_dense"] else f"{row['speedup_over_dense']:.2f}x",
            }
            for row in self.frame_rows()
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Number of cases that cannot be run, with the reason for the first one, as one text.

        The tuple is empty if all cases can be run.
        """
        refused = [row for row in self.rows if row["error"]]
        return (f"{len(refused)} cases cannot be run, the first: {refused[0]['error']}",) if refused else ()

    def plot(self, kernel: str | None = None) -> "Figure":
        """Draw the speedups of one kernel as a heat map over shapes and sparsities, in a new figure.

        Parameters
        ----------
        kernel : name of the kernel; None for the first one (by GPU, kernel and pattern) that can be drawn

        Raises
        ------
        BadInput : `kernel` (or, for None, every kernel) lacks results of a pattern without a fixed sparsity
        """
        from prunecast.axes import new_axes

        grids = [grid for grid in speedup_grids(self.rows) if kernel in (None, grid.kernel)]
        if not grids:
            raise BadInput(f"wanted a pattern at several sparsities and dense for {kernel or 'any'}")
        axes = new_axes(7.0, 1.6 + 0.3 * len(grids[0].shapes))
        draw_grid(grids[0], axes)
        figure = axes.get_figure(root=True)
        assert figure is not None
        return figure
