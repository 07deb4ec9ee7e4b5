"""`SimResult`: time, utilization, stalls and attribution of a simulated launch.

`run_result` computes it from the final state of the engine.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.hardware.occupancy import Occupancy
from prunecast.launch import LaunchContext
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import engine
from prunecast.simulator.engine_state import State
from prunecast.simulator.lower import Lowered

PIPES = ("tensor", "issue", "shared", "l2 port", "l2", "dram")
"""Units whose utilization is reported, from the SM outward."""

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
"""States of a resident warp to which its cycles are assigned; all except `issuing` are stalls."""

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
"""Causes to which the time of a launch is assigned; their parts add up to the total."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimResult:
    """The outcome of one simulated launch.

    Parameters
    ----------
    seconds : time of the kernel, launch floor included
    cycles : SM cycles from the first block's start to the last block's end
    clock_hz : SM clock that turns cycles into seconds
    launch_s : part of `seconds` that is not in `cycles`: the launch overhead minus its overlap with kernels
    state : `burst` or `sustained`
    occupancy : blocks per SM and the limiting resource
    utilisation : fraction of `cycles` during which each of `PIPES` is busy, 0 to 1
    stalls : fraction of resident warp cycles in each state of `STALLS`; adds up to 1
    attribution_s : seconds of each cause of `ATTRIBUTION`; adds up to `seconds`
    sm_busy_cycles : (SMs,) int64, cycles with at least one resident block
    sm_tensor_cycles : (SMs,) int64, cycles in which the tensor pipes of an SM are busy, mean over its
        sub-partitions
    sm_items : (SMs,) int64, work items started on each SM
    l2_hit_rate : fraction of the bytes read through L2 that hit, 0 to 1
    l2_bytes, dram_bytes : bytes that L2 and DRAM read and write
    warp_instructions : warp instructions issued
    operations : executed instructions of warp programs, each of which represents `issue` warp instructions
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
        """Unit of `PIPES` with the highest utilization; `latency` if all are below 0.5.

        If several units are within 3 % of the highest, the first of them in `PIPES` counts: a wgmma tile of
        128 x 256 keeps tensor pipes and shared memory equally busy by design.
        """
        highest = max(self.utilisation.values())
        busiest = next(pipe for pipe in PIPES if self.utilisation[pipe] >= 0.97 * highest)
        return busiest if highest >= 0.5 else "latency"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Account:
    """Cycles of a finished run from which `_attribute_cycles` computes the attribution.

    Parameters
    ----------
    cycles : cycles of the whole run
    work : (SMs,) busy cycles of the unit that does the useful work (tensor pipes, or issue for CUDA cores)
    items : number of work items
    first_work, last_work : first and last useful cycle of the SM that is busy longest
    wait_data, fix_up : stall cycles of that SM on data and on partial sums, divided by its number of warps of
        the role with the most warps
    """

    cycles: int
    work: npt.NDArray[np.float64]
    items: int
    first_work: float
    last_work: float
    wait_data: float
    fix_up: float


def tensor_cycles(lowered: Lowered, run: State) -> np.ndarray:
    """Return the busy cycles of the tensor pipes of each SM, mean over its sub-partitions, (SMs,)."""
    busy = run.part[:, engine.P_TENSOR_BUSY].reshape(-1, lowered.machine.partitions)
    return np.asarray(busy.mean(axis=1) / engine.TICKS)


def run_result(
    context: LaunchContext, lowered: Lowered, run: State, cycles: int, launch_s: float, *, clock_hz: float
) -> SimResult:
    """Return the result of a finished run.

    Parameters
    ----------
    run : final state of the engine
    cycles, launch_s : fields of `LaunchGap`
    clock_hz : SM clock
    """
    chip = run.mem
    touched = int(chip[engine.G_HIT_BYTES] + chip[engine.G_MISS_BYTES])
    parts = _attribute_cycles(_account(context.plan, lowered, run, cycles))
    attribution = {name: parts[name] / clock_hz for name in ATTRIBUTION[:-1]} | {"launch": launch_s}
    stall = run.stall.sum(axis=0)
    return SimResult(
        seconds=launch_s + cycles / clock_hz,
        cycles=cycles,
        clock_hz=clock_hz,
        launch_s=launch_s,
        state=context.conditions.state,
        occupancy=context.fit,
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
    """Return the fraction of the run, 0 to 1, in which each unit is busy: mean of partitions or SMs."""
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
    """Return the cycles of a run for the attribution, taken from the SM that is busy longest (`critical`)."""
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
    """Return the cycles of each cause; they add up to `account.cycles`.

    The critical SM is the one that is busy longest.

    * ideal work: mean useful work per SM, in cycles.
    * tail: additional work of the busiest SM if all items were equal, because the last wave is partly filled.
    * imbalance: the remaining difference between the work of the busiest SM and the mean.
    * fill and drain: cycles before the first and after the last useful cycle of the critical SM.
    * split fix-up, memory: waits of the critical SM for other k-slices and for data, limited to the cycles
      that remain.
    * other: the remaining cycles: issue, barriers, and epilogues that do not overlap with useful work.
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
