"""Overlap of consecutive launches under PDL: the prologue of a block, and the head start that SMs give it.

A block of the tile kernels fills an SM. It starts on the next SM that the preceding launch leaves, sets
itself up and reads its list and indices (its prologue), and waits for that launch before it reads B.

Ends count too: stores of C on their way to L2, and stragglers. Equal blocks do not end together, since DRAM
and L2 do not serve all SMs alike. How late a block is follows a Gumbel distribution, so that the last of n
equal blocks is late by its scale times log n. The constants of PDL launches of tile kernels were fitted to
equal blocks and have that in them: where few blocks are long, the longest is seldom the slowest, and a launch
gets some of it back.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec
from prunecast.launch.context import LaunchContext
from prunecast.plan.kernel_plan import OUTPUT_BYTES, Schedule
from prunecast.plan.program import Op, WarpProgram

Cycles = npt.NDArray[np.float64]


def store_latency_cycles(context: LaunchContext) -> int:
    """Cycles from a block's last store until L2 has it: a read's latency, and more with the bytes stored.

    The copy engine of the tile kernels waits as long as was measured, until it has read the whole tile of C.
    Warps of co-resident launches and of 2:4 store for themselves.
    """
    plan, gpu = context.plan, context.gpu
    if not context.co_resident and plan.tensor != "sparse-wgmma":
        return gpu.store_latency_cycles
    tile = min(plan.shape.block_m, plan.m) * min(plan.shape.block_n, plan.n) * OUTPUT_BYTES[plan.dtype]
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


def prologue_is_hidden(context: LaunchContext) -> bool:
    """Whether all blocks run their whole prologue under the preceding launch, which leaves them SMs.

    Without it products of at most 66 blocks are 900 to 1,500 cycles too slow.
    """
    plan = context.plan
    one_each = not context.co_resident and plan.item_count == plan.blocks
    return one_each and 2 * plan.blocks <= context.gpu.sm_count and context.pdl


def prologue_under_preceding_cycles(context: LaunchContext) -> float:
    """Cycles of a prologue that may lie under the preceding launch; 0 where none or all of it does."""
    if prologue_is_hidden(context) or context.co_resident or not context.pdl:
        return 0.0
    gpu, blocks, prologue = context.gpu, context.plan.blocks, prologue_cycles(context)
    # Of more blocks than SMs, which the hardware starts, the last to start in the first wave is not the one
    # that ends last: this one begins behind a block that had started early
    rounds = context.plan.schedule is Schedule.HARDWARE and blocks > gpu.sm_count
    if rounds or _leaves_sms(blocks, gpu):
        return prologue
    return min(prologue, context.costs["most_hidden_prologue_cycles"])


def prologue_cycles(context: LaunchContext) -> float:
    """Cycles of a block from its start until it may read B: set-up, and its list and indices from DRAM."""
    gpu, setting_up = context.gpu, max((_set_up_cycles(program) for program in context.programs), default=0)
    return float(gpu.block_start_cycles + setting_up + gpu.dram_latency_cycles)


def early_starts(context: LaunchContext) -> float:
    """Blocks of the next launch whose weight prefetch is done when the preceding one ends, one to an SM.

    Where n blocks leave f SMs, f of the next launch start at once, f more on SMs whose blocks had started so,
    and so on, each group a part of the prologue after the one before. A prologue's indices take the last
    cycles, in which its weights are on their way.
    """
    gpu, blocks = context.gpu, context.plan.blocks
    if not context.pdl or not _leaves_sms(blocks, gpu):
        return 0.0
    prologue = max(prologue_under_preceding_cycles(context), 1.0)
    in_time = _groups_of_starts(blocks, gpu) * gpu.dram_latency_cycles / prologue
    return (gpu.sm_count - blocks) * (1.0 + in_time)


def _set_up_cycles(program: WarpProgram) -> int:
    """Cycles in which a warp sleeps before its first step, data aside."""
    code = (*program.start, *program.begin)
    return sum(instruction.amount for instruction in code if instruction.op is Op.ISSUE)


def _groups_of_starts(blocks: int, gpu: GpuSpec) -> int:
    """Groups in which the blocks of a launch start that leaves SMs free, each of as many blocks as these."""
    return -(-blocks // (gpu.sm_count - blocks))


def _leaves_sms(blocks: int, gpu: GpuSpec) -> bool:
    """Whether so many blocks, with an SM each, leave SMs to the first blocks of the next launch."""
    return 0 < blocks < gpu.sm_count


def free_sms(sm_finish: npt.NDArray[np.float64], before_b: float) -> int:
    """SMs that have `before_b` cycles left when the last one ends."""
    return int((sm_finish <= sm_finish.max(initial=0.0) - before_b).sum())


def head_start_cycles(sm_finish: npt.NDArray[np.float64], before_b: float, free: int) -> float:
    """Head start: cycles by which launches that repeat come closer, since their first blocks start early.

    A block takes the next SM that the preceding launch leaves and runs its prologue there, but waits for the
    end of that launch with the rest. So nothing is gained where all SMs end together.

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM runs dry, 0 if it has no block
    before_b : cycles of a block before it reads B
    free : SMs on which blocks start early whatever the rest does: `free_sms`, or where ends differ by chance,
        as in a simulated run, those without a block
    """
    last = float(sm_finish.max(initial=0.0))
    if before_b <= 0.0:
        return 0.0
    spread = spread_cycles(before_b, sm_finish.size - free, free)
    early = np.minimum(last - np.sort(sm_finish) + spread, before_b)
    return last - float(np.max(sm_finish - np.where(sm_finish > 0.0, early, 0.0), initial=0.0))


def spread_cycles(before_b: float, late: int, free: int) -> float:
    """Cycles that every block gains where `late` SMs end last and `free` ones leave time for a prologue.

    So many blocks of the next launch as SMs are free start early, then as many on SMs whose blocks had
    started so, and so on. In launches that repeat each of these groups is late by as much more than the one
    before, and the last one by what is left: so all of them gain `before_b` over the number of groups. Groups
    are whole: 80 blocks start in two, not in 1.5, without which they are 4 to 7 % too fast (1280 x 1280 x
    1024 and 3072 x 768 x 512, H200, 2026-11-22).
    """
    return before_b / -(-late // free) if free > 0 and late > 0 else 0.0
