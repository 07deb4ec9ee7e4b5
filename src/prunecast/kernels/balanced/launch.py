"""Launches of `balanced`: set-up and first weights of blocks that find room early."""

from dataclasses import replace
from itertools import takewhile

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.balanced.layout import WARPS, vector_layout
from prunecast.kernels.balanced.registers import vector_registers
from prunecast.kernels.launch_traits import LaunchTraits
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.program import Op, WarpProgram

__all__ = ["balanced_traits"]


def balanced_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """One token reads its weights to be evicted first, so that L2 keeps B; several tokens fill an SM."""
    if plan.n > 1 or plan.inner is None:
        return LaunchTraits(co_resident=True, prologue=lambda share: _without_set_up(plan.programs))
    programs, registers = _without_set_up(plan.programs), 0
    if plan.pdl:
        layout = vector_layout(plan.inner)
        index_bytes = 1 if layout.places < 256 else 2
        registers = vector_registers(plan.shape.block_m // WARPS, layout.segment, index_bytes, plan.dtype)
    return LaunchTraits(
        co_resident=True,
        registers_per_thread=registers,
        prologue=lambda share: _posted(programs) if share >= 1.0 else programs,
        b_in_l2=True,
    )


def _without_set_up(programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    return tuple(replace(program, start=()) for program in programs)


def _posted(programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    """The weights that a block asks for before all else are those of the next launch."""
    (worker,) = programs
    first = tuple(takewhile(lambda i: i.op is Op.LOAD_A, worker.begin))
    begin = (*(load._replace(posted=True) for load in first), *worker.begin[len(first) :])
    return (replace(worker, begin=begin),)
