"""`simulate`: predict the run of a plan on a GPU, warp by warp."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.clock import sm_clock_hz
from prunecast.hardware.occupancy import Occupancy, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.expected_places import expected_places
from prunecast.kernels.launch_floor import (
    LAUNCHES,
    before_b_cycles,
    beside_s,
    ends_apart_cycles,
    launch_floor_s,
    launches_overlap,
)
from prunecast.kernels.plan import KernelPlan, PlanDoesNotFit, Schedule
from prunecast.kernels.power_draw import l2_draw, tensor_draw
from prunecast.kernels.written_share import written_share
from prunecast.simulator import engine
from prunecast.simulator.attribution import Account, attribute_cycles
from prunecast.simulator.lower import Lowered, lower
from prunecast.simulator.result import ATTRIBUTION, STALLS, SimResult
from prunecast.simulator.slow_sms import spared_cycles

__all__ = [
    "LAUNCHES",
    "POLICIES",
    "Settled",
    "SimulationStopped",
    "head_start_cycles",
    "settle",
    "simulate",
]

POLICIES = {
    "gto": engine.GREEDY_OLDEST,
    "gty": engine.GREEDY_YOUNGEST,
    "lrr": engine.ROUND_ROBIN,
    "oldest": engine.OLDEST,
}
"""Warp schedulers: greedy then oldest, greedy then youngest, loose round robin, oldest first."""

FIRST_ROWS_S = 0.1e-6
FIRST_ROWS_CYCLES = 400
"""Fitted. The first rows of B come late where many SMs ask DRAM for them at once. The simulator waits for
them; what a launch costs besides, and how far its ends are apart, suit the closed form, which does not."""
CLOCK_TOLERANCE = 0.02
MOST_RUNS = 4


class SimulationStopped(RuntimeError):
    """The engine could not finish a plan: its warps wait for each other, or it ran far too long."""


def simulate(
    plan: KernelPlan,
    gpu: GpuSpec,
    *,
    state: str = "burst",
    launch: str = "graph",
    policy: str = "gty",
) -> SimResult:
    """Predict the run of `plan` on `gpu`.

    The clock depends on activity and, through the memory bandwidth per cycle, activity on the clock: the
    run is repeated at the clock it caused until both agree within 2 %.

    Parameters
    ----------
    state : `burst` or `sustained`
    launch : `graph` or `stream`: which launch floor is added
    policy : warp scheduler, one of `POLICIES`; greedy-then-youngest is what recent GPUs were found to do
        (arXiv 2503.20481)

    Raises
    ------
    PlanDoesNotFit : no block fits on an SM, or a persistent grid is larger than the GPU holds at once
    SimulationStopped : the warps wait for each other
    """
    _check_choice("launch", launch, LAUNCHES)
    _check_choice("policy", policy, tuple(POLICIES))
    _fit(plan, gpu)
    placed = expected_places(plan, gpu)
    results = [_simulated(one.plan, gpu, state=state, launch=launch, policy=policy) for one in placed]
    return _mean([one.share for one in placed], results)


def _simulated(plan: KernelPlan, gpu: GpuSpec, *, state: str, launch: str, policy: str) -> SimResult:
    settled = settle(plan, gpu, state=state, policy=policy, launch=launch)
    fit, clock_hz = settled.fit, settled.clock_hz
    gap = _gap(plan, gpu, settled.run, clock_hz, launch)
    return _result(plan, gpu, settled.lowered, settled.run, fit, clock_hz, gap, state)


def _mean(shares: list[float], results: list[SimResult]) -> SimResult:
    """What a launch of a burst takes on average; all else is said of the most frequent one."""
    typical = results[int(np.argmax(shares))]
    if len(results) == 1:
        return typical
    cycles = round(sum(share * result.cycles for share, result in zip(shares, results, strict=True)))
    seconds = typical.launch_s + cycles / typical.clock_hz
    longer = seconds / typical.seconds
    attribution = {name: longer * part for name, part in typical.attribution_s.items()}
    return replace(typical, seconds=seconds, cycles=cycles, attribution_s=attribution)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """The last run of a plan, at whose clock the clock that it caused agrees.

    Parameters
    ----------
    fit : blocks per SM
    lowered : what the engine ran
    run : its memory when it was over
    clock_hz : SM clock that the run caused
    """

    fit: Occupancy
    lowered: Lowered
    run: engine.State
    clock_hz: float


def settle(plan: KernelPlan, gpu: GpuSpec, *, state: str, policy: str, launch: str = "graph") -> Settled:
    """Run `plan` until clock and activity agree; arguments and errors are those of `simulate`."""
    fit = _fit(plan, gpu)
    clock_hz = sm_clock_hz(
        gpu, tensor_duty=float(plan.tensor != "none"), l2_bytes_per_clk_per_sm=0.0, state=state
    )
    written = written_share(plan)
    for _ in range(MOST_RUNS):
        lowered = lower(
            plan,
            gpu,
            slots=fit.blocks_per_sm,
            policy=POLICIES[policy],
            clock_hz=clock_hz,
            written=written,
        )
        run = _run(plan, gpu, lowered)
        written = _share_that_came(run, written)
        gap = _gap(plan, gpu, run, clock_hz, launch)
        period_s = _cycles(run, gap) / clock_hz + max(gap.launch_s - beside_s(plan, gpu), 0.0)
        caused_hz = _caused_clock(plan, gpu, lowered, run, clock_hz, period_s, state)
        agreed = abs(caused_hz / clock_hz - 1.0) <= CLOCK_TOLERANCE
        clock_hz = caused_hz
        if agreed:
            break
    return Settled(fit=fit, lowered=lowered, run=run, clock_hz=clock_hz)


def _share_that_came(run: engine.State, written: float) -> float:
    """Of C in all that came into L2: what is read again drives no more of it out than there is."""
    read, moved = int(run.mem[engine.G_MISS_BYTES]), int(run.mem[engine.G_DRAM_BYTES])
    return min(written, 1.0 - read / moved) if moved else written


class _Gap(NamedTuple):
    """What lies between the cycles of a launch and those of the next one."""

    launch_s: float
    """What a launch costs besides its cycles; those of a graph come closer where blocks start early."""
    under: float
    """Cycles of the run that pass before the launch before has ended, besides."""


def _gap(plan: KernelPlan, gpu: GpuSpec, run: engine.State, clock_hz: float, launch: str) -> _Gap:
    launch_s = launch_floor_s(plan, gpu, launch)
    if launch == "graph" and _waits_for_first_rows(plan, gpu):
        launch_s = max(launch_s - FIRST_ROWS_S, 0.0)
    gained = 0.0
    if launch == "graph":
        gained = head_start_cycles(plan, gpu, run) + spared_cycles(plan, gpu, run.sm[:, engine.S_BUSY])
    left = launch_s - gained / clock_hz
    return _Gap(max(left, 0.0), max(-left, 0.0) * clock_hz)


def _waits_for_first_rows(plan: KernelPlan, gpu: GpuSpec) -> bool:
    """Of 2:4, whose ends were made shorter with the same rows, nothing is left to take off."""
    return plan.inner is None and written_share(plan) > 0.0 and launches_overlap(plan, gpu)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadInput(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def head_start_cycles(plan: KernelPlan, gpu: GpuSpec, run: engine.State) -> float:
    """Cycles by which launches that repeat and overlap come closer, for their first blocks start early.

    A block takes the next SM that the launch before leaves, starts and reads its indices, but waits for the
    end of that launch before it reads B. So nothing is gained where all blocks end together.
    """
    before_b = before_b_cycles(plan, gpu)
    ends, last = run.sm[:, engine.S_BUSY].astype(np.float64), float(run.sm[:, engine.S_BUSY].max())
    apart = ends_apart_cycles(plan, gpu)
    if apart and _waits_for_first_rows(plan, gpu):
        apart += FIRST_ROWS_CYCLES
    early = np.minimum(last - np.sort(ends) + apart, before_b)
    return last - float((ends - np.where(ends > 0, early, 0.0)).max())


def _fit(plan: KernelPlan, gpu: GpuSpec) -> Occupancy:
    fit = occupancy(plan.occupied, gpu)
    if fit.blocks_per_sm == 0:
        raise PlanDoesNotFit(
            f"no block of {plan.kernel} fits on an SM of {gpu.name}: {fit.limiter} ({plan.resources})"
        )
    if plan.schedule is not Schedule.HARDWARE and plan.blocks > fit.blocks_per_sm * gpu.sm_count:
        raise PlanDoesNotFit(
            f"{plan.kernel} launches {plan.blocks} persistent blocks, {gpu.name} holds "
            f"{fit.blocks_per_sm * gpu.sm_count} at once"
        )
    return fit


def _run(plan: KernelPlan, gpu: GpuSpec, lowered: Lowered) -> engine.State:
    run = engine.new_state(lowered.machine, lowered.program, lowered.work)
    status = engine.run_engine(run)
    if status != engine.Status.DONE:
        raise SimulationStopped(f"{plan.kernel} on {gpu.name}: {engine.Status(status).name.lower()}")
    return run


def _cycles(run: engine.State, gap: _Gap) -> int:
    return max(int(run.mem[engine.G_END]) - round(gap.under), 1)


def _tensor_cycles(lowered: Lowered, run: engine.State) -> np.ndarray:
    """(SMs,) cycles in which the tensor pipes of each SM worked, the mean of its sub-partitions."""
    busy = run.part[:, engine.P_TENSOR_BUSY].reshape(-1, lowered.machine.partitions)
    return np.asarray(busy.mean(axis=1) / engine.TICKS)


def _caused_clock(
    plan: KernelPlan,
    gpu: GpuSpec,
    lowered: Lowered,
    run: engine.State,
    clock_hz: float,
    period_s: float,
    state: str,
) -> float:
    """The clock that goes with what was done from one launch to the next, `period_s` at `clock_hz`, without
    what other kernels do between them.
    """
    period = period_s * clock_hz
    sm_cycles = period * gpu.sm_count
    ends = run.sm[:, engine.S_BUSY]
    working = ends[ends > 0]
    return sm_clock_hz(
        gpu,
        tensor_duty=tensor_draw(plan, gpu) * float(_tensor_cycles(lowered, run).mean()) / period,
        l2_bytes_per_clk_per_sm=l2_draw(plan, gpu) * float(run.mem[engine.G_L2_BYTES]) / sm_cycles,
        dram_bytes_per_clk_per_sm=float(run.mem[engine.G_DRAM_BYTES]) / sm_cycles,
        state=state,
        dtype=plan.dtype,
        busy_share=float(working.mean() / working.max()) if working.size else 1.0,
        period_s=period_s,
    )


def _result(
    plan: KernelPlan,
    gpu: GpuSpec,
    lowered: Lowered,
    run: engine.State,
    fit: Occupancy,
    clock_hz: float,
    gap: _Gap,
    state: str,
) -> SimResult:
    cycles, launch_s = _cycles(run, gap), gap.launch_s
    chip = run.mem
    touched = int(chip[engine.G_HIT_BYTES] + chip[engine.G_MISS_BYTES])
    parts = attribute_cycles(_account(plan, lowered, run, cycles))
    attribution = {name: parts.get(name, 0.0) / clock_hz for name in ATTRIBUTION} | {"launch": launch_s}
    stall = run.stall.sum(axis=0)
    return SimResult(
        seconds=launch_s + cycles / clock_hz,
        cycles=cycles,
        clock_hz=clock_hz,
        launch_s=launch_s,
        state=state,
        occupancy=fit,
        utilisation=_utilisation(lowered, run, cycles),
        stalls={name: float(stall[i]) / max(float(stall.sum()), 1.0) for i, name in enumerate(STALLS)},
        attribution_s=attribution,
        sm_busy_cycles=np.minimum(run.sm[:, engine.S_BUSY], cycles),
        sm_tensor_cycles=np.rint(_tensor_cycles(lowered, run)).astype(np.int64),
        sm_items=run.sm[:, engine.S_ITEMS].copy(),
        l2_hit_rate=float(chip[engine.G_HIT_BYTES]) / touched if touched else 0.0,
        l2_bytes=int(chip[engine.G_L2_BYTES]),
        dram_bytes=int(chip[engine.G_DRAM_BYTES]),
        warp_instructions=int(chip[engine.G_INSTRUCTIONS]),
        operations=int(chip[engine.G_OPERATIONS]),
    )


def _utilisation(lowered: Lowered, run: engine.State, cycles: int) -> dict[str, float]:
    machine, span = lowered.machine, cycles * engine.TICKS
    partitions = machine.sms * machine.partitions
    busy_ticks: dict[str, Any] = {
        "tensor": run.part[:, engine.P_TENSOR_BUSY].sum() / partitions,
        "issue": run.part[:, engine.P_ISSUED].sum() * engine.TICKS / partitions,
        "shared": run.sm[:, engine.S_SHARED_BUSY].sum() / machine.sms,
        "l2 port": run.sm[:, engine.S_PORT_BUSY].sum() / machine.sms,
        "l2": run.mem[engine.G_L2_BUSY],
        "dram": run.mem[engine.G_DRAM_BUSY],
    }
    return {name: min(float(busy) / span, 1.0) for name, busy in busy_ticks.items()}


def _account(plan: KernelPlan, lowered: Lowered, run: engine.State, cycles: int) -> Account:
    machine = lowered.machine
    critical = int(np.argmax(run.sm[:, engine.S_BUSY]))
    work = _tensor_cycles(lowered, run)
    first, last = float(run.sm[critical, engine.S_FIRST_MMA]), float(run.sm[critical, engine.S_LAST_MMA])
    if plan.tensor == "none":
        issued = run.part[:, engine.P_ISSUED].reshape(machine.sms, machine.partitions)
        work = issued.mean(axis=1).astype(np.float64)
        first, last = float(machine.block_start), float(cycles)
    if run.sm[critical, engine.S_LAST_MMA] == 0 and plan.tensor != "none":
        first, last = float(cycles), float(cycles)
    workers = max(program.warps for program in plan.programs) * machine.slots
    stall = run.stall[critical]
    return Account(
        cycles=cycles,
        work=np.minimum(work, cycles),
        items=plan.item_count,
        first_work=first,
        last_work=last,
        wait_data=float(stall[engine.DATA] + stall[engine.LOAD]) / workers,
        fix_up=float(stall[engine.FIXUP]) / workers,
    )
