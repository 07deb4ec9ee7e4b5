"""`simulate`: predict the time of a plan on a GPU by simulating its warps.

A run assumes an SM clock and a rate of DRAM writes, and both follow from its activity. `settle` repeats the
run until the assumed and the resulting values agree. `record` repeats the last run and records the events of
each warp with their cycles.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.arguments import checked
from prunecast.errors import BadInput, check_choice
from prunecast.hardware.clock import busy_share, sm_clock_hz
from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext, burst_contexts, launch_context
from prunecast.launch.conditions import COLD, USUAL, CacheState, Conditions
from prunecast.launch.floor import beside_s
from prunecast.launch.memory import memory_rules
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import engine
from prunecast.simulator.engine_state import State, Status, new_events, new_state, run_engine
from prunecast.simulator.launch_gap import launch_gap
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
"""Relative change at which the iteration stops. It applies to the SM clock and to the DRAM time, in which a
byte needs 1 + `write_back` times the time of a read, because it evicts `write_back` bytes of C from L2."""
MOST_RUNS = 4
"""Maximum number of runs of the iteration."""


class Guess(NamedTuple):
    """Values that the first run of a simulation assumes; later runs use the results of the preceding run."""

    clock_hz: float
    """SM clock."""
    write_back: float
    """Bytes that DRAM writes per byte that enters L2, at most `MemoryRules.write_back`."""


class SimulationStopped(RuntimeError):
    """The engine could not finish a plan: its warps deadlocked, or the run exceeded the cycle limit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """Result of the fixed-point iteration over the SM clock: the last run of a plan.

    Parameters
    ----------
    lowered : integer tables of the launch that the engine ran
    run : final state of the engine
    clock_hz : SM clock that follows from the activity of the run; after convergence it differs from the clock
        that the run assumed by at most `CLOCK_TOLERANCE`
    """

    lowered: Lowered
    run: State
    clock_hz: float


def settle(context: LaunchContext, *, policy: str, guess: Guess | None = None) -> Settled:
    """Repeat the run of a launch until its assumed SM clock and rate of DRAM writes agree with its activity.

    The iteration ends when both change the time by at most `CLOCK_TOLERANCE`, or after `MOST_RUNS` runs.

    Parameters
    ----------
    policy, guess : as in `simulate`

    Raises
    ------
    PlanDoesNotFit, SimulationStopped : in the same cases as `simulate`
    """
    context.check_fit()
    plan, gpu = context.plan, context.gpu
    rules, duty = memory_rules(context), float(plan.tensor != "none")
    most = rules.write_back
    clock_hz = sm_clock_hz(gpu, tensor_duty=duty, l2_bytes_per_clk_per_sm=0.0, state=context.conditions.state)
    if guess is not None:
        clock_hz, rules = guess.clock_hz, rules._replace(write_back=min(most, guess.write_back))
    for _ in range(MOST_RUNS):
        lowered = lower(context, rules, policy=POLICIES[policy], clock_hz=clock_hz)
        run = _run(context, lowered)
        write_back = _write_back_of(run, most)
        gap = launch_gap(context, run, clock_hz)
        period_s = gap.cycles / clock_hz + max(gap.launch_s - beside_s(context), 0.0)
        caused_hz = _caused_clock(context, lowered, run, clock_hz, period_s)
        dram_busy = float(run.mem[engine.G_DRAM_BUSY]) / (engine.TICKS * max(int(run.mem[engine.G_END]), 1))
        less = dram_busy * abs(rules.write_back - write_back) / (1.0 + rules.write_back)
        agreed = max(abs(caused_hz / clock_hz - 1.0), less) <= CLOCK_TOLERANCE
        clock_hz, rules = caused_hz, rules._replace(write_back=write_back)
        if agreed:
            break
    return Settled(lowered=lowered, run=run, clock_hz=clock_hz)


def _write_back_of(run: State, most: float) -> float:
    """Return the bytes that DRAM writes per byte that entered L2 in a run, at most `most`.

    `most` is `MemoryRules.write_back`, which assumes that all data are read once. If data are read again,
    more bytes enter L2, and the rate is lower, because C is written back only once.
    """
    read, moved = int(run.mem[engine.G_MISS_BYTES]), int(run.mem[engine.G_DRAM_BYTES])
    return min(most, 1.0 - read / moved) if moved else most


def _run(context: LaunchContext, lowered: Lowered) -> State:
    run = new_state(lowered.machine, lowered.program, lowered.work)
    status = run_engine(run)
    if status != Status.DONE:
        raise SimulationStopped(f"{context.plan.kernel} on {context.gpu.name}: {Status(status).name.lower()}")
    return run


