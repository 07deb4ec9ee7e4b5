"""Overlap of consecutive launches under PDL: the head start of blocks, and stragglers.

A block of the tile kernels fills an SM. It starts on the next SM that a block of the preceding launch leaves,
runs its prologue (set-up, work list and indices), and waits for that launch to end before it reads B.

Two effects delay the end of a launch: stores of C on their way to L2, and stragglers. Equal blocks do not end
together, since DRAM and L2 do not serve all SMs equally. The delay of a block follows a Gumbel distribution,
so that the last of n equal blocks is late by the scale of the distribution times log n. The fitted constants
of PDL launches of tile kernels contain this delay for equal blocks. If only few blocks are long, the longest
block is seldom the one with the largest delay. The launch then ends earlier than these constants predict, and
the difference (`straggler_credit_cycles`) is subtracted.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch.context import LaunchContext

Cycles = npt.NDArray[np.float64]


class Straggler(NamedTuple):
    """Gumbel distribution of the time by which blocks of a co-resident launch end later than without delays.

    All fields are 0 for launches whose fitted constants already contain this delay.
    """

    share: float
    """Gumbel scale divided by the block's own duration."""
    most: float
    """Upper limit of the Gumbel scale in cycles. There is a limit because late blocks meet less traffic."""
    counted: float
    """Part of the Gumbel scale that the launch floor already contains, in cycles."""
    start: float
    """Cycles until a block begins, which are not part of its duration."""


def straggler_of(context: LaunchContext) -> Straggler:
    """Return the straggler distribution of a co-resident launch under PDL; all zeros for other launches."""
    if not context.co_resident or not context.pdl:
        return Straggler(0.0, 0.0, 0.0, 0.0)
    gpu = context.gpu
    counted = 0.0 if context.pdl_release_s > 0.0 else gpu.slow_sm_cycles
    share, most = context.costs["straggler_share"], context.costs["straggler_most_cycles"]
    return Straggler(share, most, counted, float(gpu.block_start_cycles))


def straggler_cycles(sm_ends: Cycles, straggler: Straggler) -> float:
    """Return the straggler delay of a launch in cycles, without the part that the launch floor contains.

    The delay counts from the time at which the last SM would end without delays to the most likely end of the
    launch.

    Parameters
    ----------
    sm_ends : (SMs,) cycle in which each SM would end without delays, 0 if it has no block
    """
    last = float(sm_ends.max(initial=0.0))
    scale = min(straggler.share * max(last - straggler.start, 0.0), straggler.most)
    if scale <= 0.0:
        return 0.0
    behind = sm_ends[sm_ends > 0.0] - last
    return max(_last_of(behind, scale) - _last_of(behind, straggler.counted), 0.0)


def straggler_credit_scale(context: LaunchContext) -> float:
    """Return the Gumbel scale in cycles with which `straggler_credit_cycles` corrects the straggler delay.

    The correction applies to launches with PDL, at most one block per SM and one item per block, if they are
    not co-resident with the next launch. For all other launches the result is 0: nothing is corrected.
    """
    plan, gpu = context.plan, context.gpu
    one_each = plan.item_count == plan.blocks <= gpu.sm_count
    return gpu.slow_sm_cycles if one_each and not context.co_resident and context.pdl else 0.0


def straggler_credit_cycles(ends: Cycles, scale: float) -> float:
    """Return the cycles by which the straggler delay is shorter than if all blocks ended at the same time.

    The fewer blocks end late, the fewer can be the straggler, and the shorter is the most likely delay. The
    fitted constants contain the delay of equal blocks, so that the caller subtracts the result. Long blocks
    that start early end together with the others, which then can be stragglers too.

    Parameters
    ----------
    ends : (launches, blocks) result of `series_ends`; the credit is the mean over the launches
    scale : Gumbel scale in cycles, see `straggler_credit_scale`
    """
    if scale <= 0.0 or not ends.size:
        return 0.0
    behind = ends - ends.max(axis=1, keepdims=True)
    return scale * float(np.log(ends.shape[1])) - _last_of(behind, scale)


