"""Timelines: the activity of the warps of a simulated launch over time, as a trace file for Perfetto.

Layer: part of `codesign`; the simulator records the events. This package predicts nothing: the events belong
to the same simulation from which `simulate` returns the time.

Read first: `slices.py` (converts events to nested slices), then `chrome_trace.py` (writes the file).
"""

__all__: list[str] = []
