"""Predictions as a table: HTML for notebooks, plain text for `print`."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_HEADERS = (
    "layer",
    "M",
    "K",
    "N",
    "kernel",
    "pattern",
    "sparsity",
    "us",
    "90 % interval, us",
    "over dense",
    "bound",
)


def predictions_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """One `table` element of the rows of `Prediction.row`; names are escaped."""
    return cells_html([_HEADERS, *map(_cells, rows)])


def cells_html(lines: Sequence[Sequence[str]]) -> str:
    """One `table` element, its first line a heading; texts are escaped."""
    head, *rows = (f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    titles = head.replace("<td>", "<th>").replace("</td>", "</th>")
    return f"<table><thead>{titles}</thead><tbody>{''.join(rows)}</tbody></table>"


def predictions_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Aligned lines of the same cells, numbers to the right; control characters are spelled out."""
    return cells_text([_HEADERS, *map(_cells, rows)], words=("layer", "kernel", "pattern", "bound"))


def cells_text(lines: Sequence[Sequence[str]], *, words: Sequence[str]) -> str:
    """Aligned lines, a heading first; columns that are no `words` to the right."""
    shown = [tuple(map(_printable, line)) for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if heading in words else cell.rjust(width)
            for cell, width, heading in zip(line, widths, shown[0], strict=True)
        ).rstrip()
        for line in shown
    )


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _cells(row: Mapping[str, Any]) -> list[str]:
    us = {name: f"{1e6 * row[name]:.2f}" for name in ("seconds", "seconds_low", "seconds_high")}
    return [
        *(str(row[name]) for name in ("layer", "m", "k", "n", "kernel", "pattern")),
        f"{row['sparsity']:.3f}",
        us["seconds"],
        f"{us['seconds_low']} to {us['seconds_high']}",
        f"{row['speedup_over_dense']:.2f}x",
        row["bound"],
    ]
