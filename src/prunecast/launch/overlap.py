"""Overlap of consecutive launches under PDL: the prologue of a block, and the head start that SMs give it.

A block of the tile kernels fills an SM. It starts on the next SM that the preceding launch leaves, sets
itself up and reads its list and indices (its prologue), and waits for that launch before it reads B.
"""

from prunecast.kernels.early_start import (
    blocks_apart_cycles,
    groups_of_starts,
    leaves_sms,
    most_before_b_cycles,
)
from prunecast.launch.context import LaunchContext
from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Op, WarpProgram

__all__ = [
    "early_starts",
    "prologue_cycles",
    "prologue_is_hidden",
    "prologue_under_preceding_cycles",
    "tail_spread_cycles",
]


def prologue_is_hidden(context: LaunchContext) -> bool:
    """Whether all blocks run their whole prologue under the preceding launch, which leaves them SMs.

    Without it products of at most 66 blocks are 900 to 1,500 cycles too slow. Worth 0.5 to 1 point.
    """
    plan = context.plan
    one_each = not context.co_resident and plan.item_count == plan.blocks
    return one_each and 2 * plan.blocks <= context.gpu.sm_count and context.pdl


def prologue_under_preceding_cycles(context: LaunchContext) -> float:
    """Cycles of a block's prologue that may lie under the preceding launch; 0 where none or all of it does.

    The head start that they give is worth 0.7 (stspmm) to 1.7 points (block-sparse).
    """
    if prologue_is_hidden(context) or context.co_resident or not context.pdl:
        return 0.0
    blocks = context.plan.blocks
    started = blocks if context.plan.schedule is Schedule.HARDWARE else 0
    return most_before_b_cycles(prologue_cycles(context), blocks, context.gpu, started=started)


def prologue_cycles(context: LaunchContext) -> float:
    """Cycles of a block from its start until it may read B: set-up, and its list and indices from DRAM."""
    gpu, setting_up = context.gpu, max((_set_up_cycles(program) for program in context.programs), default=0)
    return float(gpu.block_start_cycles + setting_up + gpu.dram_latency_cycles)


def tail_spread_cycles(context: LaunchContext) -> float:
    """Cycles from the end of the SMs that the next launch needs to that of the last, where equal blocks leave
    SMs free. Worth 0.3 points on stspmm and tile-wise, in the simulator 1.3 on stspmm.
    """
    if context.co_resident:
        return 0.0
    prologue = prologue_under_preceding_cycles(context)
    return blocks_apart_cycles(context.plan.blocks, prologue, context.gpu)


def early_starts(context: LaunchContext) -> float:
    """Blocks of the next launch whose weight prefetch is done when the preceding one ends, one to an SM.

    Where n blocks leave f SMs, f of the next launch start at once, f more on SMs whose blocks had started so,
    and so on, each group a part of the prologue after the one before. A prologue's indices take the last
    cycles, in which its weights are on their way.
    """
    gpu, blocks = context.gpu, context.plan.blocks
    if not context.pdl or not leaves_sms(blocks, gpu):
        return 0.0
    prologue = max(prologue_under_preceding_cycles(context), 1.0)
    in_time = groups_of_starts(blocks, gpu) * gpu.dram_latency_cycles / prologue
    return (gpu.sm_count - blocks) * (1.0 + in_time)


def _set_up_cycles(program: WarpProgram) -> int:
    """Cycles in which a warp sleeps before its first step, data aside."""
    code = (*program.start, *program.begin)
    return sum(instruction.amount for instruction in code if instruction.op is Op.ISSUE)
