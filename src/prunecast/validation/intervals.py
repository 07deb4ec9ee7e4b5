"""The table of validated error behind every prediction's interval.

Split conformal: the quantiles come from the cases used for fitting, how many of the others they hold is
reported beside them. With n cases the interval reaches from the floor((n + 1) 0.05)-th to the
ceil((n + 1) 0.95)-th of them, so that a new case of the same kind lies inside with 90 % (Vovk, Gammerman,
Shafer, Algorithmic Learning in a Random World, 2005); with fewer than 19 the outermost ones are taken.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from prunecast.validation.judged import Judged
from prunecast.validation.validate import Validation

__all__ = ["FEWEST_CASES", "Coverage", "coverages", "interval_table"]

FEWEST_CASES = 8
SHARE = 0.9


class Coverage(NamedTuple):
    """One row of the table."""

    gpu: str
    kernel: str
    state: str
    engine: str
    low: float
    """Measured over predicted time, lower bound."""
    high: float
    fit_cases: int
    judge_cases: int
    coverage: float
    """Share of the judging cases inside."""
    seconds: tuple[float, float]
    """Range of predicted times of all cases."""
    tokens: tuple[int, int]


def coverages(validation: Validation) -> list[Coverage]:
    """One row for every kernel, state and engine with at least eight fitting cases."""
    found = []
    for kernel, state in sorted({(row.family, row.case.state) for row in validation.rows}):
        rows = [r for r in validation.rows if r.counts and (r.family, r.case.state) == (kernel, state)]
        fit = [row for row in rows if row.case.use == "fit"]
        if len(fit) < FEWEST_CASES:
            continue
        for engine in validation.engines:
            found.append(_coverage(validation.gpu.name, kernel, state, engine, fit, rows))
    return found


def _coverage(
    gpu: str, kernel: str, state: str, engine: str, fit: Sequence[Judged], rows: Sequence[Judged]
) -> Coverage:
    low, high = _bounds([_ratio(row, engine) for row in fit])
    judge = [_ratio(row, engine) for row in rows if row.case.use == "judge"]
    inside = sum(low <= ratio <= high for ratio in judge)
    times = [row.predicted[engine].seconds for row in rows]
    tokens = [row.case.n for row in rows]
    share = inside / len(judge) if judge else math.nan
    span, count = (min(times), max(times)), (min(tokens), max(tokens))
    return Coverage(gpu, kernel, state, engine, low, high, len(fit), len(judge), share, span, count)


def _ratio(row: Judged, engine: str) -> float:
    return float(row.measured.seconds or 0.0) / row.predicted[engine].seconds


def _bounds(ratios: Iterable[float]) -> tuple[float, float]:
    ordered = sorted(ratios)
    n = len(ordered)
    low = max(math.floor((n + 1) * (1 - SHARE) / 2), 1)
    high = min(math.ceil((n + 1) * (1 + SHARE) / 2), n)
    return ordered[low - 1], ordered[high - 1]


def interval_table(validation: Validation) -> str:
    """The text of `validated.toml`."""
    head = (
        "# Made by `prunecast validate --replay RECORDS --intervals FILE`; not written by hand.\n"
        "# low, high: measured over predicted time that 90 % of the fitting cases keep; coverage: share of\n"
        "# the judging cases inside.\nschema = 1\n"
    )
    return head + "".join(_entry(row) for row in coverages(validation))


def _entry(row: Coverage) -> str:
    coverage = 0.0 if math.isnan(row.coverage) else row.coverage
    return (
        f'\n[[validated]]\ngpu = "{row.gpu}"\nkernel = "{row.kernel}"\nstate = "{row.state}"\n'
        f'engine = "{row.engine}"\nlow = {row.low:.4f}\nhigh = {row.high:.4f}\n'
        f"fit_cases = {row.fit_cases}\njudge_cases = {row.judge_cases}\ncoverage = {coverage:.3f}\n"
        f"seconds = [{row.seconds[0]:.4g}, {row.seconds[1]:.4g}]\n"
        f"tokens = [{row.tokens[0]}, {row.tokens[1]}]\n"
    )
