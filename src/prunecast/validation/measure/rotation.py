"""`rotating_sets`: how many sets of operands timed launches rotate over, so that each finds its own in DRAM.

Importing this module needs no GPU.
"""

import math

COLD_BYTES = 2.2 * 60e6
"""Minimum number of bytes of all sets together: more than twice the L2 of an H200.

Once the L2 is not enough: L2 does not evict strictly by age, so that a part of data that are somewhat larger
than L2 stays in it (`launch.conditions.L2_STATES`).
"""
MOST_SETS = 240
"""Maximum number of sets of operands, equal to the launches per CUDA graph: more sets would not be used."""


def rotating_sets(set_bytes: float, *, most: int = MOST_SETS) -> int:
    """Return the number of sets to rotate over, at least 2, so that no operand is in L2 at its next use.

    The sets of tiny launches stay in L2 if `most` sets are smaller than `COLD_BYTES`.

    Parameters
    ----------
    set_bytes : bytes that one launch reads and writes. Bytes that it does not read must not count. In an
        earlier version they did: 98 % sparse products then read only 46 MB in all sets together, much of
        which stayed in L2, and ran 5 to 14 % faster than with three times as many sets (H200, 2026-11-22)
    most : maximum number of sets, at least 2, where memory is scarce
    """
    return max(2, min(math.ceil(COLD_BYTES / set_bytes), most))
