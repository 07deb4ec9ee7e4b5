"""Where the blocks of a launch lie that starts while the one before it ends: some of them together (0008).

Such launches lie on the GPU several deep, as many as find room. A block takes the place of the first one that
ends, whatever else lies on that SM. Equal blocks that share an SM end last, and their places are given out
last: to the first blocks of a launch that finds no others. So what is left over of the places, when whole
launches have theirs, lies together, and stays so from launch to launch; all else lies evenly. Of unequal
blocks those end last that are longest: launches are followed one after another (`place_loops.py`), and the
one that takes about as long as all do on average stands for them. Where exactly is expected, not launched,
and no part of a plan's fingerprint.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.plan.kernel_plan import Schedule, WorkList
from prunecast.plan.order import Assigned

__all__ = ["JITTER", "Columns", "block_columns", "block_places", "followed", "piled_up", "places_of_lists"]

FOLLOWED = 24
"""Launches that are followed for each that finds room at once: by then blocks lie as they stay."""
JITTER = 0.02
"""By which blocks that do the same end apart, standard deviation over their time. 0.01 and 0.1 leave the same
blocks together, 0 none."""
DEEPEST, PAIRS, FEWEST = 12, 2, 24
"""Launches on the GPU at once from which on blocks do not come to lie as many together as fit: places change
from launch to launch, of a burst of 240 launches 9, 61 and 67 % have pairs with 24 blocks, 76 % with 32, 3 %
with 16, on one to four SMs. Fewer are taken to lie alone. Of 48 to 128 all lie as said here, of 64 behind
some 20 launches (H200, `gpu_trace_few --places`)."""

Columns = tuple[int, ...]
"""That each block of a launch multiplies."""


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
    if fit < 2 or not 0 < -(-blocks // fit) < sms:
        return assigned
    places = block_places(block_columns(assigned.work), fit, sms)
    if places.max() < min(blocks, sms):
        return assigned
    count = np.bincount(places)
    start = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    return Assigned(assigned.work._replace(block_start=start), Schedule.STATIC, count.size)


def block_columns(work: WorkList) -> Columns:
    """Of equal blocks one each: they lie alike, however long they are."""
    columns = work.k_stop - work.k_start
    return (1,) * columns.size if (columns == columns[:1]).all() else tuple(columns.tolist())


@lru_cache(maxsize=256)
def block_places(columns: Columns, fit: int, sms: int) -> npt.NDArray[np.int64]:
    """(blocks,) places of blocks in the order of their launch; place p is on SM p mod `sms`."""
    blocks = len(columns)
    if len(set(columns)) > 1 and fit * sms < DEEPEST * blocks:
        return _numbered(_typical(columns, fit, sms), sms)
    if blocks <= sms:
        crowd = _crowd(blocks, fit, sms)
        block, full = np.arange(blocks), max(crowd.sms, 1)
        together = block // full * sms + block % full
        alone = block - crowd.sms * (crowd.blocks - 1)
        return np.asarray(np.where(block < crowd.sms * crowd.blocks, together, alone))
    # What is left over lies together here too, all else evenly: 192 blocks of which two fit on 60 SMs in
    # pairs and 72 alone (stamps: 61 and 70), 344 of which three fit on 80 in threes and 52 in pairs (80, 52)
    full = fit * sms % blocks // fit
    place = np.arange(fit * sms)
    slot, sm = place // sms, place % sms
    order = np.lexsort((sm, slot, sm >= full))
    return np.asarray(order[:blocks])


def _crowd(blocks: int, fit: int, sms: int) -> _Crowd:
    if fit < 2:
        return _Crowd(0, 1)
    if fit * sms >= DEEPEST * blocks:
        return _Crowd(PAIRS, 2) if blocks >= FEWEST else _Crowd(0, 1)
    return _Crowd(fit * sms % blocks // fit, fit)


def _typical(columns: Columns, fit: int, sms: int) -> npt.NDArray[np.int64]:
    """(blocks,): the SM of each in the last launch that takes about as long as all do on average."""
    from prunecast.launch.place_loops import follow_launches  # numba is slow to import

    launches, blocks = followed(len(columns), fit, sms), len(columns)
    length = np.maximum(np.array(columns, np.float64), 1.0)
    jitter = 1.0 + JITTER * np.random.default_rng(blocks).standard_normal((launches, blocks))
    sm, longest = np.empty((launches, blocks), np.int64), np.empty(launches)
    follow_launches(length, jitter, fit, sms, sm, longest)
    apart = np.abs(longest - longest.mean())
    return np.asarray(sm[np.flatnonzero(apart <= apart.min() * (1.0 + 1e-9))[-1]])


def _numbered(sm: npt.NDArray[np.int64], sms: int) -> npt.NDArray[np.int64]:
    """(blocks,) places, SMs numbered by how many blocks they have, then by the first of them."""
    slot = np.array([np.count_nonzero(sm[:block] == sm[block]) for block in range(sm.size)])
    first = sm[slot == 0]
    number = np.empty(sms, np.int64)
    number[first[np.argsort(-np.bincount(sm, minlength=sms)[first], kind="stable")]] = np.arange(first.size)
    return np.asarray(slot * sms + number[sm])


def followed(blocks: int, fit: int, sms: int) -> int:
    """Launches that are followed."""
    return FOLLOWED * math.ceil(fit * sms / blocks)


def places_of_lists(
    work: WorkList, schedule: Schedule, blocks: int, fit: int, sms: int, *, co_resident: bool
) -> npt.NDArray[np.int64]:
    """(blocks,) places of block lists: piled up, or one after the other where lists say otherwise."""
    lists = np.arange(blocks)
    if schedule is not Schedule.STATIC or not co_resident:
        return lists
    taken = np.diff(work.block_start) > 0
    if fit < 2 or not taken.any():
        return lists
    piled = block_places(block_columns(work), fit, sms)
    if not np.array_equal(np.sort(piled), np.flatnonzero(taken)):
        return lists
    places = np.empty_like(lists)
    places[taken] = piled
    places[~taken] = np.setdiff1d(lists, piled)
    return places
