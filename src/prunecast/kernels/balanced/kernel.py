"""The record of `balanced`, and launches of it: set-up and first weights of blocks that find room early."""

from dataclasses import replace
from itertools import takewhile

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.balanced.layout import WARPS, vector_layout
from prunecast.kernels.balanced.planner import balanced_configs, balanced_times, plan_balanced
from prunecast.kernels.balanced.registers import vector_registers
from prunecast.kernels.kernel import Entry, Kernel, LaunchTraits, Sources
from prunecast.patterns.element_map import ElementMap
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.program import Op, WarpProgram


def _balanced_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
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


BALANCED = Kernel(
    name="balanced",
    meaning="the same number of kept weights in every segment of a row",
    takes=ElementMap,
    natural_pattern="balanced:64",
    families=("balanced",),
    on_request=True,
    costs="prunecast.kernels.balanced",
    plan=plan_balanced,
    configs=balanced_configs,
    times=balanced_times,
    compilers={"none": Entry("prunecast.kernels.balanced.cuda.operator", "BalancedOperator")},
    sources=Sources("balanced", ("device", "balanced/cuda")),
    unaligned_tokens=1,
    traits=_balanced_traits,
)


def _without_set_up(programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    return tuple(replace(program, start=()) for program in programs)


def _posted(programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    """The weights that a block asks for before all else are those of the next launch."""
    (worker,) = programs
    first = tuple(takewhile(lambda i: i.op is Op.LOAD_A, worker.begin))
    begin = (*(load._replace(posted=True) for load in first), *worker.begin[len(first) :])
    return (replace(worker, begin=begin),)
