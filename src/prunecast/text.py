"""Format numbers and names for people, and tables as plain text, HTML and Markdown."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

NOTHING = 1e-9
"""Absolute values below this are printed as 0, in any unit."""

Cells = Mapping[str, str]
"""One row of a table: heading -> cell."""


def printable(text: str) -> str:
    """Return the text with unprintable characters, also line ends, replaced by escape sequences."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def significant(value: Any) -> str:
    """Return a float as text with three significant digits, but with all digits before the decimal point.

    1234.5 gives 1234, and 0.012345 gives 0.0123. Floats below 1e-9 are rounding errors and give 0. Integers
    keep all digits, and texts are returned unchanged.
    """
    if not isinstance(value, float):
        return str(value)
    if abs(value) < NOTHING:
        return "0"
    return f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}" if abs(value) >= 1 else f"{value:.3g}"


def microseconds(seconds: float) -> str:
    """Return a time in seconds as microseconds with three significant digits."""
    return significant(1e6 * seconds)


def percent(share: float) -> str:
    """Return a share in percent with one decimal: 0.754 gives 75.4."""
    return f"{100 * share:.1f}"


def shortened(text: str, width: int) -> str:
    """Return the text, with its middle replaced by `..` if it is longer than `width` characters."""
    if len(text) <= width:
        return text
    end = (width - 2) // 2
    return f"{text[: width - 2 - end]}..{text[len(text) - end :]}"


def milliseconds(seconds: float) -> str:
    """Return a time in seconds as milliseconds with three significant digits: 6.52, 79.3, 922."""
    return significant(1e3 * seconds)


def gigabytes(size: float) -> str:
    """Return a size in bytes as GB (1e9 bytes) with three significant digits and at most two decimals."""
    return significant(round(size / 1e9, 2))


def table_text(rows: Sequence[Cells], *, words: Collection[str]) -> str:
    """Return the rows as aligned lines, headings first.

    Columns whose heading is in `words` are left-aligned, all others right-aligned.
    """
    lines = [[printable(cell) for cell in line] for line in (rows[0], *(row.values() for row in rows))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if heading in words else cell.rjust(width)
            for cell, width, heading in zip(line, widths, rows[0], strict=True)
        ).rstrip()
        for line in lines
    )


def table_html(rows: Sequence[Cells]) -> str:
    """Return the rows as an HTML `table` element; headings and cells are escaped."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row.values())}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def table_markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. Cells may contain Markdown and are not escaped."""
    lines = [" | ".join(line) for line in (headings, ["---"] * len(headings), *rows)]
    return "\n".join(f"| {line} |" for line in lines)
