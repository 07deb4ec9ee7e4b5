"""`record`: the run of a plan once more, with what its warps do at which cycle."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.launch import launch_context
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import engine
from prunecast.simulator.engine_state import new_events, new_state, run_recorded
from prunecast.simulator.simulate import settle

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
    partitions : sub-partitions per SM; warp w of a block runs on sub-partition w % partitions
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
    run_recorded(run, events)
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
