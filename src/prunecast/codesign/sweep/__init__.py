"""Sweeps: many predictions over GPUs, patterns, sparsities and shapes, stored in one SQLite file.

Layer: part of `codesign`, independent of `search`. This package distributes cases over any
`concurrent.futures.Executor`, and does not compute cases that the file already contains. `cases.py` defines
a case and the store, `run_sweep.py` predicts.

Read first: `cases.py`, `run_sweep.py`.
"""

from prunecast.codesign.sweep.cases import SweepCase, SweepStore, expand
from prunecast.codesign.sweep.equal_importance import at_equal_importance
from prunecast.codesign.sweep.pictures import write_parquet, write_pictures
from prunecast.codesign.sweep.run_sweep import SweepSummary, open_executor, predict_group, run_sweep
from prunecast.codesign.sweep.table import SweepTable

__all__ = [
    "SweepCase",
    "SweepStore",
    "SweepSummary",
    "SweepTable",
    "at_equal_importance",
    "expand",
    "open_executor",
    "predict_group",
    "run_sweep",
    "write_parquet",
    "write_pictures",
]
