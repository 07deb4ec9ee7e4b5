"""Rows of finished work, appended one by one, so that a step that is run again goes on where it ended."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Rows:
    """The rows of one file, JSON by lines, that several processes may append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def read(self, **wanted: Any) -> list[Row]:
        """All rows with these values."""
        if not self.path.exists():
            return []
        rows = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]

    def last(self, **wanted: Any) -> Row | None:
        """The newest of them."""
        found = self.read(**wanted)
        return found[-1] if found else None

    def add(self, row: Row) -> None:
        """Append one."""
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(row) + "\n")
        print(
            json.dumps({name: value for name, value in row.items() if not isinstance(value, dict)}),
            flush=True,
        )


@contextmanager
def turn(lock: Path, *, alone: bool) -> Iterator[None]:
    """A process's turn on a device: by itself, or beside others that do not ask for that.

    Who waits to be alone holds the door, so that no one else comes in before.
    """
    with lock.with_suffix(".door").open("w") as door, lock.open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(door, fcntl.LOCK_UN)
        yield


def part_of(todo: Sequence[Row], part: str) -> list[Row]:
    """Every N-th of what is to do, for `I/N`."""
    number, count = (int(each) for each in part.split("/"))
    return list(todo[number - 1 :: count])


def work_through(rows: Rows, todo: Sequence[Row], work: Callable[[Row], Row], seconds: float) -> None:
    """Do what has no row yet, one after another, beginning nothing after `seconds`; a failure is said."""
    begun = time.monotonic()
    for key in todo:
        if rows.last(**key) is not None:
            continue
        if time.monotonic() - begun > seconds:
            print(f"{seconds:g} s are over, {key} and what follows are left", flush=True)
            return
        start = time.monotonic()
        try:
            found = work(key)
        except Exception as failed:
            print(
                f"failed: {key}: {type(failed).__name__}: {' '.join(str(failed).split())[:300]}", flush=True
            )
            continue
        rows.add({**key, **found, "took_s": round(time.monotonic() - start, 2)})
