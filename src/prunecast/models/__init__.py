"""Performance models: the time of a plan in closed form, a roofline of six levels with waves and balance.

Reads `KernelPlan` and `GpuSpec`, and takes the times of blocks from `simulator.sample`. It is fast enough for
a search loop, never below its own lower bounds, and names the level that binds.

Read first: `roofline.py` (the whole formula), `amounts.py` (work of a plan), `bounds.py` (lower bounds of any
order of events). Then `block_times.py` (items), `waves.py` and `chip.py` (SMs), `traffic.py` (bytes).
"""

from prunecast.launch.floor import LAUNCHES
from prunecast.models.amounts import Amounts, packed_bytes, plan_amounts
from prunecast.models.bounds import bound_cycles
from prunecast.models.case import LEVELS, Estimate
from prunecast.models.roofline import estimate
from prunecast.models.terms import Quantity
from prunecast.models.traffic import Traffic, plan_traffic

__all__ = [
    "LAUNCHES",
    "LEVELS",
    "Amounts",
    "Estimate",
    "Quantity",
    "Traffic",
    "bound_cycles",
    "estimate",
    "packed_bytes",
    "plan_amounts",
    "plan_traffic",
]
