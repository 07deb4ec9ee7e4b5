"""`Page`: print text and tables, at most 100 columns wide on a terminal, and without lines elsewhere."""

from collections.abc import Collection, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from prunecast.text import Cells, printable

WIDTH = 100
WIDE = 1000
"""Width in characters of a table that is not printed on a terminal, so that no word is broken."""


class Page:
    """Prints text and tables for people. Texts are printed literally, with control characters escaped.

    Parameters
    ----------
    console : console that prints; None for stdout, where files and pipes get tables of any width
    """

    def __init__(self, console: Console | None = None) -> None:
        out = Console(highlight=False, soft_wrap=False)
        width = min(out.width, WIDTH) if out.is_terminal else WIDE
        self._console = console or Console(highlight=False, width=width)

    def say(self, *lines: str, style: str | None = None) -> None:
        """Print lines, which the terminal may fold. Without arguments, print an empty line."""
        shown = "\n".join(map(printable, lines))
        self._console.print(shown, style=style, markup=False, soft_wrap=True)

    def table(self, rows: Sequence[Cells], *, words: Collection[str] = ()) -> None:
        """Print a table, or nothing if there are no rows.

        Columns whose heading is in `words` are left-aligned. All others are numbers and right-aligned.
        """
        if not rows:
            return
        # Without a terminal, omit drawn lines, so that tools can split the columns.
        drawn = box.SIMPLE_HEAD if self._console.is_terminal else None
        table = Table(box=drawn, pad_edge=False, header_style="bold")
        for heading in rows[0]:
            is_word = heading in words
            table.add_column(
                _safe(heading),
                justify="left" if is_word else "right",
                overflow="fold",
                # Headings may be folded, but numbers must not be.
                min_width=None if is_word else max(len(row[heading]) for row in rows),
            )
        for row in rows:
            table.add_row(*map(_safe, row.values()))
        if self._console.is_terminal:
            self._console.print(table)
            return
        with self._console.capture() as captured:
            self._console.print(table)
        lines = [line.rstrip() for line in captured.get().splitlines()]
        self._console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _safe(text: str) -> str:
    """Return text that Rich and the terminal print literally."""
    return escape(printable(text))
