"""What lies between launches, as the simulated run has it: cycles, weight prefetch, write-back of C.

Producers of the tile kernels (`tile_producer.cuh`) read list and indices of their first stages and ask for
the weights of all of these before `griddepcontrol.wait`; B alone waits for the preceding launch, behind a
ring of weights at DRAM.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.kernels.table import KERNELS
from prunecast.launch import LaunchContext
from prunecast.launch.floor import launch_floor_s
from prunecast.launch.overlap import (
    early_starts,
    head_start_cycles,
    prologue_under_preceding_cycles,
    straggler_credit_cycles,
    straggler_credit_scale,
    straggler_cycles,
    straggler_of,
)
from prunecast.plan.kernel_plan import DTYPE_BYTES, OUTPUT_BYTES, Schedule
from prunecast.plan.program import Op, WarpProgram, When
from prunecast.simulator import engine
from prunecast.simulator.engine_state import State


def with_prefetch(context: LaunchContext) -> tuple[WarpProgram, ...]:
    """Programs with the weights of a block's first ring before its steps, if the kernel prefetches them."""
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
    """Blocks whose weight prefetch is done when the first block may read B, as far as DRAM's rate allows."""
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


def write_back_share(context: LaunchContext) -> float:
    """Share of C in all that comes into L2, each byte of which evicts as much of the C of launches before.

    0 where launches neither gather under PDL nor fill L2 with one another's C. First stages come 1,060 cycles
    later for a MB of B (H200); V:N:M kernels with 8 MB of C and 4 MB else take 16.2 us where C after all else
    takes 21.3 (RTX 3090). The closed form spreads reads over the launch.
    """
    plan = context.plan
    if context.co_resident or not (plan.pdl or KERNELS[plan.kernel].fills_l2):
        return 0.0
    tiles, element = plan.tiles, DTYPE_BYTES[plan.dtype]
    rows = tiles.rows_per_tile.astype(np.float64)
    c = float(rows.sum()) * plan.n * OUTPUT_BYTES[plan.dtype]
    a = float(rows @ tiles.kept_per_tile) * element * (0.5 if plan.inner is not None else 1.0)
    b = float(np.unique(tiles.column_index).size) * plan.n * element
    return c / (c + a + b) if c else 0.0


class LaunchGap(NamedTuple):
    """What lies between the cycles of a launch and those of the next one."""

    launch_s: float
    """What a launch costs besides its cycles; those of a graph come closer where blocks start early."""
    under: float
    """Cycles of the run that pass before the launch before has ended, besides."""


def launch_gap(context: LaunchContext, run: State, clock_hz: float, launch: str) -> LaunchGap:
    """Gap behind a plan's last run at this clock; `launch` is one of `LAUNCHES`."""
    launch_s = launch_floor_s(context, launch)
    gained = 0.0
    if launch == "graph":
        ends = run.sm[:, engine.S_BUSY].astype(np.float64)
        prologue = prologue_under_preceding_cycles(context)
        gained = head_start_cycles(ends, prologue, int((ends == 0.0).sum()))
        gained += straggler_credit_cycles(ends, straggler_credit_scale(context))
        gained -= straggler_cycles(ends, straggler_of(context))
    left = launch_s - gained / clock_hz
    return LaunchGap(max(left, 0.0), max(-left, 0.0) * clock_hz)


def launched_cycles(run: State, gap: LaunchGap) -> int:
    """Cycles of a run without those that the preceding launch hides."""
    return max(int(run.mem[engine.G_END]) - round(gap.under), 1)
