"""Time between consecutive launches of a simulated plan, and the weight prefetch before a launch.

Producer warps of the tile kernels (`tile_producer.cuh`) read the work list and the indices of their first
stages and request the weights of these stages before `griddepcontrol.wait`. Only B waits for the preceding
launch. DRAM then serves the first weights of all blocks before the rows of B.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.launch import LaunchContext
from prunecast.launch.floor import launch_floor_s
from prunecast.launch.overlap import gained_cycles, straggler_cycles, straggler_of
from prunecast.plan.program import Op, WarpProgram, When
from prunecast.simulator import engine
from prunecast.simulator.engine_state import State


def with_prefetch(context: LaunchContext) -> tuple[WarpProgram, ...]:
    """Return the warp programs with a prefetch of weights: a block loads its first stages before its k-steps.

    The programs are unchanged if the kernel prefetches no weights.
    """
    if not context.prefetches_weights:
        return context.programs
    return tuple(_prefetching(program, context.plan.resources.stages) for program in context.programs)


def _prefetching(program: WarpProgram, stages: int) -> WarpProgram:
    """Return a producer program that copies the weights of the first `stages` k-steps in `begin`, by AHEAD.

    The copies of k-steps then apply to all other steps (IN_TURN). Programs without copies of A stay
    unchanged.
    """
    copies = tuple(i for i in program.step if i.op is Op.COPY_A)
    if not copies:
        return program
    index = [i.op for i in program.begin].index(Op.LOAD_INDEX) + 1
    ring = (copy._replace(ahead=stage, when=When.AHEAD) for stage in range(stages) for copy in copies)
    step = (i._replace(when=When.IN_TURN) if i.op is Op.COPY_A else i for i in program.step)
    return replace(program, begin=(*program.begin[:index], *ring, *program.begin[index:]), step=tuple(step))


class LaunchGap(NamedTuple):
    """Time between the end of one launch and the begin of the next one."""

    launch_s: float
    """Seconds per launch in addition to its cycles, at least 0: the launch floor, minus (in graphs) the time
    that blocks save by starting before the preceding launch has ended."""
    cycles: int
    """Cycles of the run, without those that overlap with the preceding launch. Some do so only if starting
    early saves more time than the whole launch floor."""


def launch_gap(context: LaunchContext, run: State, clock_hz: float) -> LaunchGap:
    """Return the gap between launches of a plan.

    Only in a CUDA graph do blocks start before the preceding launch has ended.

    Parameters
    ----------
    run : final state of a run of the plan
    clock_hz : SM clock
    """
    launch_s = launch_floor_s(context)
    gained = 0.0
    if context.conditions.launch == "graph":
        ends = run.sm[:, engine.S_BUSY].astype(np.float64)
        gained = gained_cycles(context, ends)
        gained -= straggler_cycles(ends, straggler_of(context))
    # Blocks that start early do not shorten the time in which DRAM moves the data of a launch
    idle = float(run.mem[engine.G_END]) - float(run.mem[engine.G_DRAM_BUSY]) / engine.TICKS
    gained = min(gained, launch_s * clock_hz + max(idle, 0.0))
    left = launch_s - gained / clock_hz
    under = round(max(-left, 0.0) * clock_hz)
    return LaunchGap(max(left, 0.0), max(int(run.mem[engine.G_END]) - under, 1))
