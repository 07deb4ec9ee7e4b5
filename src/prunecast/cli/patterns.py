"""`prunecast patterns`: the pruning patterns, how to spell them, and which kernels run them."""

from typing import TYPE_CHECKING

from prunecast.cli import options as opt
from prunecast.cli.output import Report, Row, deliver, destination

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["MEANING", "patterns"]

MEANING = {
    "dense": "nothing is removed",
    "unstructured": "single weights, wherever they stand",
    "block": "rectangles of HEIGHTxWIDTH stay or go as a whole",
    "n-of-m": "of every M neighbours in a row, N stay",
    "balanced": "every segment of WIDTH columns of a row keeps equally many",
    "vector-wise": "HEIGHT consecutive rows share their kept columns, equally many in every group",
    "shuffled-block": "as vector-wise, on groups of rows from anywhere in the matrix",
    "tile-wise": "HEIGHT consecutive rows share their kept columns",
    "tile-wise-2d": "whole rows go first, then as tile-wise on the rest",
    "tile-element": "as tile-wise, then the best PERCENT of all weights come back (HEIGHTxPERCENT)",
    "apriori": "as tile-wise; unstructured pruning decides about the clearest PERCENT of segments first",
    "atp": "as tile-wise, with about equally many columns in all tiles; see HEIGHTxQUANTUMxLOW-HIGH:shuffled",
    "atp-2d": "whole rows go first, then as atp on the rest",
    "dense-block": "at most CLUSTERS dense blocks of rows and columns from anywhere",
    "tvw": "as tile-wise, then 2:4 on the columns that are left in each tile",
    "vnm": "V:2:M: V rows share 4 of every M columns, and each of them keeps 2 of the 4",
    "zeros": "the weights are pruned already: what is not zero stays",
    "zero-tiles": "as zeros, seen in tiles: HEIGHT rows keep a column where any of them does",
}
"""Family -> one line for people."""


def patterns(as_json: opt.Json = False, as_csv: opt.Csv = False, output: opt.Output = None) -> None:
    """Patterns that weights can be pruned to. Shows an example of each, and the kernels that run it."""
    to = destination(as_json, as_csv, output)
    rows = _rows()
    from prunecast.version import tool_version

    document = {"schema_version": 1, "version": tool_version(), "patterns": rows}
    flat = [{**row, "kernels": " ".join(row["kernels"])} for row in rows]
    deliver(to, Report(document, flat, lambda console: _show(rows, console)))


def _rows() -> list[Row]:
    from prunecast.codesign.candidates import kernels_of
    from prunecast.patterns import PATTERNS

    return [
        {
            "family": family,
            "example": pattern.example,
            "kernels": list(kernels_of(pattern.example)),
            "meaning": MEANING.get(family, ""),
        }
        for family, pattern in PATTERNS.items()
    ]


def _show(rows: list[Row], console: "Console") -> None:
    from prunecast.cli.tables import Column, grid

    columns = [Column("pattern"), Column("example"), Column("kernels"), Column("meaning")]
    cells = [[row["family"], row["example"], ", ".join(row["kernels"]), row["meaning"]] for row in rows]
    console.print(grid(columns, cells, to=console))
