"""Validation: run a predicted plan on a GPU, compare the result and the time, report the error.

Layer: just below the command line; may import everything beneath it. Only `validation.measure` needs a GPU
and CuPy: everything else works on records of runs. It is neither a benchmark of this project's code
(`benchmarks/`) nor a test of it (`tests/`).

Read first: `case.py` and `suite.py` (what is measured), `records.py` (what is kept of it), `validate.py` (the
two entry points), then `tolerance.py` (is the result right?) and `judged.py` (is the predicted time right?).
"""

from prunecast.validation.case import Case
from prunecast.validation.judged import ErrorSummary, log_error, summarise_errors
from prunecast.validation.records import Measurement, Run, read_runs
from prunecast.validation.suite import Suite, load_suite, suite_names
from prunecast.validation.tolerance import error_bound
from prunecast.validation.validate import Validation, record_suite, replay, rows_left

__all__ = [
    "Case",
    "ErrorSummary",
    "Measurement",
    "Run",
    "Suite",
    "Validation",
    "error_bound",
    "load_suite",
    "log_error",
    "read_runs",
    "record_suite",
    "replay",
    "rows_left",
    "suite_names",
    "summarise_errors",
]
