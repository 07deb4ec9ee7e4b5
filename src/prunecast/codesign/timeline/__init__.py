"""Timelines: what the warps of a predicted run do at which moment, as a trace that Perfetto opens.

Floor: inside `codesign`, above the simulator, which records the events. It predicts nothing: the run is the
one that `simulate` times.

Read first: `slices.py` (events become nested slices), then `chrome_trace.py` (the file).
"""

__all__: list[str] = []
