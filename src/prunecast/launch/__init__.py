"""Launch context of a plan: PDL, placement, stragglers, cache state and launch overhead on one GPU.

Read first: `conditions.py` (the conditions of a time) and `context.py`; then `floor.py` and `overlap.py`.
"""

from prunecast.launch.conditions import COLD, USUAL, CacheState, Conditions
from prunecast.launch.context import LaunchContext, burst_contexts, launch_context

__all__ = ["COLD", "USUAL", "CacheState", "Conditions", "LaunchContext", "burst_contexts", "launch_context"]
