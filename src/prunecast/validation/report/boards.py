"""How far GPUs of one model differ on the same plan and build: what no prediction of a GPU model can know."""

import math
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from prunecast.validation.judged import Judged

__all__ = ["BoardSpread", "board_spreads"]


class BoardSpread(NamedTuple):
    """Rows of one kernel and state that several runs measured."""

    kernel: str
    state: str
    rows: int
    runs: float
    """Per row, on average."""
    middle: float
    """Slowest run over the fastest, less 1: median of the rows."""
    p90: float
    """Spread that nine rows of ten stay below."""


def board_spreads(rows: Iterable[Judged]) -> list[BoardSpread]:
    """One entry for every kernel and state with rows of several runs."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for row in rows:
        if row.measured.board_spread is not None:
            groups.setdefault((row.family, row.case.state), []).append(row)
    return [_spread(kernel, state, own) for (kernel, state), own in sorted(groups.items())]


def _spread(kernel: str, state: str, rows: list[Judged]) -> BoardSpread:
    spreads = sorted(row.measured.board_spread or 0.0 for row in rows)
    runs = sum(len(row.measured.board_seconds) for row in rows) / len(rows)
    nine_of_ten = spreads[math.ceil(0.9 * len(rows)) - 1]
    return BoardSpread(kernel, state, len(rows), runs, median(spreads), nine_of_ten)
