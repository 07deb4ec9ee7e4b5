"""Programmatic dependent launch (PDL): how much of a launch lies under the end of the preceding one."""

from prunecast.kernels.early_start import blocks_apart_cycles, most_before_b_cycles
from prunecast.launch.context import LaunchContext
from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Op, WarpProgram

__all__ = ["before_b_cycles", "begins_early", "ends_apart_cycles", "until_b_cycles"]


def begins_early(context: LaunchContext) -> bool:
    """Whether the launch before leaves SMs to all blocks, one of which fills an SM and has one item.

    They start, read their first indices and wait for its end with their first copy. With all of that counted,
    products of at most 66 blocks that were marked fit are 900 to 1,500 cycles too slow
    (`docs/decisions/0007`). Programs of co-resident launches say for themselves what is done early.
    """
    one_each = not context.co_resident and context.plan.item_count == context.blocks
    return one_each and 2 * context.blocks <= context.gpu.sm_count and context.pdl


def before_b_cycles(context: LaunchContext) -> float:
    """What a block does before it reads B, where a block may do so while the launch before ends; else 0.

    It starts, sets itself up, finds its item and reads its indices.
    """
    if begins_early(context) or context.co_resident or not context.pdl:
        return 0.0
    before_b = until_b_cycles(context)
    started = context.blocks if context.schedule is Schedule.HARDWARE else 0
    return most_before_b_cycles(before_b, context.blocks, context.gpu, started=started)


def until_b_cycles(context: LaunchContext) -> float:
    """Of a block that starts, sets itself up, finds its item and reads its indices."""
    setting_up = max((_set_up_cycles(program) for program in context.programs), default=0)
    gpu = context.gpu
    return float(gpu.block_start_cycles + setting_up + gpu.dram_latency_cycles)


def ends_apart_cycles(context: LaunchContext) -> float:
    """How much earlier than the last SM those before it end where all have the same to do, else 0.

    It counts where a launch leaves SMs without a block: then the next one needs none of those that end last.
    """
    if context.co_resident:
        return 0.0
    return blocks_apart_cycles(context.blocks, before_b_cycles(context), context.gpu)


def _set_up_cycles(program: WarpProgram) -> int:
    """Around its first item, in which it sleeps."""
    code = (*program.start, *program.begin)
    return sum(instruction.amount for instruction in code if instruction.op is Op.ISSUE)
