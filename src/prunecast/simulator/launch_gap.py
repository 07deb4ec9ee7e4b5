"""What lies between the cycles of a launch and those of the next one, as the simulated run has it."""

from typing import NamedTuple

import numpy as np

from prunecast.launch import LaunchContext
from prunecast.launch.ends import (
    straggler_credit_cycles,
    straggler_credit_scale,
    straggler_cycles,
    straggler_of,
)
from prunecast.launch.floor import launch_floor_s
from prunecast.launch.overlap import head_start_cycles, prologue_under_preceding_cycles
from prunecast.simulator import engine
from prunecast.simulator.engine_state import State


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
