"""`SweepStore`: results in one SQLite file, so that a rerun computes only what is missing."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from prunecast.codesign.sweep.cases import SweepCase
from prunecast.errors import BadInput
from prunecast.files import check_writable
from prunecast.hardware import load_gpu

SCHEMA = 1
_CASE = tuple(field.name for field in fields(SweepCase))
_RESULT = ("seconds", "sparsity_reached", "bound", "error")
COLUMNS = ("key", *_CASE, *_RESULT)
_TYPES = {"m": "INTEGER", "k": "INTEGER", "n": "INTEGER", "seed": "INTEGER"} | dict.fromkeys(
    ("sparsity", "seconds", "sparsity_reached"), "REAL"
)
_KINDS: dict[str, type | tuple[type, ...]] = {"TEXT": str, "INTEGER": int, "REAL": (int, float)}
_MAY_LACK = ("sparsity", *_RESULT)
_OBJECTS = {("table", "results"), ("index", "sqlite_autoindex_results_1")}


class SweepStore:
    """A table `results` with one row per case; a context manager.

    Parameters
    ----------
    path : made if it is not there

    Raises
    ------
    BadInput : the file is no database of this schema; it is left as it was
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        check_writable(path, "results")
        try:
            self._connection = sqlite3.connect(self._path)
            self._connection.execute("PRAGMA trusted_schema = OFF")
            # asked of SQLite and not of the file's size: a run killed in here leaves a journal to roll back
            if not self._objects():
                self._create()
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
            columns = [row[1] for row in self._connection.execute("PRAGMA table_info(results)")]
            # views and triggers would run what a stranger wrote
            foreign = [name for kind, name in self._objects() if (kind, name) not in _OBJECTS]
        except (sqlite3.Error, ValueError) as error:
            raise BadInput(f"{path} must be an SQLite file of results: {error}") from None
        if found != SCHEMA or tuple(columns) != COLUMNS or foreign:
            self._connection.close()
            raise BadInput(f"{path} must be a file of sweep results of schema {SCHEMA}, got schema {found}")

    def __enter__(self) -> "SweepStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def missing(self, cases: Iterable[SweepCase]) -> list[SweepCase]:
        """Cases without a row, in order."""
        known = {row[0] for row in self._read("SELECT key FROM results")}
        wanted = list(cases)
        prints = {name: load_gpu(name).fingerprint for name in {case.gpu for case in wanted}}
        return [case for case in wanted if case.key(prints[case.gpu]) not in known]

    def add(self, cases: Sequence[SweepCase], rows: Sequence[dict[str, Any]]) -> None:
        """Store the results of cases in one transaction; what is stored survives a kill."""
        marks = ", ".join("?" for _ in COLUMNS)
        values = [
            [{**asdict(case), **row}[column] for column in COLUMNS]
            for case, row in zip(cases, rows, strict=True)
        ]
        try:
            with self._connection:
                self._connection.executemany(f"INSERT OR REPLACE INTO results VALUES ({marks})", values)
        except sqlite3.Error as error:
            raise BadInput(f"cannot write {self._path}: {error}") from None

    def rows(self) -> list[dict[str, Any]]:
        """All results, ordered by case."""
        order = ", ".join(_CASE)
        found = self._read(f"SELECT {', '.join(COLUMNS)} FROM results ORDER BY {order}")
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in found]
        for row in rows:
            self._check(row)
        return rows

    def _read(self, query: str) -> list[Any]:
        try:
            return self._connection.execute(query).fetchall()
        except sqlite3.Error as error:
            raise BadInput(f"cannot read {self._path}: {error}") from None

    def _check(self, row: dict[str, Any]) -> None:
        """Refuse values of another type than their column's; SQLite stores any."""
        for name, value in row.items():
            kinds = _KINDS[_TYPES.get(name, "TEXT")]
            if not isinstance(value, kinds) and not (value is None and name in _MAY_LACK):
                raise BadInput(f"{self._path}: {name} of a result must be of {kinds}, got {value!r:.80}")

    def _objects(self) -> list[tuple[str, str]]:
        return self._connection.execute("SELECT type, name FROM sqlite_master").fetchall()

    def _create(self) -> None:
        columns = ", ".join(f"{name} {_TYPES.get(name, 'TEXT')}" for name in COLUMNS[1:])
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")  # Python begins none for what is no INSERT
            self._connection.execute(f"CREATE TABLE results (key TEXT PRIMARY KEY, {columns})")
            self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
