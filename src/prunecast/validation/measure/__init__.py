"""Build, check and time kernels on a GPU: the only part of `validation` that needs CuPy.

`suite_run.measure_suite` measures all cases of a suite. Layer: part of `validation`. Read first:
`suite_run.py`, then `timer.py` (timing by events), `timing.py` (bursts) and `contestants.py` (the kernels
that can be timed).
"""

__all__: list[str] = []
