"""Tables for people: at most 100 columns wide, plain where there is no terminal."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from prunecast.cli.words import printable

WIDTH = 100
WIDE = 1000
"""Where nobody looks, no word is broken."""
NOTHING = 1e-9


class Column(NamedTuple):
    """Heading of a column; numbers stand right, words left."""

    heading: str
    number: bool = False


class _Printable(Console):
    """Spells out the control characters of every text that it prints; cells of tables are `safe` already."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Prints through `rich.console.Console.print`."""
        super().print(*(_lines(o) if isinstance(o, str) else o for o in objects), **options)


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def console() -> Console:
    """A console on stdout, never wider than 100 columns; in a file or a pipe as wide as the table is."""
    out = Console(highlight=False, soft_wrap=False)
    return _Printable(highlight=False, width=min(out.width, WIDTH) if out.is_terminal else WIDE)


def grid(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, to: Console) -> Table:
    """A table of plain cells; cells are printed as they are, square brackets included."""
    # Without a terminal there is nobody to please with drawn lines, and columns are easier to cut.
    table = Table(box=box.SIMPLE_HEAD if to.is_terminal else None, pad_edge=False, header_style="bold")
    for column in columns:
        place = len(table.columns)
        longest = max((len(row[place]) for row in rows), default=0)
        table.add_column(
            safe(column.heading),
            justify="right" if column.number else "left",
            overflow="fold",
            # Headings may be folded, numbers may not.
            min_width=longest if column.number else None,
        )
    for row in rows:
        table.add_row(*(safe(cell) for cell in row))
    return table


def aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Plain lines, the headings first, with equally wide cells: for tables with lines of text in between."""
    widths = [
        max(len(cell) for cell in cells) for cells in zip([c.heading for c in columns], *rows, strict=True)
    ]
    lines = [[column.heading for column in columns], *rows]
    return [
        "  ".join(_padded(*cell) for cell in zip(line, columns, widths, strict=True)).rstrip()
        for line in lines
    ]


def _padded(cell: str, column: Column, width: int) -> str:
    return cell.rjust(width) if column.number else cell.ljust(width)


def safe(text: str) -> str:
    """Text that Rich and the terminal take literally: markup escaped, control characters spelled out."""
    return escape(printable(text))


def significant(value: float, digits: int = 3) -> str:
    """`digits` significant digits: 1234.5 -> 1234, 0.012345 -> 0.0123; whole numbers as they are.

    What rounding left of nothing, 4.7e-16, is 0.
    """
    if isinstance(value, int) or abs(value) < NOTHING:
        return f"{value:.0f}"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    if whole:
        return f"{value:.{max(0, digits - whole)}f}"
    return f"{value:.{digits}g}"


def microseconds(seconds: float) -> str:
    """Seconds as microseconds with three significant digits."""
    return significant(seconds * 1e6)


def percent(share: float) -> str:
    """0.754 -> 75.4."""
    return f"{100 * share:.1f}"
