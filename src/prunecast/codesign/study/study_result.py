"""`StudyResult`: the results of a study so far."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from prunecast.codesign.result import Result
from prunecast.codesign.search import FrontPoint, PrunedModel
from prunecast.text import Cells, significant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP = 0.05
"""Distance between two points, as a share of the dense time."""


class ParetoPoint(NamedTuple):
    """The highest importance that is retained within one time, by closed-form times."""

    time_share: float
    """Time limit, as a share of the dense model's."""
    plain_importance: float | None
    """Retained without further patterns; None if they cannot reach this time."""
    retained_importance: float
    trial: int
    """The trial that reaches it."""


def pareto(
    plain: Iterable[FrontPoint], fronts: Mapping[int, Iterable[FrontPoint]], dense_seconds: float
) -> tuple[ParetoPoint, ...]:
    """Return one point for every step of time that retains more than all shorter ones.

    Parameters
    ----------
    plain : front without further patterns
    fronts : trial -> its front
    dense_seconds : of the whole model
    """
    plainly = _by_step(plain, dense_seconds)
    by_trial = {trial: _by_step(front, dense_seconds) for trial, front in fronts.items()}
    steps = sorted({step for found in by_trial.values() for step in found})
    points: list[ParetoPoint] = []
    for step in steps:
        offers = {
            trial: max(v for s, v in found.items() if s <= step)
            for trial, found in by_trial.items()
            if min(found, default=math.inf) <= step
        }
        trial = max(offers, key=lambda t: (offers[t], -t))
        if not points or offers[trial] > points[-1].retained_importance:
            known = [value for s, value in plainly.items() if s <= step]
            points.append(ParetoPoint(round(step * STEP, 2), max(known, default=None), offers[trial], trial))
    return tuple(points)


def _by_step(front: Iterable[FrontPoint], dense_seconds: float) -> dict[int, float]:
    """Return number of steps that a time fits into -> highest importance."""
    best: dict[int, float] = {}
    for point in front:
        step = math.ceil(point.seconds / dense_seconds / STEP - 1e-9)
        best[step] = max(best.get(step, 0.0), point.retained_importance)
    return best


class FinishedTrial(NamedTuple):
    """One finished trial."""

    trial: int
    """Number of the trial; 0 is the plain allocation.

    A killed trial has no number; its repetition gets it. A resumed study therefore has the numbers of one
    that was never killed. The database and `optuna-dashboard` count killed trials too."""
    patterns: Mapping[str, str]
    """Group of layers -> the additional pattern that it could choose."""
    seconds: float | None
    """Predicted seconds. This and the next two fields are None if no model met the targets."""
    retained_importance: float | None
    sparsity: float | None
    same_as: int | None
    """The earlier trial with the same patterns, whose result is reused."""
    reason: str
    """Why there is no result, or empty."""

    def row(self) -> dict[str, Any]:
        """Return the trial as a row of CSV."""
        return {**self._asdict(), "patterns": self.patterns_text()}

    def patterns_text(self) -> str:
        """Return the patterns by group in one line of text."""
        return ", ".join(f"{group} {pattern}" for group, pattern in self.patterns.items()) or "plain"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StudyResult(Result):
    """The results of a study; `best` has been written if a folder was given.

    Parameters
    ----------
    study, storage : name of the study, and its database, without a password
    space_version : of the settings that are searched
    seed : of the sampler of this run
    trials : finished ones, in order
    computed : trials of this run that had to be computed
    plain, best : the plain allocation, and the trial that retains most
    best_trial : its number
    pareto : retained importance against time
    """

    study: str
    storage: str
    space_version: int
    seed: int
    trials: tuple[FinishedTrial, ...]
    computed: int
    plain: PrunedModel
    best: PrunedModel
    best_trial: int
    pareto: tuple[ParetoPoint, ...]

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return a row for each trial."""
        return [trial.row() for trial in self.trials]

    def cells(self) -> list[Cells]:
        """Return the trials as texts for a table; results that there are not are empty."""
        return [
            {name: "" if value is None else significant(value) for name, value in row.items()}
            for row in self.frame_rows()
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on the best trial."""
        return self.best.notes

    def plot(self) -> "Figure":
        """Draw the retained importance of the best trial at other times as a new Matplotlib figure."""
        return self.best.plot()

    def document(self) -> dict[str, Any]:
        """Return the JSON object: the recipe of the best trial, and the study."""
        plain = self.plain.result
        return {
            **self.best.document(),
            "study": {
                "name": self.study,
                "space_version": self.space_version,
                "seed": self.seed,
                "best_trial": self.best_trial,
                "plain": {
                    "seconds": plain.seconds,
                    "retained_importance": plain.retained_importance,
                    "sparsity": plain.sparsity,
                },
                "trials": [trial._asdict() for trial in self.trials],
                "pareto": [point._asdict() for point in self.pareto],
            },
        }
