"""Where the blocks of a launch lie that starts while the one before it ends: some of them together (0008).

Such launches lie on the GPU several deep, as many as find room. Blocks that share an SM end last, and their
places are given out last: to the first blocks of a launch that finds no others. So what is left over of the
places, when whole launches have theirs, lies together, and stays so from launch to launch. Where exactly is
expected, not launched, and no part of a plan's fingerprint.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.kernels.order import Assigned
from prunecast.kernels.plan import KernelPlan, Schedule

__all__ = ["block_places", "piled_up", "places_of_lists"]

FILLED_TOGETHER = 6
"""SMs that are filled in turns before the next ones, where a launch has more blocks than SMs. Fitted to
unequal tiles marked fit, whose heaviest blocks follow one another: with two a tile of ten times the others'
columns is said to be 30 % too slow, with 16 to 132 others 10 to 20 % too fast; four are as good as six."""
DEEPEST, PAIRS, FEWEST = 12, 2, 24
"""Launches on the GPU at once from which on blocks do not come to lie as many together as fit: places change
from launch to launch, 1.0 to 2.7 SMs have two and few three (blocks of 24 and 32 to a launch, 16 and 12 deep,
of 240 launches the last ones). Fewer are taken to lie alone: nobody has looked. Of 48 to 128 all lie as said
here, of 64 behind some 60 launches (H200, clock stamps of 2026-11-21)."""


class _Crowd(NamedTuple):
    """Of a launch that has no more blocks than there are SMs."""

    sms: int
    """The first ones, which get more than one block."""
    blocks: int
    """Of each of these."""


def piled_up(assigned: Assigned, fit: int, sms: int) -> Assigned:
    """Lists of one item for places with a block, `fit` places to an SM, and empty ones for the others: place
    p is on SM p mod `sms`, and no block is launched for a list without an item.
    """
    blocks = assigned.blocks
    if fit < 2 or not 0 < -(-blocks // fit) < sms or (blocks <= sms and _crowd(blocks, fit, sms).sms == 0):
        return assigned
    count = np.bincount(block_places(blocks, fit, sms))
    start = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    return Assigned(assigned.work._replace(block_start=start), Schedule.STATIC, count.size)


def block_places(blocks: int, fit: int, sms: int) -> npt.NDArray[np.int64]:
    """(blocks,) places of blocks in the order of their launch; place p is on SM p mod `sms`."""
    if blocks <= sms:
        crowd = _crowd(blocks, fit, sms)
        block, full = np.arange(blocks), max(crowd.sms, 1)
        together = block // full * sms + block % full
        alone = block - crowd.sms * (crowd.blocks - 1)
        return np.asarray(np.where(block < crowd.sms * crowd.blocks, together, alone))
    place = np.arange(fit * sms)
    slot, sm = place // sms, place % sms
    order = np.lexsort((sm, slot, sm // FILLED_TOGETHER))
    return np.asarray(order[:blocks])


def _crowd(blocks: int, fit: int, sms: int) -> _Crowd:
    if fit < 2:
        return _Crowd(0, 1)
    if fit * sms >= DEEPEST * blocks:
        return _Crowd(PAIRS, 2) if blocks >= FEWEST else _Crowd(0, 1)
    return _Crowd(fit * sms % blocks // fit, fit)


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
