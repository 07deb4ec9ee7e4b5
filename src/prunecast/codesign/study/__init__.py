"""Studies: a search over settings outside the allocation of `search`, stored in a database by Optuna.

A trial offers every group of layers one more pattern. The allocation then runs as usual, and the value of the
trial is the importance that the model retains within the requested time. Trials are rows of a database: they
survive a kill, several processes share them, and `optuna-dashboard` shows them.

Layer: inside `codesign`, above `search`. This package decides which patterns are tried, not which layer gets
them, and contains no performance model. Optuna is optional and imported where it is used.

Read first: `evaluator.py` (the search space), `run_trials.py` (the loop and its recovery), `search_model.py`.
"""

from prunecast.codesign.study.search_model import search_model
from prunecast.codesign.study.study_result import FinishedTrial, ParetoPoint, StudyResult

__all__ = ["FinishedTrial", "ParetoPoint", "StudyResult", "search_model"]
