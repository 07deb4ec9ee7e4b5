"""`simulate`: predict the run of a plan on a GPU, warp by warp.

A run is repeated until the clock that it causes is the clock that it ran at (`settle`). `record` is the run
once more, with what warps do at which cycle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from prunecast.arguments import checked
from prunecast.errors import BadInput, check_choice
from prunecast.hardware.clock import busy_share, sm_clock_hz
from prunecast.hardware.spec import GpuSpec
from prunecast.launch import COLD, LAUNCHES, CacheState, LaunchContext, burst_contexts, launch_context
from prunecast.launch.context import l2_power
from prunecast.launch.floor import beside_s
from prunecast.launch.memory import memory_rules
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import engine
from prunecast.simulator.engine_state import State, Status, new_events, new_state, run_engine
from prunecast.simulator.launch_gap import launch_gap, launched_cycles
from prunecast.simulator.lower import Lowered, lower
from prunecast.simulator.result import SimResult, run_result, tensor_cycles

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
    rules = memory_rules(context)
    for _ in range(MOST_RUNS):
        lowered = lower(context, rules, policy=POLICIES[policy], clock_hz=clock_hz)
        run = _run(context, lowered)
        rules = rules._replace(write_back=_write_back_of(run, rules.write_back))
        gap = launch_gap(context, run, clock_hz, launch)
        period_s = launched_cycles(run, gap) / clock_hz + max(gap.launch_s - beside_s(context), 0.0)
        caused_hz = _caused_clock(context, lowered, run, clock_hz, period_s, state)
        agreed = abs(caused_hz / clock_hz - 1.0) <= CLOCK_TOLERANCE
        clock_hz = caused_hz
        if agreed:
            break
    return Settled(lowered=lowered, run=run, clock_hz=clock_hz)


def _write_back_of(run: State, write_back: float) -> float:
    """`MemoryRules.write_back` of what came into L2: data read again evict no more of C than there is."""
    read, moved = int(run.mem[engine.G_MISS_BYTES]), int(run.mem[engine.G_DRAM_BYTES])
    return min(write_back, 1.0 - read / moved) if moved else write_back


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


@checked
def simulate(
    plan: KernelPlan,
    gpu: GpuSpec,
    *,
    state: str = "burst",
    launch: str = "graph",
    l2: CacheState = COLD,
    policy: str = "gty",
) -> SimResult:
    """Predict the run of `plan` on `gpu`.

    The clock depends on activity and, through the memory bandwidth per cycle, activity on the clock: the
    run is repeated at the clock it caused until both agree within 2 %.

    Parameters
    ----------
    state : `burst` or `sustained`
    launch : `graph` or `stream`: which launch floor is added
    l2 : what of the operands lies in L2
    policy : warp scheduler, one of `POLICIES`; greedy-then-youngest is what recent GPUs were found to do
        (arXiv 2503.20481)

    Raises
    ------
    PlanDoesNotFit : no block fits on an SM, or a persistent grid is larger than the GPU holds at once
    SimulationStopped : the warps wait for each other
    """
    check_choice("launch", launch, LAUNCHES)
    check_choice("policy", policy, tuple(POLICIES))
    context = launch_context(plan, gpu, l2)
    context.check_fit()
    placed = burst_contexts(context)
    results = [_simulated(each, state=state, launch=launch, policy=policy) for _, each in placed]
    return _mean([share for share, _ in placed], results)


def _simulated(context: LaunchContext, *, state: str, launch: str, policy: str) -> SimResult:
    settled = settle(context, state=state, policy=policy, launch=launch)
    gap = launch_gap(context, settled.run, settled.clock_hz, launch)
    return run_result(
        context.plan,
        settled.lowered,
        settled.run,
        fit=context.fit,
        clock_hz=settled.clock_hz,
        cycles=launched_cycles(settled.run, gap),
        launch_s=gap.launch_s,
        state=state,
    )


def _mean(shares: list[float], results: list[SimResult]) -> SimResult:
    """Mean launch of a burst; all but its time is that of the most frequent placement."""
    typical = results[int(np.argmax(shares))]
    if len(results) == 1:
        return typical
    cycles = round(sum(share * result.cycles for share, result in zip(shares, results, strict=True)))
    seconds = typical.launch_s + cycles / typical.clock_hz
    longer = seconds / typical.seconds
    attribution = {name: longer * part for name, part in typical.attribution_s.items()}
    return replace(typical, seconds=seconds, cycles=cycles, attribution_s=attribution)


EVENT_KINDS = ("stall", "issue", "tensor", "block")
SAMPLES = 500
MOST_EVENTS = 2_000_000
ALL_WAVES = 1 << 60
MOST_WAVES = 1 << 31

IntColumns = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """Events of the SMs that were watched, and samples of the whole GPU.

    Parameters
    ----------
    cycles, clock_hz : of the whole run, as in `SimResult`
    partitions : sub-partitions per SM; with W warps a block, warp w of the block in slot s runs on
        sub-partition (s W + w) % partitions
    roles : (warps of a block,) int64, place in `KernelPlan.programs`
    rows : (events, engine.E_FIELDS) int64 in the order of their cycles
    dropped : events that found no room
    sample_cycles : (samples,) int64
    dram_cycles, tensor_cycles : (samples,) float64, cycles of work by then, of DRAM and of a mean tensor pipe
    """

    cycles: int
    clock_hz: float
    partitions: int
    roles: IntColumns
    rows: IntColumns
    dropped: int
    sample_cycles: IntColumns
    dram_cycles: npt.NDArray[np.float64]
    tensor_cycles: npt.NDArray[np.float64]


def record(
    plan: KernelPlan,
    gpu: GpuSpec,
    *,
    sms: Sequence[int],
    waves: int | None = None,
    state: str = "burst",
    policy: str = "gty",
) -> Recording:
    """Record the run that `simulate` predicts.

    Parameters
    ----------
    sms : numbers of the SMs to watch
    waves : watch the first so many items of each block slot, or all

    Raises
    ------
    BadInput : an SM that the GPU lacks, or no wave
    PlanDoesNotFit, SimulationStopped : as `simulate`
    """
    if not sms or min(sms) < 0 or max(sms) >= gpu.sm_count:
        raise BadInput(f"sm must lie in 0 to {gpu.sm_count - 1} on {gpu.name}, got {list(sms)}")
    if waves is not None and not 1 <= waves <= MOST_WAVES:
        raise BadInput(f"first-waves must be 1 to {MOST_WAVES}, got {waves:.6g}")
    settled = settle(launch_context(plan, gpu), state=state, policy=policy)
    lowered, cycles = settled.lowered, max(int(settled.run.mem[engine.G_END]), 1)
    run = new_state(lowered.machine, lowered.program, lowered.work)
    watch = np.zeros(gpu.sm_count, np.int64)
    watch[list(sms)] = waves or ALL_WAVES
    every = max(-(-cycles // SAMPLES), 1)
    samples = -(-cycles // every) + 1
    events = new_events(lowered.machine, watch, capacity=MOST_EVENTS, samples=samples, every=every)
    run_engine(run, events)
    parts = gpu.sm_count * gpu.sub_partitions_per_sm
    return Recording(
        cycles=cycles,
        clock_hz=settled.clock_hz,
        partitions=gpu.sub_partitions_per_sm,
        roles=lowered.program.role,
        rows=events.rows[: events.counts[engine.K_WRITTEN]],
        dropped=int(events.counts[engine.K_DROPPED]),
        sample_cycles=np.arange(samples) * every,
        dram_cycles=events.samples[:, engine.Q_DRAM] / engine.TICKS,
        tensor_cycles=events.samples[:, engine.Q_TENSOR] / (engine.TICKS * parts),
    )
