"""The closed room for measuring: the only part of validation that needs a GPU and CuPy.

`suite_run.measure_suite` takes a suite through building, checking and timing. Floor: inside validation.
Read first: `suite_run.py`, then `timer.py` (the one timer), `timing.py` (bursts) and `contestants.py` (what
can be timed).
"""

__all__: list[str] = []