def _caused_clock(
    context: LaunchContext, lowered: Lowered, run: State, clock_hz: float, period_s: float
) -> float:
    """Return the SM clock that follows from the activity of a run.

    Parameters
    ----------
    clock_hz : SM clock that the run assumed
    period_s : seconds from one launch to the next at that clock, without the time of other kernels
    """
    plan, gpu = context.plan, context.gpu
    period = period_s * clock_hz
    sm_cycles = period * gpu.sm_count
    return sm_clock_hz(
        gpu,
        tensor_duty=float(tensor_cycles(lowered, run).mean()) / period,
        l2_bytes_per_clk_per_sm=context.l2_power * float(run.mem[engine.G_L2_BYTES]) / sm_cycles,
        dram_bytes_per_clk_per_sm=float(run.mem[engine.G_DRAM_BYTES]) / sm_cycles,
        state=context.conditions.state,
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
    guess: Guess | None = None,
) -> SimResult:
    """Return the predicted time of one launch of `plan` on `gpu`, and its utilization, stalls and traffic.

    The SM clock depends on the activity, and the activity depends on the clock through the memory bandwidth
    per cycle. The bytes of C that DRAM writes per byte that enters L2 depend on the activity too. The run is
    therefore repeated with the clock and the write rate that follow from it until they agree within 2 %.
    `prunecast.simulate` computes first guesses of both in closed form, so that one run is usually enough.

    Parameters
    ----------
    state, launch, l2 : conditions of the launch, see `launch.conditions`
    policy : warp scheduler, a key of `POLICIES`; recent GPUs use greedy-then-youngest (arXiv 2503.20481)
    guess : clock and write rate of the first run. None for the clock of always busy tensor pipes, and for the
        write rate of data that are read once

    Raises
    ------
    PlanDoesNotFit : no block fits on an SM, or a persistent grid is larger than the GPU holds at once
    BadInput : an unknown state, launch, policy or L2 state, or instructions that the GPU does not have
    SimulationStopped : the warps wait for each other, or the run exceeds the cycle limit
    """
    context = launch_context(plan, gpu, Conditions(state, launch, l2))
    return simulate_launch(context, policy=policy, guess=guess)


def simulate_launch(context: LaunchContext, *, policy: str = "gty", guess: Guess | None = None) -> SimResult:
    """Return the result of `simulate` for a launch under the conditions of its context."""
    check_choice("policy", policy, tuple(POLICIES))
    context.check_fit()
    shares, results = [], []
    for share, placed in burst_contexts(context):
        settled = settle(placed, policy=policy, guess=guess)
        gap = launch_gap(placed, settled.run, settled.clock_hz)
        shares.append(share)
        result = run_result(
            placed, settled.lowered, settled.run, gap.cycles, gap.launch_s, clock_hz=settled.clock_hz
        )
        results.append(result)
    return _mean(shares, results)


def _mean(shares: list[float], results: list[SimResult]) -> SimResult:
    """Return one result for a burst: the mean time over block placements.

    All other quantities are those of the most frequent placement.

    Parameters
    ----------
    shares : fraction of the launches with each placement
    results : result of each placement
    """
    typical = results[int(np.argmax(shares))]
    if len(results) == 1:
        return typical
    cycles = round(sum(share * result.cycles for share, result in zip(shares, results, strict=True)))
    seconds = typical.launch_s + cycles / typical.clock_hz
    longer = seconds / typical.seconds
    attribution = {name: longer * part for name, part in typical.attribution_s.items()}
    return replace(typical, seconds=seconds, cycles=cycles, attribution_s=attribution)


EVENT_KINDS = ("stall", "issue", "tensor", "block")
"""Kinds of events in the order of the constants of `engine.py`, STALL_EVENT to BLOCK_EVENT."""
SAMPLES = 500
"""Number of intervals into which a recorded run is divided to sample the work of DRAM and tensor pipes. Kind:
choice."""
MOST_EVENTS = 2_000_000
"""Maximum number of recorded events. Kind: choice, 176 MB (11 columns of int64)."""
ALL_WAVES = 1 << 60
"""Value of `Events.waves` that no run reaches, so that all items are recorded."""
MOST_WAVES = 1 << 31
"""Maximum number of waves that a caller may request. Kind: choice, far above any launch."""

IntColumns = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """Recorded events of some SMs, and samples of the utilization of the whole GPU.

    Parameters
    ----------
    cycles : SM cycles of the whole run
    clock_hz : SM clock that turns cycles into seconds
    partitions : sub-partitions per SM; with W warps per block, warp w of the block in slot s runs on
        sub-partition (s * W + w) % partitions
    roles : (warps of a block,) int64, index in `KernelPlan.programs`
    rows : (events, engine.E_FIELDS) int64, events in the order of their cycles
    dropped : number of events that were not recorded because the array was full
    sample_cycles : (samples,) int64, cycle of each sample
    dram_cycles : (samples,) float64, cycles for which DRAM has been busy up to each sample
    tensor_cycles : (samples,) float64, cycles for which tensor pipes have been busy up to each sample, mean
        over all tensor pipes of the GPU
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
    conditions: Conditions = USUAL,
    policy: str = "gty",
    guess: Guess | None = None,
) -> Recording:
    """Simulate a plan, and record events of some of its warps.

    Parameters
    ----------
    sms : numbers of the SMs to record
    waves : number of items to record in each block slot, from its first item on, at least 1; None for all
    conditions, policy, guess : as in `simulate`

    Raises
    ------
    BadInput : no SM, an SM that the GPU lacks, or fewer than one wave
    PlanDoesNotFit, SimulationStopped : in the same cases as `simulate`
    """
    if not sms or min(sms) < 0 or max(sms) >= gpu.sm_count:
        raise BadInput(f"sm must lie in 0 to {gpu.sm_count - 1} on {gpu.name}, got {list(sms)}")
    if waves is not None and not 1 <= waves <= MOST_WAVES:
        raise BadInput(f"first-waves must be 1 to {MOST_WAVES}, got {waves:.6g}")
    context = launch_context(plan, gpu, conditions)
    settled = settle(context, policy=policy, guess=guess)
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
