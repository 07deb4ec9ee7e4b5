"""What a launch costs and finds on a GPU among launches like it: PDL, stragglers, caches.

Read first: `context.py`; then `floor.py` and `overlap.py`.
"""

from prunecast.launch.context import (
    COLD,
    L2_STATES,
    CacheState,
    LaunchContext,
    burst_contexts,
    launch_context,
)
from prunecast.launch.floor import LAUNCHES

__all__ = ["COLD", "L2_STATES", "LAUNCHES", "CacheState", "LaunchContext", "burst_contexts", "launch_context"]
