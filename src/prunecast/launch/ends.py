"""How launches end: stores of C on their way to L2, and stragglers.

Equal blocks do not end together, since DRAM and L2 do not serve all SMs alike. How late a block is follows a
Gumbel distribution, so that the last of n equal blocks is late by its scale times log n. The constants of PDL
launches of tile kernels were fitted to equal blocks and have that in them: where few blocks are long, the
longest is seldom the slowest, and a launch gets some of it back.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch.context import LaunchContext
from prunecast.plan.kernel_plan import DTYPE_BYTES

Cycles = npt.NDArray[np.float64]


def store_latency_cycles(context: LaunchContext) -> int:
    """Cycles from a block's last store until L2 has it: a read's latency, and more with the bytes stored.

    The copy engine of the tile kernels waits as long as was measured, until it has read the whole tile of C.
    Warps of co-resident launches and of 2:4 store for themselves.
    """
    plan, gpu = context.plan, context.gpu
    if not context.co_resident and plan.tensor != "sparse-wgmma":
        return gpu.store_latency_cycles
    tile = min(plan.shape.block_m, plan.m) * min(plan.shape.block_n, plan.n) * DTYPE_BYTES[plan.dtype]
    beyond = gpu.store_latency_cycles - gpu.l2_latency_cycles
    share = min(tile / context.costs["store_latency_measured_bytes"], 1.0)
    return gpu.l2_latency_cycles + max(round(beyond * share), 0)


class Straggler(NamedTuple):
    """Distribution of how late blocks of co-resident launches end; a scale of 0 where constants have it."""

    share: float
    """Scale over a block's own duration."""
    most: float
    """Largest scale, in cycles: blocks that are behind meet less traffic."""
    counted: float
    """Scale in cycles that the launch floor has."""
    start: float
    """Cycles until a block begins, no part of its duration."""


def straggler_of(context: LaunchContext) -> Straggler:
    """Distribution of co-resident launches under PDL, none of others."""
    if not context.co_resident or not context.pdl:
        return Straggler(0.0, 0.0, 0.0, 0.0)
    gpu = context.gpu
    counted = 0.0 if context.pdl_release_s > 0.0 else gpu.slow_sm_cycles
    share, most = context.costs["straggler_share"], context.costs["straggler_most_cycles"]
    return Straggler(share, most, counted, float(gpu.block_start_cycles))


def straggler_cycles(sm_ends: Cycles, straggler: Straggler) -> float:
    """Cycles from the last of these ends to that of the launch, beyond what the launch floor has.

    sm_ends : (SMs,) when each SM ends if no block is late, 0 if it has none
    """
    last = float(sm_ends.max(initial=0.0))
    scale = min(straggler.share * max(last - straggler.start, 0.0), straggler.most)
    if scale <= 0.0:
        return 0.0
    behind = sm_ends[sm_ends > 0.0] - last
    return max(_last_of(behind, scale) - _last_of(behind, straggler.counted), 0.0)


def straggler_credit_scale(context: LaunchContext) -> float:
    """Gumbel scale of launches of one block to an SM, 0 of others."""
    plan, gpu = context.plan, context.gpu
    one_each = plan.item_count == plan.blocks <= gpu.sm_count
    return gpu.slow_sm_cycles if one_each and not context.co_resident and context.pdl else 0.0


def straggler_credit_cycles(sm_ends: Cycles, scale: float) -> float:
    """Cycles by which the last SM ends earlier than if all ended with it: fewer may be the straggler.

    sm_ends : (SMs,) when each SM ends if none is slow, 0 if it has no block
    """
    ends = sm_ends[sm_ends > 0.0]
    if scale <= 0.0 or not ends.size:
        return 0.0
    return scale * float(np.log(ends.size)) - _last_of(ends - ends.max(), scale)


def _last_of(behind: Cycles, scale: float) -> float:
    """Mode of the last of ends `behind` 0, each late by a Gumbel variate of this scale and mode 0."""
    return scale * float(np.log(np.exp(behind / scale).sum())) if scale > 0.0 else 0.0
