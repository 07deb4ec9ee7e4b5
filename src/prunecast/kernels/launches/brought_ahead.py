"""What the gathering kernels of sm_90 read before they wait for the launch before: list, columns, weights.

`tile_producer.cuh`: a producer reads its list, then the columns of its first stages, and asks for the weights
of all of these; B alone waits for the launch before. So the first rows of B stand behind a ring of weights at
DRAM. Programs say what a step reads in the step itself; here it goes where the kernel asks for it.
"""

from dataclasses import replace

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launches.launch_floor import (
    before_b_cycles,
    groups_of_starts,
    launches_overlap,
    leaves_sms,
)
from prunecast.plan.kernel_plan import KernelPlan, Schedule
from prunecast.plan.program import Op, WarpProgram, When

__all__ = ["brings_ahead", "brought_ahead", "early_blocks", "early_starts"]


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


def early_blocks(plan: KernelPlan, gpu: GpuSpec) -> int:
    """Blocks whose first weights are there when the first block may read B, one to an SM.

    Where n blocks leave f SMs, f of the next launch start at once, f more on SMs whose blocks had started so,
    and so on, each group `before_b` over the number of groups after the one before. Of these cycles the
    columns of a block take the last, in which its weights are on their way; and DRAM brings no more than it
    can.
    """
    early = early_starts(plan, gpu)
    if early == 0.0:
        return 0
    before_b = max(before_b_cycles(plan, gpu), 1.0)
    brought = gpu.dram_bytes_per_s * before_b / gpu.clock_burst_hz[0]
    return int(min(early, plan.blocks * brought / max(_ring_bytes(plan), 1.0), plan.blocks))


def early_starts(plan: KernelPlan, gpu: GpuSpec) -> float:
    """The same, whatever DRAM can bring."""
    if not launches_overlap(plan, gpu) or not leaves_sms(plan.blocks, gpu):
        return 0.0
    before_b = max(before_b_cycles(plan, gpu), 1.0)
    in_time = groups_of_starts(plan.blocks, gpu) * gpu.dram_latency_cycles / before_b
    return (gpu.sm_count - plan.blocks) * (1.0 + in_time)


def _ring_bytes(plan: KernelPlan) -> float:
    """Weights of the first ring of all blocks, each piece once."""
    first = plan.work.block_start[:-1]
    if plan.schedule is not Schedule.HARDWARE:
        first = first[np.diff(plan.work.block_start) > 0]
    pieces = np.unique(
        np.stack([plan.work.tile[first], plan.work.k_start[first]]), axis=1, return_index=True
    )[1]
    steps = np.minimum(plan.steps_per_item[first][pieces], plan.resources.stages)
    copied = sum(i.amount for program in plan.programs for i in program.step if i.op is Op.COPY_A)
    return float(steps.sum()) * copied
