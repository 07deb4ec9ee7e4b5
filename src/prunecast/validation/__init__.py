"""Validation: run a predicted plan on a GPU, compare the result and the time, report the error.

Floor: just below the command line; may import everything beneath it. What is here so far judges numbers
that were measured elsewhere; measuring itself is not there yet.

It is not a benchmark of our own code (`benchmarks/`) and not a test of it (`tests/`).

Read first: `tolerance.py` (is the result right?), then `errors.py` (is the predicted time right?).
"""

from prunecast.validation.errors import ErrorSummary, log_error, summarise_errors
from prunecast.validation.tolerance import WorstTile, error_bound, worst_tile

__all__ = ["ErrorSummary", "WorstTile", "error_bound", "log_error", "summarise_errors", "worst_tile"]
