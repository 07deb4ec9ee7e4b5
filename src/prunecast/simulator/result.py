"""`SimResult`: what a simulated run of a plan looked like.

`run_result` says in people's words what the engine's memory says when a run is over.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.hardware.occupancy import Occupancy
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import engine
from prunecast.simulator.engine_state import State
from prunecast.simulator.lower import Lowered

PIPES = ("tensor", "issue", "shared", "l2 port", "l2", "dram")
"""Units whose use is reported, from the SM outward."""

STALLS = (
    "issuing",
    "not selected",
    "wait data",
    "wait slot",
    "wait tensor",
    "wait load",
    "wait shared",
    "barrier",
    "fix-up",
    "fetch",
    "wait store",
)
"""What a resident warp's cycles are spent on; `issuing` is not a stall."""

ATTRIBUTION = (
    "ideal work",
    "imbalance",
    "tail",
    "fill and drain",
    "memory",
    "split fix-up",
    "other",
    "launch",
)
"""What the time of the whole kernel is spent on; the parts add up to the total."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimResult:
    """The outcome of one simulated launch.

    Parameters
    ----------
    seconds : time of the kernel, launch floor included
    cycles : SM cycles from the first block's start to the last block's end
    clock_hz : SM clock that turns cycles into seconds
    launch_s : launch floor inside `seconds`
    state : `burst` or `sustained`
    occupancy : blocks per SM and the limiting resource
    utilisation : share of `cycles` that each of `PIPES` worked, 0 to 1
    stalls : share of resident warp-cycles spent in each of `STALLS`; adds up to 1
    attribution_s : seconds by `ATTRIBUTION`; adds up to `seconds`
    sm_busy_cycles : (SMs,) int64, cycles with at least one resident block
    sm_tensor_cycles : (SMs,) int64, cycles in which the tensor pipes of the SM worked, mean of its four
    sm_items : (SMs,) int64, work items started on each SM
    l2_hit_rate : share of bytes read through L2 that were found there
    l2_bytes, dram_bytes : bytes moved
    warp_instructions : instructions issued, aggregates counted at their full length
    operations : program operations executed, aggregates counted once
    """

    seconds: float
    cycles: int
    clock_hz: float
    launch_s: float
    state: str
    occupancy: Occupancy
    utilisation: dict[str, float]
    stalls: dict[str, float]
    attribution_s: dict[str, float]
    sm_busy_cycles: npt.NDArray[Any]
    sm_tensor_cycles: npt.NDArray[Any]
    sm_items: npt.NDArray[Any]
    l2_hit_rate: float
    l2_bytes: int
    dram_bytes: int
    warp_instructions: int
    operations: int

    @property
    def bound(self) -> str:
        """The busiest of `PIPES`, or `latency` where none works half of the time.

        Of pipes within 3 % of each other the one nearest to the arithmetic: a wgmma tile of 128 x 256 keeps
        tensor pipes and shared memory equally busy by design.
        """
        highest = max(self.utilisation.values())
        busiest = next(pipe for pipe in PIPES if self.utilisation[pipe] >= 0.97 * highest)
        return busiest if highest >= 0.5 else "latency"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Account:
    """What the attribution reads off a finished run, in cycles.

    Parameters
    ----------
    cycles : of the whole run
    work : (SMs,) cycles of the unit that does the useful work (tensor pipes, or issue for CUDA-core kernels)
    items : work items of the run
    first_work, last_work : first and last useful cycle of the SM that finishes last
    wait_data, fix_up : mean stall of a working warp on that SM, waiting for data and for split parts
    """

    cycles: int
    work: npt.NDArray[np.float64]
    items: int
    first_work: float
    last_work: float
    wait_data: float
    fix_up: float


def tensor_cycles(lowered: Lowered, run: State) -> np.ndarray:
    """(SMs,) cycles in which the tensor pipes of each SM worked, the mean of its sub-partitions."""
    busy = run.part[:, engine.P_TENSOR_BUSY].reshape(-1, lowered.machine.partitions)
    return np.asarray(busy.mean(axis=1) / engine.TICKS)


def run_result(
    plan: KernelPlan,
    lowered: Lowered,
    run: State,
    *,
    fit: Occupancy,
    clock_hz: float,
    cycles: int,
    launch_s: float,
    state: str,
) -> SimResult:
    """The last run of a plan, which took `cycles` at that clock, and `launch_s` besides."""
    chip = run.mem
    touched = int(chip[engine.G_HIT_BYTES] + chip[engine.G_MISS_BYTES])
    parts = _attribute_cycles(_account(plan, lowered, run, cycles))
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
        sm_tensor_cycles=np.rint(tensor_cycles(lowered, run)).astype(np.int64),
        sm_items=run.sm[:, engine.S_ITEMS].copy(),
        l2_hit_rate=float(chip[engine.G_HIT_BYTES]) / touched if touched else 0.0,
        l2_bytes=int(chip[engine.G_L2_BYTES]),
        dram_bytes=int(chip[engine.G_DRAM_BYTES]),
        warp_instructions=int(chip[engine.G_INSTRUCTIONS]),
        operations=int(chip[engine.G_OPERATIONS]),
    )


def _utilisation(lowered: Lowered, run: State, cycles: int) -> dict[str, float]:
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


def _account(plan: KernelPlan, lowered: Lowered, run: State, cycles: int) -> _Account:
    machine = lowered.machine
    critical = int(np.argmax(run.sm[:, engine.S_BUSY]))
    work = tensor_cycles(lowered, run)
    first, last = float(run.sm[critical, engine.S_FIRST_MMA]), float(run.sm[critical, engine.S_LAST_MMA])
    if plan.tensor == "none":
        issued = run.part[:, engine.P_ISSUED].reshape(machine.sms, machine.partitions)
        work = issued.mean(axis=1).astype(np.float64)
        first, last = float(machine.block_start), float(cycles)
    if run.sm[critical, engine.S_LAST_MMA] == 0 and plan.tensor != "none":
        first, last = float(cycles), float(cycles)
    workers = max(program.warps for program in plan.programs) * machine.slots
    stall = run.stall[critical]
    return _Account(
        cycles=cycles,
        work=np.minimum(work, cycles),
        items=plan.item_count,
        first_work=first,
        last_work=last,
        wait_data=float(stall[engine.DATA] + stall[engine.LOAD]) / workers,
        fix_up=float(stall[engine.FIXUP]) / workers,
    )


def _attribute_cycles(account: _Account) -> dict[str, float]:
    """Cycles by cause, adding up to `account.cycles`.

    * ideal work: the useful work spread evenly over all SMs.
    * tail: what equal items would lose because they do not fill the last wave.
    * imbalance: the busiest SM's work beyond that.
    * fill and drain: before the first and after the last useful cycle of the SM that finishes last.
    * split fix-up, memory: that SM's waits for other parts and for data, as far as time is left.
    * other: the rest: issue, barriers, epilogues that nothing hides.
    """
    ideal = float(account.work.mean())
    busiest = float(account.work.max())
    sms = account.work.size
    waves = -(-account.items // sms)
    tail = min(ideal * (waves * sms / max(account.items, 1) - 1.0), busiest - ideal)
    parts = {"ideal work": ideal, "imbalance": busiest - ideal - tail, "tail": tail}
    rest = account.cycles - busiest
    edges = account.first_work + (account.cycles - account.last_work)
    waits = {
        "fill and drain": edges,
        "split fix-up": account.fix_up,
        "memory": account.wait_data - account.first_work,
    }
    for name, wanted in waits.items():
        parts[name] = float(np.clip(wanted, 0.0, rest))
        rest -= parts[name]
    return parts | {"other": rest}
