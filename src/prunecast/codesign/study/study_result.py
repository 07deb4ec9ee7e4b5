"""`StudyResult`: what a study has found so far."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from prunecast.codesign.search import PrunedModel
from prunecast.codesign.study.pareto import ParetoPoint


class FinishedTrial(NamedTuple):
    """One trial."""

    trial: int
    """Number of the trial in the study; 0 is the plain allocation."""
    patterns: Mapping[str, str]
    """Group of layers -> the pattern that it could choose besides."""
    seconds: float | None
    """None, with the two behind it, where no model met the targets."""
    retained_importance: float | None
    sparsity: float | None
    same_as: int | None
    """The earlier trial with the same patterns, whose result it has."""
    reason: str
    """Why there is no result, or empty."""

    def row(self) -> dict[str, Any]:
        """As CSV holds it."""
        return {**self._asdict(), "patterns": self.patterns_text()}

    def patterns_text(self) -> str:
        """On one line."""
        return ", ".join(f"{group} {pattern}" for group, pattern in self.patterns.items()) or "plain"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StudyResult:
    """What was found; `best` has been written if a folder was given.

    Parameters
    ----------
    study, storage : name of the study, and where it lies, without a password
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

    def document(self) -> dict[str, Any]:
        """The JSON object: the recipe of the best trial, and the study."""
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
