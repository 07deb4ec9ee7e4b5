"""Optuna, imported when a study is opened: it is optional and slow to import; and the sampler of a study."""

import importlib
from typing import Any

from prunecast.errors import BadInput


def optuna_library() -> Any:
    """The package, quiet: a trial that is left out is no news.

    Raises
    ------
    BadInput : it is not installed
    """
    try:
        optuna = importlib.import_module("optuna")
        importlib.import_module("sqlalchemy")
    except ImportError:
        raise BadInput("a search needs the package optuna: pip install 'prunecast[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    return optuna


def standing(study: Any, number: int) -> int:
    """How many trials before this one count: failed ones were given up or come again under a new number."""
    failed = optuna_library().trial.TrialState.FAIL
    return sum(t.number < number and t.state != failed for t in study.get_trials(deepcopy=False))


def seeded_sampler(seed: int) -> Any:
    """Optuna's TPE, seeded anew for every trial by `seed` and the trial's standing.

    Without that a resumed study would start its random numbers over and draw the first trials again.
    """
    optuna = optuna_library()

    class SeededSampler(optuna.samplers.BaseSampler):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self._tpe = optuna.samplers.TPESampler(seed=seed)

        def before_trial(self, study: Any, trial: Any) -> None:
            place = standing(study, trial.number)
            self._tpe = optuna.samplers.TPESampler(seed=(seed * 1_000_003 + place) % 2**32)

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return {}

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            return self._tpe.sample_independent(study, trial, name, distribution)

    return SeededSampler()
