"""Errors suite by suite: those of one that came late show how predictions hold where nobody had looked."""

from collections.abc import Sequence
from typing import NamedTuple

from prunecast.validation.errors import ErrorSummary
from prunecast.validation.judged import Judged, summarise
from prunecast.validation.records import read_runs

__all__ = ["SuiteErrors", "suite_errors"]


class SuiteErrors(NamedTuple):
    """Errors of one kernel's rows of one suite."""

    suite: str
    kernel: str
    summary: ErrorSummary


def suite_errors(rows: Sequence[Judged], records: Sequence[str], engine: str) -> list[SuiteErrors]:
    """By suite and kernel, in order; empty where all records are of one suite.

    Parameters
    ----------
    rows : of one use and one state
    records : paths of the records that they come from
    """
    runs = [run for record in records for run in read_runs(record)]
    suite_of = {row.case.name: run.header.suite for run in runs for row in run.rows}
    if len(set(suite_of.values())) < 2:
        return []
    found = []
    for suite, kernel in sorted({(suite_of[row.case.name], row.family) for row in rows}):
        own = [row for row in rows if (suite_of[row.case.name], row.family) == (suite, kernel)]
        summary = summarise(own, engine)
        if summary is not None:
            found.append(SuiteErrors(suite, kernel, summary))
    return found
