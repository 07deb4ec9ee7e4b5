"""What blocks ask of DRAM before their first rows of B, for the next launch or their own (0008)."""

import numpy as np

from prunecast.launch.context import LaunchContext
from prunecast.plan.program import Code, Instruction, Op, WarpProgram

__all__ = [
    "before_b",
    "first_weight_bytes",
    "next_weight_bytes",
    "weight_bytes_before_b",
    "weight_bytes_behind_b",
]


def next_weight_bytes(context: LaunchContext) -> float:
    """Of all blocks of the next launch, which ask for as much as this launch's before this one is let go:
    reads that the programs call `posted`.
    """
    return _weight_bytes(context, context.plan.item_count, posted=True)


def first_weight_bytes(context: LaunchContext, items: int) -> float:
    """Of so many items of the launch itself, whose blocks ask for them when they begin, before any row."""
    return _weight_bytes(context, items, posted=False)


def weight_bytes_before_b(context: LaunchContext) -> float:
    """Of all blocks, where B lies in L2: what they ask for before B and wait for. It is 0 where blocks find
    room while the launch before runs, for it is there then.
    """
    return sum(_loaded(context, program, before_b(program.begin)) for program in _waiting(context))


def weight_bytes_behind_b(context: LaunchContext) -> float:
    """The same of what they ask for behind B."""
    return sum(
        _loaded(context, program, program.begin[len(before_b(program.begin)) :])
        for program in _waiting(context)
    )


def before_b(begin: Code) -> Code:
    """What stands before the first read of B into registers."""
    return begin[: next((place for place, i in enumerate(begin) if i.op is Op.LOAD_B), len(begin))]


def _waiting(context: LaunchContext) -> tuple[WarpProgram, ...]:
    """Programs that ask for all weights before their steps."""
    return context.programs if context.b_in_l2 else ()


def _loaded(context: LaunchContext, program: WarpProgram, code: Code) -> float:
    columns = (context.work.k_stop - context.work.k_start).astype(np.int64)
    loads = (i for i in code if i.op is Op.LOAD_A and not i.posted)
    return sum(_bytes_of(context, load, program.warps, columns) for load in loads)


def _weight_bytes(context: LaunchContext, items: int, *, posted: bool) -> float:
    columns = (context.work.k_stop - context.work.k_start).astype(np.int64)[:items]
    return sum(
        _bytes_of(context, instruction, program.warps, columns)
        for program in context.programs
        for instruction in program.begin
        if instruction.op is Op.LOAD_A and instruction.posted == posted
    )


def _bytes_of(context: LaunchContext, load: Instruction, warps: int, columns: np.ndarray) -> float:
    """Of the step that the load acts on, in all items that have it."""
    in_step = np.clip(columns - load.ahead * context.plan.shape.block_k, 0, context.plan.shape.block_k)
    times = -(-in_step // 16) if load.per_k16 else in_step > 0
    return float(load.amount * warps * times.sum())
