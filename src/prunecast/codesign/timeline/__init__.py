"""Timelines: what the warps of a predicted run do at which moment, as a trace that Perfetto opens.

Floor: inside `codesign`, above the simulator, which records the events. It predicts nothing: the run is the
one that `simulate` times.

Read first: `slices.py` (events become nested slices), then `chrome_trace.py` (the file).
"""

from prunecast.codesign.timeline.chrome_trace import MOST_SLICES, TimelineSummary, trace_bytes, write_timeline
from prunecast.codesign.timeline.slices import Slices, Track, slices_of

__all__ = [
    "MOST_SLICES",
    "Slices",
    "TimelineSummary",
    "Track",
    "slices_of",
    "trace_bytes",
    "write_timeline",
]