def _last_of(behind: Cycles, scale: float) -> float:
    """Return the most likely end in cycles of the last SM, relative to the last end without delays.

    Each end has an independent Gumbel delay of mode 0. The mode of the maximum is scale * log(sum(exp(behind
    / scale))).

    Parameters
    ----------
    behind : (SMs,) end of each SM without delays, minus the last of these ends; cycles, at most 0. The result
        for (launches, SMs) is the mean over the launches
    scale : Gumbel scale in cycles; 0 for no delays
    """
    if scale <= 0.0:
        return 0.0
    return scale * float(np.log(np.exp(behind / scale).sum(axis=-1)).mean())


def gained_cycles(context: LaunchContext, sm_finish: Cycles) -> float:
    """Return the cycles by which overlap with the preceding launch shortens the period of repeated launches.

    These are the head start and the correction `straggler_credit_cycles`. Both are 0 outside of a CUDA graph,
    since blocks start before the preceding launch has ended only in a graph.

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM runs out of work, 0 if it has no block
    """
    if context.conditions.launch != "graph":
        return 0.0
    early = context.prologue_under_preceding_cycles
    ends = series_ends(sm_finish, early)
    credit = straggler_credit_cycles(ends, straggler_credit_scale(context))
    return head_start_cycles(ends, early, sm_finish.size - ends.shape[1]) + credit


LAUNCHES = 12
"""Launches of the series that `series_ends` follows. Kind: choice, for 132 random ends the head start differs
from that of 400 launches by at most 3 % of the prologue."""


def series_ends(sm_finish: Cycles, before_b: float) -> Cycles:
    """Return the cycle in which each block of a series of equal launches ends, (launches, blocks).

    The first block starts on the SM that the preceding launch leaves first, the second block on the next SM,
    and so on. Each runs its prologue there, and waits for the end of that launch before it reads B:

        end of a block = max(time when its SM is free, end of the preceding launch - before_b) + its duration

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM runs out of work if all blocks start in cycle 0, in the order
        in which blocks start; 0 if it has no block
    before_b : cycles from the start of a block until it reads B; if 0, one launch is returned
    """
    duration = sm_finish[sm_finish > 0.0]
    if before_b <= 0.0 or not duration.size:
        return duration[None]
    ends, free = np.empty((LAUNCHES + 1, duration.size)), np.sort(sm_finish)
    ends[0] = duration
    for before, now in pairwise(ends):
        now[:] = np.maximum(free[: duration.size], before.max() - before_b) + duration
        free = np.sort(np.concatenate((free[duration.size :], now)))
    return ends


def head_start_cycles(ends: Cycles, before_b: float, free: int) -> float:
    """Return the head start: mean cycles by which early block starts shorten the period of equal launches.

    Long blocks gain nothing if they start on the SMs that long blocks leave, even if most SMs end early. The
    result is at least `spread_cycles`, to which few free SMs would lead only after many launches.

    Parameters
    ----------
    ends : result of `series_ends`
    before_b : as in `series_ends`
    free : number of SMs without a block
    """
    launches, blocks = len(ends), ends[0].size
    if launches == 1:
        return 0.0
    longest = float(ends[0].max())
    mean = longest - (float(ends[-1].max()) - longest) / (launches - 1)
    return max(mean, spread_cycles(before_b, blocks, free))


def spread_cycles(before_b: float, blocks: int, free: int) -> float:
    """Return the head start of `blocks` equal blocks, one per SM, if `free` SMs have no block.

    The blocks of the next launch start in groups of `free` blocks: the first group on the free SMs, the next
    one on SMs whose blocks had started early, and so on. In repeated launches each group starts later than
    the previous one by the same amount, so that all blocks gain `before_b` divided by the number of groups.
    This number is rounded up: 80 blocks start in two groups, not in 1.5, which would make predictions 4 to
    7 % too fast (1280 x 1280 x 1024 and 3072 x 768 x 512, H200, 2026-11-22).
    """
    return before_b / -(-blocks // free) if free > 0 and blocks > 0 else 0.0
