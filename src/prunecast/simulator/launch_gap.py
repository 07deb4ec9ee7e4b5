"""What lies between launches, as the simulated run has it: cycles and the weight prefetch.

Producers of the tile kernels (`tile_producer.cuh`) read list and indices of their first stages and ask for
the weights of all of these before `griddepcontrol.wait`; B alone waits for the preceding launch, behind a
ring of weights at DRAM.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.launch import LaunchContext
from prunecast.launch.floor import launch_floor_s
from prunecast.launch.overlap import (
    head_start_cycles,
    prologue_under_preceding_cycles,
    straggler_credit_cycles,
    straggler_credit_scale,
    straggler_cycles,
    straggler_of,
)
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


class LaunchGap(NamedTuple):
    """Parts of the time between the last cycle of a launch and the first of the next one."""

    launch_s: float
    """What a launch costs besides its cycles; those of a graph come closer where blocks start early."""
    under: float
    """Cycles of the run that pass before the launch before has ended, besides."""


def launch_gap(context: LaunchContext, run: State, clock_hz: float, launch: str) -> LaunchGap:
    """Return the gap after the last run of a plan at this clock; `launch` is one of `LAUNCHES`."""
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
