"""Where the blocks of a launch lie that starts while the one before it ends: they pile up (0008).

A few neighbouring SMs get as many blocks as fit on them before the next ones get any. Where exactly is
expected, not launched, and no part of a plan's fingerprint.
"""

import numpy as np
import numpy.typing as npt

from prunecast.kernels.order import Assigned
from prunecast.kernels.plan import KernelPlan, Schedule

__all__ = ["block_places", "piled_up", "places_of_lists"]

FILLED_TOGETHER = 6
"""SMs that are filled in turns before the next ones. Fitted to unequal tiles marked fit, whose heaviest
blocks follow one another: with two a tile of ten times the others' columns is said to be 30 % too slow,
with 16 to 132 others 10 to 20 % too fast; four are as good as six, which is three pairs of SMs."""


def piled_up(assigned: Assigned, fit: int, sms: int) -> Assigned:
    """Lists of one item for as many SMs as the blocks fill, `fit` to an SM, and empty ones for the others.

    Lists without an item say which SMs get none: no block is launched for them.
    """
    if fit < 2 or not 0 < -(-assigned.blocks // fit) < sms:
        return assigned
    count = np.bincount(block_places(assigned.blocks, fit, sms))
    start = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    return Assigned(assigned.work._replace(block_start=start), Schedule.STATIC, count.size)


def block_places(blocks: int, fit: int, sms: int) -> npt.NDArray[np.int64]:
    """(blocks,) places of blocks in the order of their launch; place p is on SM p mod `sms`."""
    place = np.arange(fit * sms)
    slot, sm = place // sms, place % sms
    order = np.lexsort((sm, slot, sm // FILLED_TOGETHER))
    return np.asarray(order[:blocks])


def places_of_lists(plan: KernelPlan, fit: int, sms: int) -> npt.NDArray[np.int64]:
    """(blocks,) places of a plan's lists: piled up, or one after the other where lists say otherwise."""
    lists = np.arange(plan.blocks)
    if plan.schedule is not Schedule.STATIC or not plan.starts_early:
        return lists
    taken = np.diff(plan.work.block_start) > 0
    piled = block_places(int(taken.sum()), fit, sms)
    if not np.array_equal(np.sort(piled), np.flatnonzero(taken)):
        return lists
    places = np.empty_like(lists)
    places[taken] = piled
    places[~taken] = np.setdiff1d(lists, piled)
    return places
