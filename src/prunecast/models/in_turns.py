"""Warps that nothing holds together share an SM's issue slots and the port of its shared memory.

A warp that waits for instructions of its own leaves both idle, and finds both busy when it comes back: with
few warps neither reaches what it could alone. Both are shared instruction by instruction, so that the mean of
a closed network of queues holds whatever a warp's share is made of (processor sharing: Baskett, Chandy, Muntz
and Palacios, "Open, Closed, and Mixed Networks of Queues with Different Classes of Customers", JACM 1975).
The mean is that of the arrival theorem, in Schweitzer's approximation (1979).
"""

import numpy as np

from prunecast.models.terms import FloatArray

ROUNDS = 20
"""Halvings of the interval: to a millionth."""


def in_turns_cycles(
    alone: FloatArray, issue: FloatArray, shared: FloatArray, *, warps: int, partitions: int
) -> FloatArray:
    """Cycles until all of `warps` warps, each of which does the same, have done it.

    Parameters
    ----------
    alone : any shape, cycles of a warp that has the SM to itself
    issue, shared : the same shape, of these: in which it issues, in which it uses the port of shared memory
    partitions : of the SM, each with issue slots of its own
    """
    waits = np.maximum(alone - issue - shared, 0.0)
    others_issue, others_shared = max(warps / partitions - 1.0, 0.0) * issue, (warps - 1.0) * shared
    low = np.maximum(np.maximum(others_issue, others_shared), waits + issue + shared)
    high = waits + issue + others_issue + shared + others_shared
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(ROUNDS):
            middle = (low + high) / 2.0
            free_issue, free_shared = 1.0 - others_issue / middle, 1.0 - others_shared / middle
            longer = waits + issue / free_issue + shared / free_shared > middle
            low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    return np.asarray(high)
