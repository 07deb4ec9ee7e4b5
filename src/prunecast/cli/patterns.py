"""`prunecast patterns`: list the pruning patterns, their spelling, and the kernels that run them."""

from typing import TYPE_CHECKING

from prunecast.cli import options as opt
from prunecast.cli.output import Report, Row, deliver
from prunecast.version import headed

if TYPE_CHECKING:
    from prunecast.cli.tables import Page


def patterns(printed: opt.Printed) -> None:
    """Patterns that weights can be pruned to. Shows an example of each, and the kernels that run it."""
    rows = _rows()
    flat = [{**row, "kernels": " ".join(row["kernels"])} for row in rows]
    deliver(printed, Report(headed({"patterns": rows}), flat, lambda page: _show(rows, page)))


def _rows() -> list[Row]:
    from prunecast.patterns import PATTERNS
    from prunecast.workload.candidates import kernels_of

    return [
        {
            "family": family,
            "example": pattern.example,
            "kernels": list(kernels_of(pattern.example)),
            "meaning": pattern.meaning,
        }
        for family, pattern in PATTERNS.items()
    ]


def _show(rows: list[Row], page: "Page") -> None:
    page.table(
        [
            {
                "pattern": row["family"],
                "example": row["example"],
                "kernels": ", ".join(row["kernels"]),
                "meaning": row["meaning"],
            }
            for row in rows
        ],
        words=("pattern", "example", "kernels", "meaning"),
    )
