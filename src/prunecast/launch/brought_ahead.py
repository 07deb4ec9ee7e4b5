"""What the gathering kernels of sm_90 read before they wait for the launch before: list, columns, weights.

`tile_producer.cuh`: a producer reads its list, then the columns of its first stages, and asks for the weights
of all of these; B alone waits for the launch before. So the first rows of B stand behind a ring of weights at
DRAM. Programs say what a step reads in the step itself; here it goes where the kernel asks for it.
"""

from dataclasses import replace

import numpy as np

from prunecast.kernels.early_start import groups_of_starts, leaves_sms
from prunecast.launch.context import LaunchContext
from prunecast.launch.overlap import before_b_cycles
from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Op, WarpProgram, When

__all__ = ["brought_ahead", "early_blocks", "early_starts"]


def brought_ahead(context: LaunchContext) -> tuple[WarpProgram, ...]:
    """The plan's programs with the reads of a block's first stages before its steps."""
    if not context.prefetches_weights:
        return context.programs
    return tuple(_ahead(program, context.plan.resources.stages) for program in context.programs)


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


def early_blocks(context: LaunchContext) -> int:
    """Blocks whose first weights are there when the first block may read B, one to an SM.

    Where n blocks leave f SMs, f of the next launch start at once, f more on SMs whose blocks had started so,
    and so on, each group `before_b` over the number of groups after the one before. Of these cycles the
    columns of a block take the last, in which its weights are on their way; and DRAM brings no more than it
    can.
    """
    early = early_starts(context)
    if early == 0.0:
        return 0
    gpu, before_b = context.gpu, max(before_b_cycles(context), 1.0)
    brought = gpu.dram_bytes_per_s * before_b / gpu.clock_burst_hz[0]
    return int(min(early, context.blocks * brought / max(_ring_bytes(context), 1.0), context.blocks))


def early_starts(context: LaunchContext) -> float:
    """The same, whatever DRAM can bring."""
    gpu, blocks = context.gpu, context.blocks
    if not context.pdl or not leaves_sms(blocks, gpu):
        return 0.0
    before_b = max(before_b_cycles(context), 1.0)
    in_time = groups_of_starts(blocks, gpu) * gpu.dram_latency_cycles / before_b
    return (gpu.sm_count - blocks) * (1.0 + in_time)


def _ring_bytes(context: LaunchContext) -> float:
    """Weights of the first ring of all blocks, each piece once."""
    first = context.work.block_start[:-1]
    if context.schedule is not Schedule.HARDWARE:
        first = first[np.diff(context.work.block_start) > 0]
    pieces = np.unique(
        np.stack([context.work.tile[first], context.work.k_start[first]]), axis=1, return_index=True
    )[1]
    steps = np.minimum(context.plan.steps_per_item[first][pieces], context.plan.resources.stages)
    copied = sum(i.amount for program in context.programs for i in program.step if i.op is Op.COPY_A)
    return float(steps.sum()) * copied
