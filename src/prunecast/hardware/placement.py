"""CTA placement under programmatic dependent launch (PDL): which SMs run several small blocks of one launch.

A block slot is the capacity for one resident block on an SM. As many consecutive launches as fit are resident
on the GPU at the same time, and each new block starts in the slot of the next block that ends. Equal blocks
that share an SM slow each other down and end last, so that the first blocks of a later launch share this SM
again. In each launch, few SMs therefore have several blocks, and all other blocks are distributed evenly. If
blocks are unequal, the longest ones end last. Such launches are simulated one after another, and one launch
of about mean duration represents all of them.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FOLLOWED = 24
"""Number of simulated launches, divided by the number of launches that are resident at once. Kind: choice,
the placement repeats by then.
"""
JITTER = 0.02
"""Standard deviation of a block's duration, divided by its mean. Kind: choice, 0.01 and 0.1 lead to the same
placements."""
DEEPEST, PAIRS, FEWEST = 12, 2, 24
"""If at least `DEEPEST` launches are resident at once, placement changes from launch to launch. Measured in
bursts of 240 launches: some SM has two blocks in 3 % of launches of 16 blocks, in 61 % of launches of 24
blocks, and in 76 % of launches of 32 blocks. A launch of fewer than `FEWEST` blocks is assumed to have one
block per SM, a larger one to have `PAIRS` SMs with two blocks. Kind: measured, clock stamps, H200,
2026-11-22.
"""
BURST, SETTLED, RARE = 240, 0.8, 0.05
"""`BURST` is the number of launches of a burst. A placement that at least the fraction `SETTLED` of them have
counts as that of all launches; a placement that fewer than the fraction `RARE` have is ignored. Kind:
definition, bursts of recorded runs, and choice.
"""

Columns = tuple[int, ...]
"""Columns that each block of a launch multiplies; only their proportions matter."""
Places = npt.NDArray[np.int64]


def expected_places(columns: Columns, fit: int, sms: int) -> Places | None:
    """Return the block slot of each block, (blocks,) int64, where slot p is on SM p mod `sms`.

    Return None if no SM has a second block before every SM has one: blocks are then assigned to SMs round
    robin.

    Parameters
    ----------
    columns : kept columns of each block, in launch order
    fit : number of blocks that fit on an SM
    sms : number of SMs
    """
    blocks = len(columns)
    if fit < 2 or not 0 < -(-blocks // fit) < sms:
        return None
    places = block_places(columns, fit, sms)
    return None if places.max() < min(blocks, sms) else places


@lru_cache(maxsize=256)
def block_places(columns: Columns, fit: int, sms: int) -> Places:
    """Return the block slot of each block, (blocks,) int64. Unlike `expected_places`, never return None.

    The docstring of `expected_places` explains the parameters and the numbering of slots.
    """
    blocks = len(columns)
    if len(set(columns)) > 1 and fit * sms < DEEPEST * blocks:
        return _numbered(_typical(columns, fit, sms), sms)
    if blocks <= sms:
        return _crowded(_crowd(blocks, fit, sms), blocks, sms)
    # 192 blocks, two of which fit on an SM: clock stamps showed 61 SMs with two blocks and 70 with one; this
    # code returns 60 and 72
    full = fit * sms % blocks // fit
    place = np.arange(fit * sms)
    slot, sm = place // sms, place % sms
    return np.asarray(np.lexsort((sm, slot, sm >= full))[:blocks])


class _Crowd(NamedTuple):
    """Number of SMs that have several blocks, and the number of blocks on each of them."""

    sms: int
    blocks: int


def _crowded(crowd: _Crowd, blocks: int, sms: int) -> Places:
    """Return the slot of each block, (blocks,): the first blocks share the first SMs as `crowd` defines.

    Each of the remaining blocks has its own SM.
    """
    block, full = np.arange(blocks), max(crowd.sms, 1)
    together = block // full * sms + block % full
    alone = block - crowd.sms * (crowd.blocks - 1)
    return np.asarray(np.where(block < crowd.sms * crowd.blocks, together, alone))


class BurstPlacement(NamedTuple):
    """Placement of the blocks of a launch (`places`), and the fraction of launches that have it (`share`).

    `places` is (blocks,) the slot of each block, or None if every block has its own SM.
    """

    share: float
    places: Places | None


@lru_cache(maxsize=256)
def burst_placements(blocks: int, fit: int, sms: int) -> tuple[BurstPlacement, ...]:
    """Return the placements that occur if a launch of equal blocks is repeated in a burst.

    In the first launches of a burst, every block has its own SM. In later launches blocks share SMs; this
    begins later if more launches can be resident at once. The change within a burst matters for products with
    one token and 25 to 60 blocks.

    Each placement represents the launches with the same largest number of blocks on one SM. The result is
    empty if nearly all launches have the same placement.

    Parameters
    ----------
    blocks : number of blocks of a launch, at most `sms`
    fit : number of blocks that fit on an SM
    sms : number of SMs
    """
    from prunecast.hardware.placement_loops import follow_launches  # numba is slow to import

    sm, longest = np.empty((BURST, blocks), np.int64), np.empty(BURST)
    jitter = 1.0 + JITTER * np.random.default_rng(blocks).standard_normal((BURST, blocks))
    follow_launches(np.ones(blocks), jitter, fit, sms, sm, longest)
    counts = np.array([np.bincount(launch, minlength=sms) for launch in sm])
    most = counts.max(axis=1)
    alike = {int(crowd): counts[most == crowd] for crowd in np.unique(most)}
    often = {crowd: found for crowd, found in alike.items() if len(found) >= RARE * BURST}
    total = sum(len(found) for found in often.values())
    if max(len(found) for found in often.values()) >= SETTLED * total:
        return ()
    placements = []
    for crowd, found in often.items():
        full = round(float((found == crowd).sum(axis=1).mean()))
        places = _crowded(_Crowd(full, crowd), blocks, sms) if crowd > 1 else None
        placements.append(BurstPlacement(len(found) / total, places))
    return tuple(placements)


def _crowd(blocks: int, fit: int, sms: int) -> _Crowd:
    if fit < 2:
        return _Crowd(0, 1)
    if fit * sms >= DEEPEST * blocks:
        return _Crowd(PAIRS, 2) if blocks >= FEWEST else _Crowd(0, 1)
    return _Crowd(fit * sms % blocks // fit, fit)


def _typical(columns: Columns, fit: int, sms: int) -> Places:
    """Return the SM of each block, (blocks,), in the last launch of about mean duration."""
    from prunecast.hardware.placement_loops import follow_launches  # numba is slow to import

    launches, blocks = followed(len(columns), fit, sms), len(columns)
    length = np.maximum(np.array(columns, np.float64), 1.0)
    jitter = 1.0 + JITTER * np.random.default_rng(blocks).standard_normal((launches, blocks))
    sm, longest = np.empty((launches, blocks), np.int64), np.empty(launches)
    follow_launches(length, jitter, fit, sms, sm, longest)
    apart = np.abs(longest - longest.mean())
    return np.asarray(sm[np.flatnonzero(apart <= apart.min() * (1.0 + 1e-9))[-1]])


def _numbered(sm: Places, sms: int) -> Places:
    """Return the block slot of each block, (blocks,), given the SM of each block.

    The block that is the i-th (from 0) on its SM gets slot i * `sms` + the new number of its SM. SMs are
    renumbered in descending order of their number of blocks, and in the order of their first block if they
    have equally many.

    Parameters
    ----------
    sm : (blocks,) SM of each block
    sms : number of SMs of the GPU
    """
    slot = np.array([np.count_nonzero(sm[:block] == sm[block]) for block in range(sm.size)])
    first = sm[slot == 0]
    number = np.empty(sms, np.int64)
    number[first[np.argsort(-np.bincount(sm, minlength=sms)[first], kind="stable")]] = np.arange(first.size)
    return np.asarray(slot * sms + number[sm])


def followed(blocks: int, fit: int, sms: int) -> int:
    """Return the number of consecutive launches that are simulated to find a placement."""
    return FOLLOWED * math.ceil(fit * sms / blocks)


def resident_share(
    columns: Columns, fit: int, sms: int, *, column_cycles: float, start_cycles: float
) -> float:
    """Return the fraction of a launch's blocks, 0 to 1, that are resident before the preceding launch ends.

    For equal blocks the fraction is the number of free slots divided by the number of blocks. If blocks are
    unequal, short blocks free their slots long before the longest block ends. If no block that starts late
    ends after the longest block, late starts do not delay the launch, and the result is 1.

    Parameters
    ----------
    columns : kept columns of each block, in launch order
    fit : number of blocks that fit on an SM
    sms : number of SMs
    column_cycles : duration of a block in cycles per kept column
    start_cycles : a block counts as resident if its slot is free at least this many cycles before the
        preceding launch ends
    """
    blocks, room = len(columns), fit * sms
    at_once = min(-blocks % max(room, 1) / max(blocks, 1), 1.0)
    if at_once >= 1.0 or blocks > room or len(set(columns)) == 1:
        return at_once
    ends = column_cycles * _ends(columns, fit, sms)
    # The first `room - blocks` blocks find free slots; each other block waits for the next block to end
    late = np.zeros(blocks)
    left = np.sort(ends)[: 2 * blocks - room]
    late[room - blocks :] = np.maximum(start_cycles - (ends.max() - left), 0.0)
    if float((ends + late).max()) <= float(ends.max()):
        return 1.0
    return float((late == 0.0).mean())


def _ends(columns: Columns, fit: int, sms: int) -> npt.NDArray[np.float64]:
    """Return the end time of each block, (blocks,), in units of the time that a lone block needs per column.

    Block i with L_i kept columns ends at L_i + 1/2 * sum of min(L_i, L_j) over the other blocks j on the same
    SM, as in `placement_loops`.
    """
    length = np.array(columns, np.float64)
    place = block_places(columns, fit, sms) if fit > 1 else np.arange(length.size)
    together = (place % sms)[:, None] == (place % sms)[None, :]
    both = np.where(together, np.minimum(length[:, None], length[None, :]), 0.0)
    return np.asarray((length + both.sum(axis=1)) / 2.0)
