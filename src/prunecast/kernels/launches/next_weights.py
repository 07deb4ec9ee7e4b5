"""What blocks ask of DRAM before their first rows of B, for the next launch or their own (0008)."""

import numpy as np

from prunecast.kernels.plan import KernelPlan
from prunecast.kernels.program import Instruction, Op

__all__ = ["first_weight_bytes", "next_weight_bytes"]


def next_weight_bytes(plan: KernelPlan) -> float:
    """Of all blocks of the next launch, which ask for as much as this launch's before this one is let go:
    reads that the programs call `posted`.
    """
    return _weight_bytes(plan, plan.item_count, posted=True)


def first_weight_bytes(plan: KernelPlan, items: int) -> float:
    """Of so many items of the launch itself, whose blocks ask for them when they begin, before any row."""
    return _weight_bytes(plan, items, posted=False)


def _weight_bytes(plan: KernelPlan, items: int, *, posted: bool) -> float:
    columns = (plan.work.k_stop - plan.work.k_start).astype(np.int64)[:items]
    return sum(
        _bytes_of(plan, instruction, program.warps, columns)
        for program in plan.programs
        for instruction in program.begin
        if instruction.op is Op.LOAD_A and instruction.posted == posted
    )


def _bytes_of(plan: KernelPlan, load: Instruction, warps: int, columns: np.ndarray) -> float:
    """Of the step that the load acts on, in all items that have it."""
    in_step = np.clip(columns - load.ahead * plan.shape.block_k, 0, plan.shape.block_k)
    times = -(-in_step // 16) if load.per_k16 else in_step > 0
    return float(load.amount * warps * times.sum())
