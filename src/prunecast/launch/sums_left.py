"""What parts of split tiles leave for DRAM to write: sums in a workspace that is the operator's own.

Launches of many operators follow one another, so that L2 needs the room of a workspace before its operator
runs again. A library has one workspace for all layers, whose lines are written over in L2.
"""

import numpy as np
import numpy.typing as npt

from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.program import Op

__all__ = ["sums_left_bytes"]


def sums_left_bytes(plan: KernelPlan) -> npt.NDArray[np.float64]:
    """(items,): bytes of partial sums that each item writes, those of rows and tokens that it lacks among
    them; 0 of owners.
    """
    of_part = sum(
        instruction.amount * program.warps
        for program in plan.programs
        for instruction in program.end
        if instruction.op is Op.STORE_PARTIAL and instruction.whole
    )
    return float(of_part) * (1.0 - plan.work.owner.astype(np.float64))
