"""`prunecast patterns`: the pruning patterns, how to spell them, and which kernels run them."""

from typing import TYPE_CHECKING

from prunecast.cli import options as opt
from prunecast.cli.output import Report, Row, deliver

if TYPE_CHECKING:
    from rich.console import Console


def patterns(printed: opt.Printed) -> None:
    """Patterns that weights can be pruned to. Shows an example of each, and the kernels that run it."""
    to = printed.destination()
    rows = _rows()
    from prunecast.version import tool_version

    document = {"schema_version": 1, "version": tool_version(), "patterns": rows}
    flat = [{**row, "kernels": " ".join(row["kernels"])} for row in rows]
    deliver(to, Report(document, flat, lambda console: _show(rows, console)))


def _rows() -> list[Row]:
    from prunecast.codesign.contestants import kernels_of
    from prunecast.patterns import PATTERNS

    return [
        {
            "family": family,
            "example": pattern.example,
            "kernels": list(kernels_of(pattern.example)),
            "meaning": pattern.meaning,
        }
        for family, pattern in PATTERNS.items()
    ]


def _show(rows: list[Row], console: "Console") -> None:
    from prunecast.cli.tables import Column, grid

    columns = [Column("pattern"), Column("example"), Column("kernels"), Column("meaning")]
    cells = [[row["family"], row["example"], ", ".join(row["kernels"]), row["meaning"]] for row in rows]
    console.print(grid(columns, cells, to=console))
