"""Print a result as table, JSON or CSV, and write it to a file."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from prunecast.text import printable

if TYPE_CHECKING:
    from prunecast.cli.options import PrintForm
    from prunecast.cli.tables import Page

FORMULA = ("=", "+", "-", "@")
"""First characters of texts that spreadsheets would run as formulas."""

Document = dict[str, Any]
"""JSON object that `--json` prints; `docs/reference/json_schema.json` states its entries."""
Row = dict[str, Any]
"""Column -> value of a line of `--csv`."""


class Report(NamedTuple):
    """One result in its three formats: JSON document, CSV rows, and a function that prints a table."""

    document: Document
    """Content of the JSON output."""
    rows: Sequence[Row]
    """Content of the CSV output: flat rows with the same keys."""
    show: "Callable[[Page], None]"
    """Function that prints the result as tables and text."""


def deliver(to: "PrintForm", report: Report) -> None:
    """Write the result to its file, if one is requested, then print it.

    The file is written atomically: if writing fails, an existing file stays unchanged.
    """
    if to.path is not None:
        from prunecast.files import write_text_aside

        write_text_aside(to.path, _render(to.path.suffix[1:], report))
    if to.as_json or to.as_csv:
        sys.stdout.write(_render("json" if to.as_json else "csv", report))
    else:
        from prunecast.cli.tables import Page

        report.show(Page())


def _render(form: str, report: Report) -> str:
    if form == "csv":
        return _csv_text(report.rows)
    from prunecast.codesign.provenance import json_text

    return json_text(report.document)


def _csv_text(rows: Sequence[Row]) -> str:
    import csv
    import io

    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writerow({name: _cell(name) for name in rows[0]})
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return a text with control characters escaped and formulas quoted; keep values of other types."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULA) else text
