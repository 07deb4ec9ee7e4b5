"""Rows of several runs as one row for each case, kernel and state.

A prediction is of any GPU of its model, a run is of one board on one day, and boards differ by 2 to 5 %. So a
plan that several runs measured with the same build of its kernel (`builds`) counts with the geometric mean of
its times, and what each board said stays beside it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from prunecast.validation.builds import build_of
from prunecast.validation.records import Measurement, Run

__all__ = ["merge_rows"]


class _Read(NamedTuple):
    row: Measurement
    build: str


def merge_rows(runs: Sequence[Run]) -> tuple[Measurement, ...]:
    """One row for each case, kernel and state; runs are given oldest first.

    Which plan and build counts is what the newest run measured; a row that only says `skipped` gives way to
    an older one. Older rows of the same plan and build join it. A newest row that is not usable stands alone.
    """
    found: dict[tuple[str, str, str], list[_Read]] = {}
    for run in runs:
        for row in run.rows:
            read = found.setdefault((row.case.name, row.kernel, row.case.state), [])
            if row.seconds is not None or not read:
                read.append(_Read(row, build_of(run.header, row.kernel, row.case)))
    return tuple(_merged(read) for read in found.values())


def _merged(read: Sequence[_Read]) -> Measurement:
    newest, build = read[-1]
    same = [row for row, other in read if other == build and row.plan == newest.plan and row.usable]
    if not newest.usable or len(same) < 2:
        return newest
    boards = tuple(float(row.seconds or 0.0) for row in same)
    return replace(
        newest,
        seconds=math.exp(_mean(map(math.log, boards))),
        low_s=min((row.low_s for row in same if row.low_s is not None), default=None),
        high_s=max((row.high_s for row in same if row.high_s is not None), default=None),
        samples=sum(row.samples for row in same),
        clock_mhz=_mean_of_known(row.clock_mhz for row in same),
        power_w=_mean_of_known(row.power_w for row in same),
        board_seconds=boards,
    )


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _mean(known) if known else None
