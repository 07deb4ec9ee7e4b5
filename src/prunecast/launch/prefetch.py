"""Weight prefetch: weights that blocks ask DRAM for before `griddepcontrol.wait`, and so before rows of B.

Producers of the tile kernels (`tile_producer.cuh`) read list and indices of their first stages and ask for
the weights of all of these; B alone waits for the preceding launch, behind a ring of weights at DRAM.
Blocks of co-resident launches do so while the preceding launch still runs: instructions `posted` stand for
the prefetch of the next launch's blocks, which DRAM serves in this launch's time.
"""

from dataclasses import replace
from itertools import takewhile

import numpy as np

from prunecast.launch.context import LaunchContext
from prunecast.launch.overlap import early_starts, prologue_under_preceding_cycles
from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Instruction, Op, WarpProgram, When


def with_prefetch(context: LaunchContext) -> tuple[WarpProgram, ...]:
    """Programs with the weights of a block's first ring before its steps, where the kernel prefetches them.

    Worth 0.4 points on tile-wise and 0.9 on block-sparse in the simulator.
    """
    if not context.prefetches_weights:
        return context.programs
    return tuple(_prefetching(program, context.plan.resources.stages) for program in context.programs)


def _prefetching(program: WarpProgram, stages: int) -> WarpProgram:
    copies = tuple(i for i in program.step if i.op is Op.COPY_A)
    if not copies:
        return program
    index = [i.op for i in program.begin].index(Op.LOAD_INDEX) + 1
    ring = (copy._replace(ahead=stage, when=When.AHEAD) for stage in range(stages) for copy in copies)
    step = (i._replace(when=When.IN_TURN) if i.op is Op.COPY_A else i for i in program.step)
    return replace(program, begin=(*program.begin[:index], *ring, *program.begin[index:]), step=tuple(step))


def prefetched_blocks(context: LaunchContext) -> int:
    """Blocks whose weight prefetch is done when the first block may read B, as far as DRAM's rate allows.

    Worth 0.1 points on stspmm in the simulator.
    """
    early, gpu, blocks = early_starts(context), context.gpu, context.plan.blocks
    if early == 0.0:
        return 0
    prologue = max(prologue_under_preceding_cycles(context), 1.0)
    brought = gpu.dram_bytes_per_s * prologue / gpu.clock_burst_hz[0]
    return int(min(early, blocks * brought / max(_ring_bytes(context), 1.0), blocks))


def _ring_bytes(context: LaunchContext) -> float:
    """Weights of the first ring of all blocks, each piece once."""
    plan = context.plan
    first = plan.work.block_start[:-1]
    if plan.schedule is not Schedule.HARDWARE:
        first = first[np.diff(plan.work.block_start) > 0]
    of_tile = np.stack([plan.work.tile[first], plan.work.k_start[first]])
    pieces = np.unique(of_tile, axis=1, return_index=True)[1]
    steps = np.minimum(plan.steps_per_item[first][pieces], plan.resources.stages)
    copied = sum(i.amount for program in context.programs for i in program.step if i.op is Op.COPY_A)
    return float(steps.sum()) * copied


def posted_bytes(context: LaunchContext) -> float:
    """Weights that the blocks of the next launch prefetch while this one runs: as much as this one's did."""
    return _weight_bytes(context, context.plan.item_count, posted=True)


def unposted_bytes(context: LaunchContext, blocks: int) -> float:
    """Weights that so many blocks ask for themselves before their first rows of B."""
    return _weight_bytes(context, blocks, posted=False)


def weights_before_b_bytes(context: LaunchContext) -> float:
    """Weights that all blocks ask and wait for before their first read of B, where L2 holds B.

    Worth 0.2 points on balanced.
    """
    return (
        _weight_bytes(context, context.plan.item_count, posted=False, before_b=True)
        if context.b_in_l2
        else 0.0
    )


def _weight_bytes(context: LaunchContext, items: int, *, posted: bool, before_b: bool = False) -> float:
    columns = (context.plan.work.k_stop - context.plan.work.k_start).astype(np.int64)[:items]
    return sum(
        _bytes_of(load, program.warps, columns, context.plan.shape.block_k)
        for program in context.programs
        for load in takewhile(lambda i: not before_b or i.op is not Op.LOAD_B, program.begin)
        if load.op is Op.LOAD_A and load.posted == posted
    )


def _bytes_of(load: Instruction, warps: int, columns: np.ndarray, block_k: int) -> float:
    """Bytes of the step that a load acts on, in all items that have it."""
    in_step = np.clip(columns - load.ahead * block_k, 0, block_k)
    times = -(-in_step // 16) if load.per_k16 else in_step > 0
    return float(load.amount * warps * times.sum())
