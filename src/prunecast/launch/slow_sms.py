"""How much less a launch waits for its slowest SM where few SMs have the longest work.

Equal blocks do not end together (`slow_sm_cycles`), for L2 and DRAM do not serve all alike. Constants of
starts and ends were fitted to products of equal blocks, so they have that in them. Where blocks differ, the
longest ones are few, and seldom the slowest too.
"""

import numpy as np
import numpy.typing as npt

from prunecast.launch.context import LaunchContext

__all__ = ["cycles_of_unequal", "spared_cycles", "spared_scale"]


def spared_scale(context: LaunchContext) -> float:
    """`GpuSpec.slow_sm_cycles` of blocks that have one item and an SM each; of others nothing is known, 0."""
    gpu = context.gpu
    one_each = context.plan.item_count == context.blocks <= gpu.sm_count
    return gpu.slow_sm_cycles if one_each and not context.co_resident and context.pdl else 0.0


def spared_cycles(sm_ends: npt.NDArray[np.float64], scale: float) -> float:
    """`cycles_of_unequal` of the SMs that work; 0 where the scale is.

    sm_ends : (SMs,) when each ends, 0 if it has no block
    """
    return cycles_of_unequal(sm_ends[sm_ends > 0.0], scale) if scale > 0.0 else 0.0


def cycles_of_unequal(ends: npt.NDArray[np.float64], slow_cycles: float) -> float:
    """Cycles by which the last of these SMs ends earlier than the last of as many that all end with it.

    ends : (SMs that work,) when each ends if none is slow
    slow_cycles : scale of how late SMs are, `GpuSpec.slow_sm_cycles`
    """
    if not ends.size:
        return 0.0
    alike = float(np.exp((ends - ends.max()) / slow_cycles).sum())
    return slow_cycles * float(np.log(ends.size / alike))
