"""Compute the 90 % intervals of predicted times from validated errors, and read and write their table.

Method: split conformal prediction on the ratio of measured to predicted time. The bounds are quantiles over
the `fit` cases; the table also contains the fraction of the `judge` cases inside them. With n cases in
ascending order, the bounds are the floor((n + 1) 0.05)-th and the ceil((n + 1) 0.95)-th ratio, so that a new
case of the same distribution is inside with a probability of 90 % (Vovk, Gammerman, Shafer, Algorithmic
Learning in a Random World, 2005). With fewer than 19 cases, the bounds are the lowest and the highest ratio.

Errors of cases of one layer are correlated, and a new case has another layer and runs on another board.
Therefore the ratios of all boards that ran a case are used, and the interval is widened until it also holds
for left-out layers.
"""

import math
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from prunecast.errors import BadInput
from prunecast.files import MIB, OutputFile, check_outputs, read_text, write_text_aside
from prunecast.launch import Conditions
from prunecast.validation.case import Group
from prunecast.validation.judged import Judged, groups_of
from prunecast.validation.validate import Validation

LARGEST_TABLE = 16 * MIB
"""Size of the largest file of intervals that is read, in bytes."""
FEWEST_CASES = 8
"""Minimum number of `fit` cases of a group, from which bounds are computed. Kind: choice."""
SHARE = 0.9
"""Fraction of new cases that intervals should contain. Kind: choice; documents and messages state 90 %."""


_WIDTHS = tuple(1.0 + step / 20 for step in range(61))
"""Factors, 1 to 4, by which bounds are widened on a logarithmic scale; 4 has always been wide enough."""


class Ratios(NamedTuple):
    """Ratios of measured to predicted time of one case, one for each board that ran it."""

    layer: str
    boards: tuple[float, ...]


class Bounds(NamedTuple):
    """Bounds of the ratio of measured to predicted time."""

    low: float
    high: float


class _Quantiles(NamedTuple):
    low: float
    median: float
    high: float


class Coverage(NamedTuple):
    """Interval of one GPU, kernel, conditions and engine: a row of the table of intervals."""

    gpu: str
    group: Group
    engine: str
    low: float
    """Lower bound of measured time divided by predicted time."""
    high: float
    """Upper bound of measured time divided by predicted time."""
    fit_cases: int
    judge_cases: int
    coverage: float
    """Fraction of the `judge` cases inside the bounds, 0 to 1; NaN if there are none."""
    seconds: tuple[float, float]
    """Lowest and highest predicted time of all cases, in seconds."""
    tokens: tuple[int, int]
    """Lowest and highest number of tokens of all cases."""

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        """Return the interval of a row of the table, as `_entry` writes it.

        Every table states `state`, so that a row without it is an error. Other conditions of `RECORDED` are
        usual where an older table lacks them.

        Raises
        ------
        LookupError, TypeError, ValueError : an entry is missing, unknown or of another kind
        """
        group = Group(row["kernel"], Conditions.of({**row, "state": row["state"]}))
        return cls(group=group, **{name: row[name] for name in row if name not in group.cells()})


def coverages(validation: Validation) -> list[Coverage]:
    """Return one row for every group of rows and engine with at least eight `fit` cases."""
    found = []
    counted = (row for row in validation.rows if row.counts)
    for group, rows in groups_of(counted, lambda row: row.group).items():
        fit = [row for row in rows if row.case.use == "fit"]
        if len(fit) < FEWEST_CASES:
            continue
        tokens = [row.case.n for row in rows]
        for engine in validation.engines:
            bounds = bounds_of_layers([_ratios(row, engine) for row in fit])
            judge = [_ratios(row, engine) for row in rows if row.case.use == "judge"]
            share = _inside(judge, bounds) / len(judge) if judge else math.nan
            times = [row.predicted[engine].seconds for row in rows]
            who = validation.gpu.name, group, engine
            ranges = (min(times), max(times)), (min(tokens), max(tokens))
            found.append(Coverage(*who, *bounds, len(fit), len(judge), share, *ranges))
    return found


def _ratios(row: Judged, engine: str) -> Ratios:
    seconds = row.measured.board_seconds or (float(row.measured.seconds or 0.0),)
    return Ratios(row.case.layer, tuple(each / row.predicted[engine].seconds for each in seconds))


