"""Studies: a search over what the allocation of `search` cannot choose, kept in a database by Optuna.

A trial gives every group of layers one more pattern to choose from; the allocation then decides as it always
does, and the trial is worth the importance that the model retains in the time that was asked for. Trials are
rows of a database: they survive a kill, several processes share them, and `optuna-dashboard` shows them.

Floor: inside `codesign`, above `search`. It decides which patterns are tried, not which layer gets what, and
it knows nothing about how a time is predicted. Optuna is optional and imported where it is used.

Read first: `evaluator.py` (what is searched), `run_trials.py` (the loop, kills among it), `search_model.py`.
"""

from prunecast.codesign.study.search_model import search_model
from prunecast.codesign.study.study_result import FinishedTrial, ParetoPoint, StudyResult

__all__ = ["FinishedTrial", "ParetoPoint", "StudyResult", "search_model"]
