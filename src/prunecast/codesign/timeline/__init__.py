"""Timelines: the activity of the warps of a predicted run over time, as a trace for Perfetto.

Layer: inside `codesign`, above the simulator, which records the events. It predicts nothing: the run is the
one that `simulate` times.

Read first: `slices.py` (events become nested slices), then `chrome_trace.py` (the file).
"""

__all__: list[str] = []
