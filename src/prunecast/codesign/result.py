"""`Result`: base class of the results of all commands, with conversion to data frame, JSON and HTML."""

import importlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from prunecast.codesign.provenance import json_text
from prunecast.errors import BadInput
from prunecast.text import Cells, table_html


class Result:
    """Base class of the results of all commands."""

    __slots__ = ()

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""

    @abstractmethod
    def frame_rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the data frame, with times in seconds."""

    @abstractmethod
    def cells(self) -> list[Cells]:
        """Return the rows of the printed table: column title -> text."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks and warnings about the numbers, one text each."""
        return ()

    @property
    def headlines(self) -> tuple[str, ...]:
        """Lines of text that notebooks show above the table."""
        return ()

    def to_dataframe(self) -> Any:
        """Return the rows as a pandas DataFrame, one column per field. Raise BadInput without pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise BadInput("to_dataframe needs the package pandas: pip install pandas") from None
        return pandas.DataFrame([dict(row) for row in self.frame_rows()])

    def to_json(self) -> str:
        """Return the document as JSON text, as the command prints it with `--json`."""
        return json_text(self.document())

    def _repr_html_(self) -> str:
        cells, notes = self.cells(), self.notes
        head = "".join(f"<p><b>{escape(line)}</b></p>" for line in self.headlines)
        listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
        tail = f"<details><summary>{len(notes)} notes</summary><ul>{listed}</ul></details>" if notes else ""
        return head + (table_html(cells) if cells else "") + tail
