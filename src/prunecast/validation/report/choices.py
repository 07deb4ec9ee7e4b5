"""What a prediction is for: choosing the fastest."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from prunecast.kernels import KERNELS
from prunecast.validation.judged import Judged

__all__ = ["Choice", "choices"]


class Choice(NamedTuple):
    """One decision among measured alternatives."""

    what: str
    chosen: str
    fastest: str
    regret: float
    """Measured time of the chosen one over the fastest, less 1."""


def choices(rows: Iterable[Judged], engine: str) -> list[Choice]:
    """Decisions between kernels and tile heights at the same product, sparsity and skew, dense among them."""
    groups: dict[tuple[object, ...], list[Judged]] = {}
    dense: dict[tuple[str, str], Judged] = {}
    for row in rows:
        if not row.counts:
            continue
        if not KERNELS[row.family].prunes:
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
    return f"{row.family} {row.case.pattern}" if KERNELS[row.family].prunes else row.family
