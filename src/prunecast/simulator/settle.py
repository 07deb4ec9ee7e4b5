"""`settle`: run a plan again and again, until the clock that it causes is the clock that it ran at."""

from dataclasses import dataclass

from prunecast.hardware.clock import busy_share, sm_clock_hz
from prunecast.launch import LaunchContext
from prunecast.launch.context import l2_power
from prunecast.launch.floor import beside_s
from prunecast.simulator import engine
from prunecast.simulator.engine_state import State, Status, new_state, run_engine
from prunecast.simulator.launch_gap import launch_gap, launched_cycles, write_back_share
from prunecast.simulator.lower import Lowered, lower
from prunecast.simulator.result import tensor_cycles

POLICIES = {
    "gto": engine.GREEDY_OLDEST,
    "gty": engine.GREEDY_YOUNGEST,
    "lrr": engine.ROUND_ROBIN,
    "oldest": engine.OLDEST,
}
"""Warp schedulers: greedy then oldest, greedy then youngest, loose round robin, oldest first."""

CLOCK_TOLERANCE = 0.02
MOST_RUNS = 4


class SimulationStopped(RuntimeError):
    """The engine could not finish a plan: its warps wait for each other, or it ran far too long."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """The last run of a plan, at whose clock the clock that it caused agrees.

    Parameters
    ----------
    lowered : what the engine ran
    run : its memory when it was over
    clock_hz : SM clock that the run caused
    """

    lowered: Lowered
    run: State
    clock_hz: float


def settle(context: LaunchContext, *, state: str, policy: str, launch: str = "graph") -> Settled:
    """Run a launch until clock and activity agree; arguments and errors are those of `simulate`."""
    context.check_fit()
    plan, gpu = context.plan, context.gpu
    clock_hz = sm_clock_hz(
        gpu, tensor_duty=float(plan.tensor != "none"), l2_bytes_per_clk_per_sm=0.0, state=state
    )
    written = write_back_share(context)
    for _ in range(MOST_RUNS):
        lowered = lower(context, policy=POLICIES[policy], clock_hz=clock_hz, written=written)
        run = _run(context, lowered)
        written = _share_that_came(run, written)
        gap = launch_gap(context, run, clock_hz, launch)
        period_s = launched_cycles(run, gap) / clock_hz + max(gap.launch_s - beside_s(context), 0.0)
        caused_hz = _caused_clock(context, lowered, run, clock_hz, period_s, state)
        agreed = abs(caused_hz / clock_hz - 1.0) <= CLOCK_TOLERANCE
        clock_hz = caused_hz
        if agreed:
            break
    return Settled(lowered=lowered, run=run, clock_hz=clock_hz)


def _share_that_came(run: State, written: float) -> float:
    """Share of C in all data that came into L2: data read again drives out no more of C than there is."""
    read, moved = int(run.mem[engine.G_MISS_BYTES]), int(run.mem[engine.G_DRAM_BYTES])
    return min(written, 1.0 - read / moved) if moved else written


def _run(context: LaunchContext, lowered: Lowered) -> State:
    run = new_state(lowered.machine, lowered.program, lowered.work)
    status = run_engine(run)
    if status != Status.DONE:
        raise SimulationStopped(f"{context.plan.kernel} on {context.gpu.name}: {Status(status).name.lower()}")
    return run


def _caused_clock(
    context: LaunchContext,
    lowered: Lowered,
    run: State,
    clock_hz: float,
    period_s: float,
    state: str,
) -> float:
    """The clock that goes with what was done from one launch to the next, `period_s` at `clock_hz`, without
    what other kernels do between them.
    """
    plan, gpu = context.plan, context.gpu
    period = period_s * clock_hz
    sm_cycles = period * gpu.sm_count
    return sm_clock_hz(
        gpu,
        tensor_duty=float(tensor_cycles(lowered, run).mean()) / period,
        l2_bytes_per_clk_per_sm=l2_power(context) * float(run.mem[engine.G_L2_BYTES]) / sm_cycles,
        dram_bytes_per_clk_per_sm=float(run.mem[engine.G_DRAM_BYTES]) / sm_cycles,
        state=state,
        dtype=plan.dtype,
        busy_share=busy_share(run.sm[:, engine.S_BUSY]),
        period_s=period_s,
    )
