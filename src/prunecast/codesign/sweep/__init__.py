"""Sweeps: many predictions over GPUs, patterns, sparsities and shapes, kept in one SQLite file.

Floor: inside `codesign`, beside `search`. It spreads cases over any `concurrent.futures.Executor` and never
computes a case twice; what a case means is said in `cases.py`, how it is predicted in `predict_cases.py`.

Read first: `cases.py`, `run_sweep.py`, `store.py`.
"""

from prunecast.codesign.sweep.cases import SweepCase, SweepStore, expand
from prunecast.codesign.sweep.pictures import write_parquet, write_pictures
from prunecast.codesign.sweep.run_sweep import SweepSummary, open_executor, predict_group, run_sweep

__all__ = [
    "SweepCase",
    "SweepStore",
    "SweepSummary",
    "expand",
    "open_executor",
    "predict_group",
    "run_sweep",
    "write_parquet",
    "write_pictures",
]
