"""The summary: one line for each layer, and what it says about pruning it."""

from typing import NamedTuple

from prunecast.codesign.prediction import Prediction
from prunecast.codesign.table import PredictionTable, fastest

__all__ = ["SummaryLine", "summary_of"]

LEAST_GAIN = 1.02
"""A speedup below this is none."""


class SummaryLine(NamedTuple):
    """One layer."""

    dense: Prediction
    best: Prediction
    rows: tuple[Prediction, ...]
    verdict: str
    sure: str
    """`win` or `loss` where intervals do not overlap, else `open`."""


def summary_of(table: PredictionTable) -> list[SummaryLine]:
    """A line for each layer, in the order of the weights."""
    return [_line(rows) for rows in table.layers()]


def _line(rows: tuple[Prediction, ...]) -> SummaryLine:
    dense, best = rows[0], fastest(rows)
    sparse = fastest(rows[1:]) if len(rows) > 1 else None
    if sparse is None:
        return SummaryLine(dense, best, rows, "nothing to compare with", "open")
    if best.speedup_over_dense >= LEAST_GAIN:
        sure = best.seconds_high < dense.seconds_low
        verdict = "pays" if sure else "may pay"
        return SummaryLine(dense, best, rows, verdict, "win" if sure else "open")
    sure = dense.seconds_high < sparse.seconds_low
    verdict = "stay dense" if sure else "no gain seen"
    return SummaryLine(dense, best, rows, verdict, "loss" if sure else "open")
