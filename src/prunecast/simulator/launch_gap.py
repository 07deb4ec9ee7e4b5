"""What lies between the cycles of a launch and those of the next one, as the simulated run has it."""

from typing import NamedTuple

import numpy as np

from prunecast.launch import LaunchContext
from prunecast.launch.floor import launch_floor_s
from prunecast.launch.late_blocks import late_cycles, lateness_of
from prunecast.launch.overlap import before_b_cycles, ends_apart_cycles
from prunecast.launch.slow_sms import spared_cycles, spared_scale
from prunecast.launch.written_share import written_share
from prunecast.simulator import engine
from prunecast.simulator.engine_state import State

__all__ = ["LaunchGap", "head_start_cycles", "launch_gap", "launched_cycles"]


class LaunchGap(NamedTuple):
    """What lies between the cycles of a launch and those of the next one."""

    launch_s: float
    """What a launch costs besides its cycles; those of a graph come closer where blocks start early."""
    under: float
    """Cycles of the run that pass before the launch before has ended, besides."""


def launch_gap(context: LaunchContext, run: State, clock_hz: float, launch: str) -> LaunchGap:
    """Of a plan's last run at this clock; `launch` is one of `LAUNCHES`."""
    launch_s = launch_floor_s(context, launch)
    if launch == "graph" and _waits_for_first_rows(context):
        launch_s = max(launch_s - context.gpu.first_rows_s, 0.0)
    gained = 0.0
    if launch == "graph":
        ends = run.sm[:, engine.S_BUSY]
        gained = head_start_cycles(context, run) + spared_cycles(ends, spared_scale(context))
        gained -= late_cycles(ends.astype(np.float64), lateness_of(context))
    left = launch_s - gained / clock_hz
    return LaunchGap(max(left, 0.0), max(-left, 0.0) * clock_hz)


def _waits_for_first_rows(context: LaunchContext) -> bool:
    """Of 2:4, whose ends were made shorter with the same rows, nothing is left to take off."""
    return context.plan.inner is None and written_share(context) > 0.0 and context.pdl


def head_start_cycles(context: LaunchContext, run: State) -> float:
    """Cycles by which launches that repeat and overlap come closer, for their first blocks start early.

    A block takes the next SM that the launch before leaves, starts and reads its indices, but waits for the
    end of that launch before it reads B. So nothing is gained where all blocks end together.
    """
    before_b = before_b_cycles(context)
    ends, last = run.sm[:, engine.S_BUSY].astype(np.float64), float(run.sm[:, engine.S_BUSY].max())
    apart = ends_apart_cycles(context)
    early = np.minimum(last - np.sort(ends) + apart, before_b)
    return last - float((ends - np.where(ends > 0, early, 0.0)).max())


def launched_cycles(run: State, gap: LaunchGap) -> int:
    """Of a run, without those that pass under the launch before."""
    return max(int(run.mem[engine.G_END]) - round(gap.under), 1)
