"""What a prediction is for: choosing the fastest, and saying from which density sparse beats dense."""

import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

from prunecast.validation.judged import Judged

__all__ = ["Choice", "Crossing", "choices", "crossings"]


class Choice(NamedTuple):
    """One decision among measured alternatives."""

    what: str
    chosen: str
    fastest: str
    regret: float
    """Measured time of the chosen one over the fastest, less 1."""


class Crossing(NamedTuple):
    """Density below which STSpMM beats dense on a layer."""

    layer: str
    measured: float
    predicted: float


def choices(rows: Iterable[Judged], engine: str) -> list[Choice]:
    """Decisions between kernels and tile heights at the same product, sparsity and skew, dense among them."""
    groups: dict[tuple[object, ...], list[Judged]] = {}
    dense: dict[tuple[str, str], Judged] = {}
    for row in rows:
        if not row.counts:
            continue
        if row.family == "dense":
            dense[row.case.layer, row.case.state] = row
        elif row.case.pattern.startswith(("tile-wise", "block", "shuffled-block")):
            case = row.case
            family = case.pattern.split(":")[0]
            groups.setdefault(
                (case.layer, case.state, family, case.sparsity, case.distribution, case.seed), []
            ).append(row)
    found = []
    for key, own in groups.items():
        library = dense.get((str(key[0]), str(key[1])))
        alternatives = own + ([library] if library is not None else [])
        if len(alternatives) > 1:
            found.append(_choice(key, alternatives, engine))
    return found


def _choice(key: tuple[object, ...], rows: list[Judged], engine: str) -> Choice:
    chosen = min(rows, key=lambda row: row.predicted[engine].seconds)
    fastest = min(rows, key=lambda row: row.measured.seconds or math.inf)
    regret = (chosen.measured.seconds or 0.0) / (fastest.measured.seconds or 1.0) - 1.0
    what = f"{key[0]} {key[2]} {key[3]} {key[4]}"
    return Choice(what, _name(chosen), _name(fastest), regret)


def _name(row: Judged) -> str:
    return row.family if row.family == "dense" else f"{row.family} {row.case.pattern}"


def crossings(rows: Iterable[Judged], engine: str) -> list[Crossing]:
    """Layers on which equal tiles of 128 rows were measured on both sides of dense."""
    curves: dict[tuple[str, str], dict[float, Judged]] = {}
    dense: dict[tuple[str, str], Judged] = {}
    for row in rows:
        if not row.counts or row.case.state != "burst":
            continue
        layer = (row.case.layer, row.case.state)
        if row.family == "dense":
            dense[layer] = row
        elif (row.family, row.case.pattern, row.case.distribution) == ("stspmm", "tile-wise:128", "equal"):
            curves.setdefault(layer, {})[1.0 - row.case.sparsity] = row
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
        if measured is not None and predicted is not None:
            found.append(Crossing(layer[0], measured, predicted))
    return found


def _crossing(ratio: dict[float, float]) -> float | None:
    """Density at which sparse over dense passes 1, by straight lines between the measured densities."""
    densities = sorted(ratio)
    for low, high in itertools.pairwise(densities):
        if ratio[low] <= 1.0 < ratio[high]:
            return low + (1.0 - ratio[low]) / (ratio[high] - ratio[low]) * (high - low)
    return 1.0 if densities[-1] == 1.0 and ratio[1.0] <= 1.0 else None
