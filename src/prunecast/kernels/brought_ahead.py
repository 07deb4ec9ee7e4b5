"""What the gathering kernels of sm_90 read before they wait for the launch before: list, columns, weights.

`tile_producer.cuh`: a producer reads its list, then the columns of its first stages, and asks for the weights
of all of these; B alone waits for the launch before. So the first rows of B stand behind a ring of weights at
DRAM. Programs say what a step reads in the step itself; here it goes where the kernel asks for it.
"""

from dataclasses import replace

from prunecast.kernels.plan import KernelPlan
from prunecast.kernels.program import Op, WarpProgram, When

__all__ = ["brings_ahead", "brought_ahead"]


def brings_ahead(plan: KernelPlan) -> bool:
    """Whether it is one of these kernels."""
    return plan.overlaps and not plan.starts_early


def brought_ahead(plan: KernelPlan) -> tuple[WarpProgram, ...]:
    """The plan's programs with the reads of a block's first stages before its steps."""
    if not brings_ahead(plan):
        return plan.programs
    return tuple(_ahead(program, plan.resources.stages) for program in plan.programs)


def _ahead(program: WarpProgram, stages: int) -> WarpProgram:
    copies = tuple(i for i in program.step if i.op is Op.COPY_A)
    if not copies:
        return program
    columns = program.begin.index(next(i for i in program.begin if i.op is Op.LOAD_INDEX))
    return replace(
        program,
        begin=(
            *program.begin[:columns],
            program.begin[columns],
            *(copy._replace(ahead=s, when=When.AHEAD) for s in range(stages) for copy in copies),
            *program.begin[columns + 1 :],
        ),
        step=tuple(i._replace(when=When.IN_TURN) if i.op is Op.COPY_A else i for i in program.step),
    )
