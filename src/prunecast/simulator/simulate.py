"""`simulate`: predict the run of a plan on a GPU, warp by warp."""

from dataclasses import replace

import numpy as np

from prunecast.errors import check_choice
from prunecast.hardware.spec import GpuSpec
from prunecast.launch import COLD, LAUNCHES, CacheState, LaunchContext, burst_contexts, launch_context
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator.launch_gap import launch_gap, launched_cycles
from prunecast.simulator.result import SimResult, run_result
from prunecast.simulator.settle import POLICIES, settle


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
