"""Studies: an Optuna search for patterns that improve the result of `search` if it may use them too.

A trial adds at most one pattern to the options of every group of layers. The search of `search` then selects
one option for each layer, and the value of the trial is the importance that the model retains within the
targets. Trials are stored in a database: they survive if a process is killed, several processes share them,
and `optuna-dashboard` shows them.

Layer: part of `codesign`; imports `search`. This package decides which patterns are tried. It does not decide
which layer gets them, and contains no performance model. Optuna is optional and imported where it is used.

Read first: `evaluator.py` (the search space), `run_trials.py` (the loop and its recovery), `search_model.py`.
"""

from prunecast.codesign.study.search_model import search_model
from prunecast.codesign.study.study_result import FinishedTrial, ParetoPoint, StudyResult

__all__ = ["FinishedTrial", "ParetoPoint", "StudyResult", "search_model"]