def bounds_of_layers(cases: Sequence[Ratios]) -> Bounds:
    """Return bounds that 90 % of the cases of a new layer on a new board should satisfy.

    These are the quantiles of all cases, widened about the median by the smallest sufficient factor, at most
    4. To test a factor, the quantiles of all other layers are widened by it for each layer in turn, and the
    cases of the layer inside them are counted. The factor is sufficient if at least the fraction
    0.9 (1 + 1 / n) of all cases is inside, where n is the number of layers and 1 / n accounts for the unknown
    new layer (Lee, Barber, Willett, Distribution-free inference with hierarchical data, 2023). With only one
    layer, the quantiles are not widened.
    """
    layers: dict[str, list[Ratios]] = {}
    for case in cases:
        layers.setdefault(case.layer, []).append(case)
    if len(layers) < 2:
        return _wider(_quantiles(cases), 1.0)
    others = {layer: _quantiles([c for c in cases if c.layer != layer]) for layer in layers}
    wanted = min(SHARE * (1.0 + 1.0 / len(layers)), 1.0) * len(cases)
    for width in _WIDTHS:
        held = sum(_inside(own, _wider(others[layer], width)) for layer, own in layers.items())
        if held >= wanted - 1e-9:
            break
    return _wider(_quantiles(cases), width)


def _inside(cases: Iterable[Ratios], bounds: Bounds) -> float:
    """Return the number of cases inside the bounds; a case counts as the fraction of its boards inside."""
    return sum(
        sum(bounds.low <= ratio <= bounds.high for ratio in case.boards) / len(case.boards) for case in cases
    )


def _wider(found: _Quantiles, width: float) -> Bounds:
    return Bounds(*(found.median * (bound / found.median) ** width for bound in (found.low, found.high)))


def _quantiles(cases: Sequence[Ratios]) -> _Quantiles:
    """Return 5 % quantile, median and 95 % quantile of the ratio over all boards of all cases.

    Each case has a weight of 1, which its boards share evenly.
    """
    ordered = sorted((ratio, 1.0 / len(case.boards)) for case in cases for ratio in case.boards)
    out = math.floor((len(cases) + 1) * (1 - SHARE) / 2)
    median = _first_beyond(ordered, len(cases) / 2)
    low = _first_beyond(ordered, out - 1) if out > 0 else ordered[0][0]
    high = _first_beyond(ordered[::-1], out - 1) if out > 0 else ordered[-1][0]
    return _Quantiles(low, median, high)


def _first_beyond(ordered: Sequence[tuple[float, float]], cases: float) -> float:
    """Return the first ratio at which the sum of weights exceeds `cases`; `ordered` has (ratio, weight)."""
    count = 0.0
    for ratio, weight in ordered:
        count += weight
        if count > cases + 1e-9:
            return ratio
    return ordered[-1][0]


def read_intervals(path: Path) -> list[Coverage]:
    """Return the rows of a table that `write_intervals` wrote; an empty list if the file does not exist.

    Raises
    ------
    BadInput : the file is not a table of intervals, so that writing would destroy its content
    """
    if not path.exists():
        return []
    wanted = "a table of intervals, as `prunecast validate --intervals` writes it"
    text = read_text(path, wanted, most=LARGEST_TABLE)
    try:
        document = tomllib.loads(text)
        if document.keys() - {"schema", "validated"} or document.get("schema", 1) != 1:
            raise ValueError("it has other keys, or another schema than 1")
        rows = [Coverage.of(row) for row in document.get("validated", ())]
        for row in rows:
            _entry(row)
    except (ValueError, TypeError, LookupError) as error:
        raise BadInput(f"{path}: wanted {wanted}, but: {' '.join(str(error).split())}") from None
    return rows


def write_intervals(validation: Validation, path: Path) -> None:
    """Write the table of intervals (`validated.toml`); entries of other GPUs in the file are kept.

    Raises
    ------
    BadInput : the file is one of the records of `validation`, is not a table of intervals, or cannot be
        written. The file then stays unchanged.
    """
    check_outputs([OutputFile(what="the table of intervals", path=path)], validation.records)
    others = [row for row in read_intervals(path) if row.gpu != validation.gpu.name]
    rows = sorted([*others, *coverages(validation)], key=lambda row: row.gpu)
    write_text_aside(path, _HEAD + "".join(map(_entry, rows)))


_HEAD = (
    "# Made by `prunecast validate --replay RECORDS --intervals FILE`; not written by hand.\n"
    "# low, high: measured over predicted time that 90 % of a new layer's cases keep, from the fitting\n"
    "# cases; coverage: share of the judging cases inside.\nschema = 1\n"
)


def _entry(row: Coverage) -> str:
    coverage = 0.0 if math.isnan(row.coverage) else row.coverage
    group = "".join(f'{name} = "{text}"\n' for name, text in row.group.cells().items())
    return (
        f'\n[[validated]]\ngpu = "{row.gpu}"\n{group}'
        f'engine = "{row.engine}"\nlow = {row.low:.4f}\nhigh = {row.high:.4f}\n'
        f"fit_cases = {row.fit_cases}\njudge_cases = {row.judge_cases}\ncoverage = {coverage:.3f}\n"
        f"seconds = [{row.seconds[0]:.4g}, {row.seconds[1]:.4g}]\n"
        f"tokens = [{row.tokens[0]}, {row.tokens[1]}]\n"
    )
