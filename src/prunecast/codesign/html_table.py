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
    head = "".join(f"<th>{name}</th>" for name in _HEADERS)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def predictions_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Aligned lines of the same cells, numbers to the right; control characters are spelled out."""
    lines = [_HEADERS, *(tuple(map(_printable, _cells(row))) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    words = ("layer", "kernel", "pattern", "bound")
    return "\n".join(
        "  ".join(
            cell.ljust(width) if heading in words else cell.rjust(width)
            for cell, width, heading in zip(line, widths, _HEADERS, strict=True)
        ).rstrip()
        for line in lines
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
