"""Run predicted plans on a GPU, check their results, and report the errors of the predicted times.

Layer: directly below the command line; may import all packages below itself. Only measuring needs a GPU:
`validation.measure` uses CuPy, and `validation.torch_models` uses PyTorch. All other modules read recorded
runs. Benchmarks of this project's own code are in `benchmarks/`, and its tests are in `tests/`.

Read first: `case.py` and `suite.py` (the measured cases), `records.py` (files of measured times),
`validate.py` (the two entry points), then `tolerance.py` (error bound of a result) and `judged.py` (errors of
predicted times).
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
