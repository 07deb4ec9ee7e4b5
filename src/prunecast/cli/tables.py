"""`Page`: print text and tables, at most 100 columns wide on a terminal, and without lines elsewhere."""

from collections.abc import Collection, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from prunecast.text import Cells, printable, table_text

WIDTH = 100


class Page:
    """Printer of text and tables for people. Texts are printed literally, with control characters escaped.

    Parameters
    ----------
    console : console that prints; None for stdout
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, width=min(Console().width, WIDTH))

    def say(self, *lines: str, style: str | None = None) -> None:
        """Print lines, which the terminal may fold. Without arguments, print an empty line."""
        shown = "\n".join(map(printable, lines))
        self._console.print(shown, style=style, markup=False, soft_wrap=True)

    def table(self, rows: Sequence[Cells], *, words: Collection[str] = ()) -> None:
        """Print a table, or nothing if there are no rows. Files and pipes get plain tables of any width.

        Columns whose heading is in `words` are left-aligned. All others are numbers and right-aligned.
        """
        if not rows:
            return
        if not self._console.is_terminal:
            self.say(*table_text(rows, words=words).split("\n"))
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
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
        self._console.print(table)


def _safe(text: str) -> str:
    """Return text that Rich and the terminal print literally."""
    return escape(printable(text))
