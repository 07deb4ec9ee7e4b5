"""`rotating_sets`: how many sets of operands timed launches rotate over, so that each finds its own in DRAM.

Importing this module needs no GPU.
"""

import math

COLD_TIMES = 2.1
"""Minimum number of bytes of all sets together, in sizes of the GPU's L2. Kind: choice.

One L2 is not enough: L2 does not evict strictly by age, so that a part of data that are somewhat larger than
L2 stays in it (`launch.conditions.L2_STATES`).
"""
MOST_SETS = 240
"""Maximum number of sets of operands, equal to the launches per CUDA graph: more sets would not be used."""


def rotating_sets(set_bytes: float, l2_bytes: float) -> int:
    """Return the number of sets to rotate over, at least 2, so that no operand is in L2 at its next use.

    The operands of tiny launches stay in L2: `MOST_SETS` sets of them are smaller than `COLD_TIMES` its size.

    Parameters
    ----------
    set_bytes : bytes that one launch reads and writes. Bytes that it does not read must not count. In an
        earlier version they did: 98 % sparse products then read only 46 MB in all sets together, much of
        which stayed in L2, and ran 5 to 14 % faster than with three times as many sets (H200, 2026-11-22)
    l2_bytes : size of the L2 of the GPU that is measured
    """
    return max(2, min(math.ceil(COLD_TIMES * l2_bytes / set_bytes), MOST_SETS))
