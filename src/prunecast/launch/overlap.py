"""Overlap of consecutive launches under PDL: the prologue of a block, its head start, and stragglers.

A block of the tile kernels fills an SM. It starts on the next SM that the preceding launch leaves, runs its
prologue (set-up, work list and indices), and waits for that launch to end before it reads B.

Two effects delay the end of a launch: stores of C on their way to L2, and stragglers. Equal blocks do not end
together, since DRAM and L2 do not serve all SMs equally. The delay of a block follows a Gumbel distribution,
so that the last of n equal blocks is late by its scale times log n. The fitted constants of PDL launches of
tile kernels contain this delay for equal blocks. If only few blocks are long, the longest block is seldom the
one with the largest delay, and the launch ends earlier than these constants predict: it gets a credit.
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
    """Return the cycles from a block's last store until L2 has it.

    Tile kernels store with the copy engine: their latency is `store_latency_cycles` as measured, until the
    engine has read the whole tile of C. Warps of co-resident launches and of 2:4 store directly: their
    latency is that of a read, plus a part of the rest that grows with the bytes stored.
    """
    plan, gpu = context.plan, context.gpu
    if not context.co_resident and plan.tensor != "sparse-wgmma":
        return gpu.store_latency_cycles
    tile = min(plan.shape.block_m, plan.m) * min(plan.shape.block_n, plan.n) * OUTPUT_BYTES[plan.dtype]
    beyond = gpu.store_latency_cycles - gpu.l2_latency_cycles
    share = min(tile / context.costs["store_latency_measured_bytes"], 1.0)
    return gpu.l2_latency_cycles + max(round(beyond * share), 0)


class Straggler(NamedTuple):
    """Distribution of the end delay of blocks in co-resident launches; scale 0 if constants contain it."""

    share: float
    """Gumbel scale over a block's own duration."""
    most: float
    """Largest Gumbel scale in cycles; it is limited because late blocks meet less traffic."""
    counted: float
    """Part of the Gumbel scale that the launch floor already contains, in cycles."""
    start: float
    """Cycles until a block begins, which are not part of its duration."""


def straggler_of(context: LaunchContext) -> Straggler:
    """Return the delay distribution of a co-resident launch under PDL; all zeros for other launches."""
    if not context.co_resident or not context.pdl:
        return Straggler(0.0, 0.0, 0.0, 0.0)
    gpu = context.gpu
    counted = 0.0 if context.pdl_release_s > 0.0 else gpu.slow_sm_cycles
    share, most = context.costs["straggler_share"], context.costs["straggler_most_cycles"]
    return Straggler(share, most, counted, float(gpu.block_start_cycles))


def straggler_cycles(sm_ends: Cycles, straggler: Straggler) -> float:
    """Return the cycles from the last SM's end to the launch's end that the launch floor does not contain.

    sm_ends : (SMs,) cycle in which each SM ends without delays, 0 if it has no block
    """
    last = float(sm_ends.max(initial=0.0))
    scale = min(straggler.share * max(last - straggler.start, 0.0), straggler.most)
    if scale <= 0.0:
        return 0.0
    behind = sm_ends[sm_ends > 0.0] - last
    return max(_last_of(behind, scale) - _last_of(behind, straggler.counted), 0.0)


def straggler_credit_scale(context: LaunchContext) -> float:
    """Return the Gumbel scale in cycles of launches with one block per SM; 0 for other launches."""
    plan, gpu = context.plan, context.gpu
    one_each = plan.item_count == plan.blocks <= gpu.sm_count
    return gpu.slow_sm_cycles if one_each and not context.co_resident and context.pdl else 0.0


def straggler_credit_cycles(sm_ends: Cycles, scale: float) -> float:
    """Return the cycles by which a launch ends earlier than if all its SMs ended with the last one.

    With fewer SMs that end late, fewer blocks may be the straggler.

    sm_ends : (SMs,) cycle in which each SM ends without delays, 0 if it has no block
    """
    ends = sm_ends[sm_ends > 0.0]
    if scale <= 0.0 or not ends.size:
        return 0.0
    return scale * float(np.log(ends.size)) - _last_of(ends - ends.max(), scale)


def _last_of(behind: Cycles, scale: float) -> float:
    """Return the mode of the maximum of `behind` plus Gumbel delays of mode 0.

    It is scale * log(sum(exp(behind / scale))). `behind` are ends relative to the last one, in cycles, at
    most 0.
    """
    return scale * float(np.log(np.exp(behind / scale).sum())) if scale > 0.0 else 0.0


