"""Compute further sections of the report: errors by suite, spread of boards, choices, crossovers and causes.

Predictions are used to choose the fastest kernel, and to find the density below which sparse beats dense; two
sections check these uses. Errors on a suite that was added later show how well predictions generalise. Boards
of one GPU model differ even with the same plan and build, and a prediction for the model cannot know this
difference.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from prunecast.kernels import KERNELS
from prunecast.kernels.tile.kernel import STSPMM
from prunecast.launch import USUAL, Conditions
from prunecast.validation.case import Group
from prunecast.validation.judged import ErrorSummary, Judged, errors_of_groups, groups_of
from prunecast.validation.records import read_runs


def suite_errors(
    rows: Sequence[Judged], records: Sequence[str], engine: str
) -> dict[tuple[str, str], ErrorSummary]:
    """Return a sorted dict (suite, kernel) -> errors; it is empty if all records are of one suite.

    Parameters
    ----------
    rows : rows of one use and one state
    records : paths of the records of these rows
    engine : name of the engine
    """
    runs = [run for record in records for run in read_runs(record)]
    suite_of = {row.case.name: run.header.suite for run in runs for row in run.rows}
    if len(set(suite_of.values())) < 2:
        return {}
    return errors_of_groups(rows, lambda row: (suite_of[row.case.name], row.family), engine)


def cause_of(row: Judged, engine: str) -> str:
    """Return one line of text about the likely cause of a prediction error: SM clock, or number of cycles.

    If it is the cycles, the line contains the unit that limits the kernel and further properties of the case.

    The logarithm of predicted over measured time is that of the cycles plus that of measured over predicted
    clock. The clock is the cause if its part has the sign of the error and is more than half of it. The other
    thresholds, too, only select words for readers of the report.
    """
    predicted, measured = row.predicted[engine], row.measured
    if not measured.seconds:
        return "not measured"
    total = math.log(predicted.seconds / measured.seconds)
    clock = math.log(measured.clock_mhz / predicted.clock_mhz) if measured.clock_mhz else 0.0
    cycles = total - clock
    reading = f"clock {predicted.clock_mhz:.0f} for {measured.clock_mhz or 0:.0f} MHz"
    if abs(clock) > 0.5 * abs(total) and clock * total > 0:
        return f"clock: {reading}"
    parts = [f"cycles {100 * math.expm1(cycles):+.0f} %, bound by {predicted.bound}"]
    if row.imbalance > 1.3:
        parts.append(f"imbalance {row.imbalance:.1f}")
    if row.case.n < 64:
        parts.append("few tokens")
    if measured.seconds < 5e-6:
        parts.append("launch and start weigh")
    if measured.spread and measured.spread > 0.5 * abs(math.expm1(total)):
        parts.append(f"samples spread by {100 * measured.spread:.0f} %")
    return ", ".join(parts)


class _BoardSpread(NamedTuple):
    """Spread of measured times between runs, for one kernel and conditions."""

    group: Group
    rows: int
    runs: float
    """Mean number of runs of a row."""
    middle: float
    """Median of `Measurement.board_spread` (slowest time / fastest time - 1) over the rows."""
    p90: float
    """90 % quantile of `Measurement.board_spread` over the rows."""


def board_spreads(rows: Iterable[Judged]) -> list[_BoardSpread]:
    """Return the spread between runs for every group with rows that several runs measured."""
    several = (row for row in rows if row.measured.board_spread is not None)
    found = []
    for group, own in groups_of(several, lambda row: row.group).items():
        spreads = sorted(row.measured.board_spread or 0.0 for row in own)
        runs = sum(len(row.measured.board_seconds) for row in own) / len(own)
        nine_of_ten = spreads[math.ceil(0.9 * len(own)) - 1]
        found.append(_BoardSpread(group, len(own), runs, median(spreads), nine_of_ten))
    return found


class _Decision(NamedTuple):
    """Choice of the kernel with the shortest predicted time among those that were measured on one product."""

    what: str
    """Layer, family of patterns, sparsity and distribution."""
    chosen: str
    """Kernel (and pattern) with the shortest predicted time."""
    fastest: str
    """Kernel (and pattern) with the shortest measured time."""
    regret: float
    """Measured time of `chosen` divided by that of `fastest`, minus 1."""


def choices(rows: Iterable[Judged], engine: str) -> list[_Decision]:
    """Return a choice for each product, sparsity and distribution with several measured alternatives.

    The alternatives are the sparse kernels and tile heights that were measured, and the dense kernel.
    """
    counted = [row for row in rows if row.counts]
    dense = {_layer(row): row for row in counted if KERNELS[row.family].is_baseline}
    tiled = (
        row
        for row in counted
        if not KERNELS[row.family].is_baseline
        and row.case.pattern.startswith(("tile-wise", "block", "shuffled-block"))
    )
    found = []
    for key, own in groups_of(tiled, _product).items():
        alternatives = own + ([dense[key[:2]]] if key[:2] in dense else [])
        if len(alternatives) > 1:
            found.append(_choice(key, alternatives, engine))
    return found


def _layer(row: Judged) -> tuple[str, Conditions]:
    return row.case.layer, row.case.conditions


def _product(row: Judged) -> tuple[object, ...]:
    """Return the key of a choice of a kernel: layer, conditions, and pruning except the height of tiles."""
    case = row.case
    return *_layer(row), case.pattern.split(":")[0], case.sparsity, case.distribution, case.seed


def _choice(key: tuple[object, ...], rows: list[Judged], engine: str) -> _Decision:
    chosen = min(rows, key=lambda row: row.predicted[engine].seconds)
    fastest = min(rows, key=lambda row: row.measured.seconds or math.inf)
    regret = (chosen.measured.seconds or 0.0) / (fastest.measured.seconds or 1.0) - 1.0
    what = f"{key[0]} {key[2]} {key[3]} {key[4]}"
    return _Decision(what, _name(chosen), _name(fastest), regret)


def _name(row: Judged) -> str:
    return row.family if KERNELS[row.family].is_baseline else f"{row.family} {row.case.pattern}"


class Bound(NamedTuple):
    """Density at which the sparse time equals the dense time, or a bound of this density."""

    density: float
    side: int = 0
    """0 if both times are equal at `density`. 1 if sparse is faster at all measured densities, the highest of
    which is `density`. -1 if sparse is slower at all measured densities, the lowest of which is `density`."""

    def __str__(self) -> str:
        """Return the text of a table cell."""
        return f"{('', 'above ', 'below ')[self.side]}{self.density:.3f}"


class Crossing(NamedTuple):
    """Measured and predicted density below which STSpMM is faster than dense on a layer."""

    layer: str
    measured: Bound
    predicted: Bound

    @property
    def points(self) -> float:
        """Predicted minus measured crossover density, in percentage points.

        If one of the two is outside the measured densities, the size of the difference is a lower bound.
        """
        return 100.0 * (self.predicted.density - self.measured.density)

    @property
    def beyond(self) -> bool:
        """True if the measured or the predicted crossover is outside the measured densities."""
        return (self.measured.side, self.predicted.side) != (0, 0)


def crossings(rows: Iterable[Judged], engine: str) -> list[Crossing]:
    """Return the crossover of STSpMM on equal tiles of 128 rows for each layer that was measured in bursts.

    Layers are left out if, at all measured densities, both the measured and the predicted sparse time are
    below the dense time, or both are above it.
    """
    equal_tiles = (STSPMM, STSPMM.natural_pattern, "equal")
    curves: dict[str, dict[float, Judged]] = {}
    dense: dict[str, Judged] = {}
    for row in rows:
        if not row.counts or row.case.conditions != USUAL:
            continue
        if KERNELS[row.family].is_baseline:
            dense[row.case.layer] = row
        elif (KERNELS[row.family], row.case.pattern, row.case.distribution) == equal_tiles:
            curves.setdefault(row.case.layer, {})[1.0 - row.case.sparsity] = row
    found = []
    for layer, curve in curves.items():
        if layer not in dense or len(curve) < 2:
            continue
        library = dense[layer]
        measured = _crossing(
            {d: (row.measured.seconds or 0.0) / (library.measured.seconds or 1.0) for d, row in curve.items()}
        )
        predicted = _crossing(
            {d: row.predicted[engine].seconds / library.predicted[engine].seconds for d, row in curve.items()}
        )
        if 0 in (measured.side, predicted.side) or measured.side != predicted.side:
            found.append(Crossing(layer, measured, predicted))
    return found


def _crossing(ratio: dict[float, float]) -> Bound:
    """Return the density at which the time ratio of sparse to dense is 1, interpolated linearly.

    `ratio` maps each measured density to the time ratio. If the ratio is never 1, return the lowest or the
    highest measured density.
    """
    densities = sorted(ratio)
    for low, high in itertools.pairwise(densities):
        if ratio[low] <= 1.0 < ratio[high]:
            return Bound(low + (1.0 - ratio[low]) / (ratio[high] - ratio[low]) * (high - low))
    if ratio[densities[0]] > 1.0:
        return Bound(densities[0], -1)
    # Densities end at 1: a sparse kernel that is not slower there has its crossover there, not above
    return Bound(densities[-1], 1 if densities[-1] < 1.0 else 0)
