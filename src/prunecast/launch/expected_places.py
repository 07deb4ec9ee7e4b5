"""Launches of few equal blocks lie in several ways during a burst: how often, and plans that lie so (0008).

A burst begins with blocks that have an SM each; the deeper its launches lie on the GPU, the longer it takes
until some share one. What is expected of a launch is the mean over those of a burst.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch.context import LaunchContext
from prunecast.launch.piled_up import JITTER
from prunecast.plan.kernel_plan import Schedule

__all__ = ["Placed", "expected_places"]

BURST = 240
"""Launches, as the suites' short products have them."""
SETTLED, RARE = 0.8, 0.05
"""Where so many launches lie in one way that is the way of all; shares that are left out."""


class Placed(NamedTuple):
    """Launches of a burst that lie alike."""

    share: float
    context: LaunchContext


class _Crowding(NamedTuple):
    share: float
    blocks: int
    """On the SM that has most."""
    sms: int
    """That have so many."""


def expected_places(context: LaunchContext) -> tuple[Placed, ...]:
    """The launch itself, or launches that lie as those of a burst do; shares add up to 1."""
    fit, sms = context.fit.blocks_per_sm, context.gpu.sm_count
    if not _changes(context, fit, sms):
        return (Placed(1.0, context),)
    found = _crowdings(context.plan.item_count, fit, sms)
    if max(crowding.share for crowding in found) >= SETTLED:
        return (Placed(1.0, context),)
    return tuple(Placed(c.share, _lying(context, c, sms)) for c in found)


def _changes(context: LaunchContext, fit: int, sms: int) -> bool:
    """Whether its lists say where equal blocks lie, some of them together."""
    items = context.plan.item_count
    if fit < 2 or not context.co_resident or context.schedule is not Schedule.STATIC or items > sms:
        return False
    columns = context.work.k_stop - context.work.k_start
    return context.blocks > items and bool((columns == columns[:1]).all())


@lru_cache(maxsize=256)
def _crowdings(blocks: int, fit: int, sms: int) -> tuple[_Crowding, ...]:
    from prunecast.launch.place_loops import follow_launches  # numba is slow to import

    sm, longest = np.empty((BURST, blocks), np.int64), np.empty(BURST)
    jitter = 1.0 + JITTER * np.random.default_rng(blocks).standard_normal((BURST, blocks))
    follow_launches(np.ones(blocks), jitter, fit, sms, sm, longest)
    counts = np.array([np.bincount(launch, minlength=sms) for launch in sm])
    most = counts.max(axis=1)
    found = []
    for crowd in range(1, fit + 1):
        alike = counts[most == crowd]
        if len(alike) >= RARE * BURST:
            found.append(
                _Crowding(len(alike), crowd, max(round(float((alike == crowd).sum(axis=1).mean())), 1))
            )
    total = sum(crowding.share for crowding in found)
    return tuple(crowding._replace(share=crowding.share / total) for crowding in found)


def _lying(context: LaunchContext, crowding: _Crowding, sms: int) -> LaunchContext:
    """The same launch with so many blocks on the first SMs, others alone."""
    start = _list_starts(context.plan.item_count, crowding, sms)
    alone = crowding.blocks == 1
    return replace(
        context,
        work=context.work._replace(block_start=start),
        schedule=Schedule.HARDWARE if alone else Schedule.STATIC,
        blocks=start.size - 1,
    )


def _list_starts(blocks: int, crowding: _Crowding, sms: int) -> npt.NDArray[np.int32]:
    if crowding.blocks == 1:
        return np.arange(blocks + 1, dtype=np.int32)
    full = min(crowding.sms, blocks // crowding.blocks)
    taken = np.zeros(crowding.blocks * sms, np.int32)
    taken[: blocks - full * (crowding.blocks - 1)] = 1
    for slot in range(1, crowding.blocks):
        taken[slot * sms : slot * sms + full] = 1
    return np.concatenate(([0], np.cumsum(taken))).astype(np.int32)