def prologue_is_hidden(context: LaunchContext) -> bool:
    """Return True if all blocks run their whole prologue during the preceding launch, on SMs without a block.

    Without this rule, predictions for products of at most 66 blocks are 900 to 1,500 cycles too slow.
    """
    plan = context.plan
    one_each = not context.co_resident and plan.item_count == plan.blocks
    return one_each and 2 * plan.blocks <= context.gpu.sm_count and context.pdl


def prologue_under_preceding_cycles(context: LaunchContext) -> float:
    """Return the cycles of a prologue that may overlap the preceding launch; 0 if none or all of it does."""
    if prologue_is_hidden(context) or context.co_resident or not context.pdl:
        return 0.0
    gpu, blocks, prologue = context.gpu, context.plan.blocks, prologue_cycles(context)
    # With more blocks than SMs in hardware order, the last block to start in the first wave is not the last
    # to end: the block that ends last follows a block that had started early
    rounds = context.plan.schedule is Schedule.HARDWARE and blocks > gpu.sm_count
    if rounds or _leaves_sms(blocks, gpu):
        return prologue
    return min(prologue, context.costs["most_hidden_prologue_cycles"])


def prologue_cycles(context: LaunchContext) -> float:
    """Return the cycles of a block from its start until it may read B: set-up, and indices from DRAM."""
    gpu, setting_up = context.gpu, max((_set_up_cycles(program) for program in context.programs), default=0)
    return float(gpu.block_start_cycles + setting_up + gpu.dram_latency_cycles)


def early_starts(context: LaunchContext) -> float:
    """Return the blocks of the next launch whose weight prefetch is complete when the preceding launch ends.

    Each block fills an SM. Where n blocks leave f SMs free, f blocks of the next launch start at once. The
    next f start on SMs whose blocks had started early in the same way, and so on; each group starts a part of
    the prologue after the one before. Only the last cycles of a prologue count, one DRAM latency for its
    indices, during which its weights are in flight.
    """
    gpu, blocks = context.gpu, context.plan.blocks
    if not context.pdl or not _leaves_sms(blocks, gpu):
        return 0.0
    prologue = max(prologue_under_preceding_cycles(context), 1.0)
    free = gpu.sm_count - blocks
    groups = -(-blocks // free)
    return free * (1.0 + groups * gpu.dram_latency_cycles / prologue)


def _set_up_cycles(program: WarpProgram) -> int:
    """Return the cycles of issue before a warp's first step, without waiting for data."""
    code = (*program.start, *program.begin)
    return sum(instruction.amount for instruction in code if instruction.op is Op.ISSUE)


def _leaves_sms(blocks: int, gpu: GpuSpec) -> bool:
    """Return True if `blocks`, with one SM each, leave SMs free for the first blocks of the next launch."""
    return 0 < blocks < gpu.sm_count


def free_sms(sm_finish: npt.NDArray[np.float64], before_b: float) -> int:
    """Return the number of SMs that finish at least `before_b` cycles before the last one."""
    return int((sm_finish <= sm_finish.max(initial=0.0) - before_b).sum())


def head_start_cycles(sm_finish: npt.NDArray[np.float64], before_b: float, free: int) -> float:
    """Return the head start: cycles by which early block starts shorten the period of repeated launches.

    A block takes the next SM that the preceding launch leaves and runs its prologue there, then waits for the
    end of that launch. Nothing is gained if all SMs end at the same time.

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM runs out of work, 0 if it has no block
    before_b : cycles of a block before it reads B
    free : SMs on which blocks start early in any case: `free_sms`, or, where ends differ by chance as in a
        simulated run, the SMs without a block
    """
    last = float(sm_finish.max(initial=0.0))
    if before_b <= 0.0:
        return 0.0
    spread = spread_cycles(before_b, sm_finish.size - free, free)
    early = np.minimum(last - np.sort(sm_finish) + spread, before_b)
    # The SM that ends last after its head start determines the period
    return last - float(np.max(sm_finish - np.where(sm_finish > 0.0, early, 0.0), initial=0.0))


def spread_cycles(before_b: float, late: int, free: int) -> float:
    """Return the cycles that every block gains if `late` SMs end last and `free` SMs end early enough.

    Early enough means that a prologue fits. As many blocks of the next launch as there are free SMs start
    early, then as many on SMs whose blocks had started so, and so on. In repeated launches each of these
    groups is later than the one before by the same amount, and the last one by the remainder: all of them
    gain `before_b` over the number of groups. The number of groups is whole: 80 blocks start in two groups,
    not in 1.5, which would make predictions 4 to 7 % too fast (1280 x 1280 x 1024 and 3072 x 768 x 512, H200,
    2026-11-22).
    """
    return before_b / -(-late // free) if free > 0 and late > 0 else 0.0
