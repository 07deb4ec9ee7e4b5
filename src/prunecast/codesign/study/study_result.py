"""`StudyResult`: the results of a study, with its finished trials and the best one."""

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
"""Step between the time limits of two points of the Pareto front, as a share of the dense time."""


class ParetoPoint(NamedTuple):
    """The highest importance that any trial retains within a time limit, by closed-form times."""

    time_share: float
    """Time limit, as a share of the dense model's time."""
    plain_importance: float | None
    """Importance retained without additional patterns; None if the time cannot be reached without them."""
    retained_importance: float
    trial: int
    """Number of the trial that retains this importance."""


def pareto(
    plain: Iterable[FrontPoint], fronts: Mapping[int, Iterable[FrontPoint]], dense_seconds: float
) -> tuple[ParetoPoint, ...]:
    """Return the Pareto front over all trials, in steps of time.

    Time limits are multiples of `STEP` times the dense time. A limit has a point if some trial retains more
    importance within this limit than any trial retains within a shorter limit.

    Parameters
    ----------
    plain : Pareto front of the search without additional patterns
    fronts : trial -> its Pareto front
    dense_seconds : dense time of the whole model, in seconds
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
    """Return time limit in steps of `STEP`, rounded up -> highest retained importance of a point."""
    best: dict[int, float] = {}
    for point in front:
        step = math.ceil(point.seconds / dense_seconds / STEP - 1e-9)
        best[step] = max(best.get(step, 0.0), point.retained_importance)
    return best


class FinishedTrial(NamedTuple):
    """One finished trial of a study, with its result or the reason why it has none."""

    trial: int
    """Number of the trial; 0 is the trial without additional patterns.

    A killed trial has no number here; its repetition gets the number. A resumed study therefore has the same
    numbers as one that was never killed. The database and `optuna-dashboard` count killed trials too."""
    patterns: Mapping[str, str]
    """Group of layers -> the additional pattern that the layers of the group could get."""
    seconds: float | None
    """Predicted seconds. This and the next two fields are None if no model met the targets."""
    retained_importance: float | None
    sparsity: float | None
    same_as: int | None
    """The earlier trial with the same patterns, whose result is reused."""
    reason: str
    """Reason why the trial has no result; empty if it has one."""

    def row(self) -> dict[str, Any]:
        """Return the trial as a dictionary for a CSV file, with the patterns as one text."""
        return {**self._asdict(), "patterns": self.patterns_text()}

    def patterns_text(self) -> str:
        """Return the patterns by group as one line of text, `plain` if there are none."""
        return ", ".join(f"{group} {pattern}" for group, pattern in self.patterns.items()) or "plain"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StudyResult(Result):
    """The results of a study. If a folder was given, it contains the pruned model of the best trial.

    Parameters
    ----------
    study, storage : name of the study, and its database (without a password)
    space_version : version of the search space
    seed : seed of the sampler in this run
    trials : finished trials, in order
    computed : number of trials that this run had to compute
    plain, best : pruned models without additional patterns, and of the trial that retains most importance
    best_trial : number of the best trial
    pareto : Pareto front of retained importance and time, over all trials
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
        """Return the fields of each trial."""
        return [trial.row() for trial in self.trials]

    def cells(self) -> list[Cells]:
        """Return a table of the trials as texts; missing results are empty texts."""
        return [
            {name: "" if value is None else significant(value) for name, value in row.items()}
            for row in self.frame_rows()
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the best trial, see `PrunedModel.notes`."""
        return self.best.notes

    def plot(self) -> "Figure":
        """Draw the Pareto front of the best trial's search as a new Matplotlib figure.

        Each trial is a search and has a front of retained importance and time, see `PrunedModel.plot`. The
        field `pareto` combines the fronts of all trials.
        """
        return self.best.plot()

    def document(self) -> dict[str, Any]:
        """Return the JSON object: the recipe of the best trial, with the entry `study` for all trials."""
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
