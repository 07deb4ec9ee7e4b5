"""Warps that nothing holds together share an SM's issue slots and the port of its shared memory.

A warp that waits for instructions of its own leaves both idle, and finds both busy when it comes back: with
few warps neither reaches what it could alone. Both are shared instruction by instruction, so that the mean of
a closed network of queues holds whatever a warp's share is made of (processor sharing: Baskett, Chandy, Muntz
and Palacios, "Open, Closed, and Mixed Networks of Queues with Different Classes of Customers", JACM 1975).
The mean is that of the arrival theorem, in Schweitzer's approximation (1979).

A greedy scheduler (`greedy_cycles`) goes on with a warp while it can, then with the youngest (arXiv
2503.20481): where warps want more issue slots than there are, some have all they can use and others what is
left. So they do not end together, and those that end last leave slots idle. Alike warps in turns would end
together, and sooner than the last one does: 32 warps of one token take 2,205 cycles for a k16 in the
simulator and 2,035 in turns; 2,250 to 2,300 were measured on an H200.
"""

import numpy as np

from prunecast.jit import inner, njit
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


DONE = 1e-9
"""Work below which a warp counts as done."""


def greedy_cycles(alone: FloatArray, issue: FloatArray, warps: int) -> FloatArray:
    """Cycles until the last of `warps` warps of one sub-partition ends, all of which do the same.

    Parameters
    ----------
    alone : any shape, cycles of a warp that has the sub-partition to itself
    issue : the same shape, of these, in which it issues
    """
    found = np.empty(alone.size)
    _last_ends(alone.ravel(), issue.ravel(), np.empty(warps), found)
    return np.asarray(found.reshape(alone.shape))


@njit()
def _last_ends(alone, issue, left, out):  # type: ignore[no-untyped-def]
    for i in range(alone.size):
        if left.size * issue[i] <= alone[i] or issue[i] <= 0.0:
            out[i] = alone[i]
        else:
            out[i] = alone[i] * _times_alone(alone[i] / issue[i], left)


@inner()
def _times_alone(most, left):  # type: ignore[no-untyped-def]
    """Time until all warps have ended over what one takes alone, if `most` warps at full speed fill all issue
    slots.
    """
    left[:] = 1.0
    time, running = 0.0, left.size
    for _ in range(left.size):  # each round ends at least one warp
        if running == 0:
            break
        room, soonest = most, np.inf
        for warp in range(left.size):
            rate = min(room, 1.0)
            if left[warp] > 0.0 and rate > 0.0:
                soonest = min(soonest, left[warp] / rate)
                room -= rate
        room = most
        for warp in range(left.size):
            if left[warp] > 0.0:
                rate = min(room, 1.0)
                room -= rate
                left[warp] -= rate * soonest
                if left[warp] <= DONE:
                    left[warp] = 0.0
                    running -= 1
        time += soonest
    return time
