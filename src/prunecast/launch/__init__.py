"""Launch context of a plan: PDL, placement, stragglers, cache state and launch overhead on one GPU.

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
