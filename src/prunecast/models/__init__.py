"""Performance models: closed-form time of a plan from a roofline of six levels, waves and load balance.

The input is a `KernelPlan` and a `GpuSpec`. The times of single blocks come from `simulator.sample`. An
estimate needs about a millisecond, is never below its own lower bounds, and names the limiting level.

Read first: `roofline.py` (the whole formula), `amounts.py` (work of a plan), `bounds.py` (lower bounds for
any order of events). Then `block_times.py` (items), `waves.py` and `chip.py` (SMs), `traffic.py` (bytes).
"""

from prunecast.models.amounts import Amounts, packed_bytes, plan_amounts
from prunecast.models.bounds import bound_cycles
from prunecast.models.case import LEVELS, Estimate
from prunecast.models.roofline import estimate, estimate_launch
from prunecast.models.terms import Quantity
from prunecast.models.traffic import Traffic, plan_traffic

__all__ = [
    "LEVELS",
    "Amounts",
    "Estimate",
    "Quantity",
    "Traffic",
    "bound_cycles",
    "estimate",
    "estimate_launch",
    "packed_bytes",
    "plan_amounts",
    "plan_traffic",
]
