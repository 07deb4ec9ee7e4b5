"""Closed-form time of a plan: hierarchical roofline, pipeline fill, waves, balance, clock and launch.

All times are in SM cycles, except in the last line:

- item    = prologue, k-steps and epilogue, from samples of the simulator's engine (`block_times.py`);
- block   = its items one after another, owners of split tiles after the other k-slices (`loops.list_ends`);
- SM      = list scheduling of blocks over the block slots; resident blocks share the SM (`waves.py`);
- chip    = end of the last SM + its last stores; SMs are slowed down while their requests exceed the
            bandwidth of L2 or DRAM (`chip.py`);
- seconds = launch floor + cycles / clock. The clock depends on tensor duty, L2 and DRAM traffic. The floor is
            the time per launch of back-to-back empty kernels, which start and drain too: it is added in full.

Reads of a launch in bursts are modelled only for the first stages of a wave (`waves.py`) and for the first
wave of unequal tiles (`chip._in_parts`). Blocks of different SMs that drift apart count only for what DRAM
reads again (`working_sets.find_unread`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from prunecast.arguments import checked
from prunecast.hardware.clock import sm_clock_hz
from prunecast.hardware.spec import GpuSpec
from prunecast.launch import COLD, CacheState, Conditions, LaunchContext, burst_contexts, launch_context
from prunecast.launch.floor import beside_s, launch_floor_s
from prunecast.launch.memory import memory_rules
from prunecast.models.amounts import launch_amounts, units_of
from prunecast.models.block_times import BlockTimes, block_times
from prunecast.models.bounds import bounds_of
from prunecast.models.case import LEVELS, Case, Estimate, Explained
from prunecast.models.chip import chip_ends
from prunecast.models.loops import ChipEnds, chip_cycles
from prunecast.models.rates import program_traits, sm_level_cycles, sm_rates
from prunecast.models.terms import FloatArray, Quantity
from prunecast.models.traffic import plan_traffic
from prunecast.models.waves import Placement, place_blocks, unit_costs
from prunecast.plan.kernel_plan import KernelPlan

CLOCK_ROUNDS = 6
"""Maximum number of iterations cycles -> tensor duty -> clock -> cycles. Each iteration reduces the error to
about a third: the clock of tile products on an H200 is within 2.3 % after two, 0.9 % after three and 0.03 %
after six iterations. Kind: choice, the clock is within 0.03 %."""
SAME_CLOCK = 1e-12
"""Relative change of the SM clock at which the fixed-point iteration stops. Kind: choice, rounding."""


class _Settled(NamedTuple):
    """Cycles of a launch and the SM clock at which they were computed."""

    cycles: float
    clock_hz: float


@checked
def estimate(
    plan: KernelPlan, gpu: GpuSpec, *, state: str = "burst", launch: str = "graph", l2: CacheState = COLD
) -> Estimate:
    """Return the predicted time of one launch in closed form, in about a millisecond for hundreds of items.

    Parameters
    ----------
    state, launch, l2 : conditions of the launch, see `launch.conditions`

    Raises
    ------
    PlanDoesNotFit : no block fits on an SM, or a persistent grid is larger than the GPU holds at once
    BadInput : an unknown state, launch or L2 state, or instructions that the GPU does not have
    """
    return estimate_launch(launch_context(plan, gpu, Conditions(state, launch, l2)))


def estimate_launch(context: LaunchContext) -> Estimate:
    """Return the result of `estimate` for a launch under the conditions of its context."""
    context.check_fit()
    if context.places is None:
        return _estimate(context)
    placed = burst_contexts(context)
    found = [_estimate(each) for _, each in placed]
    if len(found) == 1:
        return found[0]
    typical = found[int(np.argmax([share for share, _ in placed]))]
    cycles = sum(share * one.cycles for (share, _), one in zip(placed, found, strict=True))
    return replace(typical, cycles=cycles, seconds=typical.launch_s + cycles / typical.clock_hz)


def _estimate(context: LaunchContext) -> Estimate:
    """Return the estimate of a launch: times of blocks, their placement on SMs, end of the chip, SM clock.

    seconds = launch_s + cycles / clock_hz, where cycles and clock are a fixed point (`_settle`).
    """
    case = look_up(context)
    times = block_times(case)
    units = unit_costs(case, times)
    placement = place_blocks(case, units)
    launch_s = launch_floor_s(context)
    ends = chip_ends(case, placement, units.quiet, partial(_item_cycles, case, times))
    settled = _settle(case, ends, launch_s - beside_s(context))
    return Estimate(
        seconds=launch_s + settled.cycles / settled.clock_hz,
        cycles=settled.cycles,
        clock_hz=settled.clock_hz,
        launch_s=launch_s,
        # `workload.engines.guess_of` begins a simulation with it; no time of the closed form depends on it
        written_share=1.0 - case.traffic.read_share,
        state=context.conditions.state,
        occupancy=context.fit,
        explained=_Once(partial(_explained, case, times, placement, settled.clock_hz)),
    )


def _settle(case: Case, chip: ChipEnds, launch_s: float) -> _Settled:
    """Return cycles and SM clock of a launch as the result of a fixed-point iteration.

    The cycles depend on the clock because L2 and DRAM deliver fixed bytes per second. The clock depends on
    the activity between one launch and the next.

    Parameters
    ----------
    launch_s : launch overhead in seconds, without the time of other kernels that the operator launches
    """
    gpu = case.gpu
    total = case.amounts.total
    l2_bytes = case.context.l2_power * float(total[Quantity.L2])
    dram_bytes, tensor = case.traffic.dram_bytes, float(sm_level_cycles(total, case.rates)["tensor"])
    settled = _Settled(chip_cycles(chip, gpu.max_clock_hz), gpu.max_clock_hz)
    for _ in range(CLOCK_ROUNDS):
        period_s = settled.cycles / settled.clock_hz + launch_s
        sm_cycles = period_s * settled.clock_hz * gpu.sm_count
        clock_hz = sm_clock_hz(
            gpu,
            tensor_duty=tensor / sm_cycles,
            l2_bytes_per_clk_per_sm=l2_bytes / sm_cycles,
            dram_bytes_per_clk_per_sm=dram_bytes / sm_cycles,
            state=case.context.conditions.state,
            dtype=case.plan.dtype,
            busy_share=chip.busy_share,
            period_s=period_s,
        )
        if abs(clock_hz - settled.clock_hz) < SAME_CLOCK * clock_hz:
            break
        settled = _Settled(chip_cycles(chip, clock_hz), clock_hz)
    return settled


def _item_cycles(case: Case, times: BlockTimes) -> FloatArray:
    """Return the SM time per item, (items,) cycles, if all block slots of the SM run equal items."""
    of_kinds = np.maximum(times.later / case.context.fit.blocks_per_sm, times.demand)
    return np.asarray(of_kinds[case.amounts.kinds.of_item])


class _Once:
    """Result of a function that is called at the first access. The function is released afterwards, and with
    it the arrays of the case: `functools.cache` would keep them for every layer of a model.
    """

    def __init__(self, make: Callable[[], Explained]) -> None:
        self._make: Callable[[], Explained] | None = make
        self._made: Explained | None = None

    def __call__(self) -> Explained:
        if self._made is None:
            assert self._make is not None
            self._made, self._make = self._make(), None
        return self._made


def _explained(case: Case, times: BlockTimes, placement: Placement, clock_hz: float) -> Explained:
    """Return the numbers that only explanations read; `balance` is mean / largest work of an SM."""
    item_work = _item_cycles(case, times)
    work = np.bincount(placement.sm, weights=units_of(case.plan, item_work), minlength=case.gpu.sm_count)
    return Explained(
        bound_cycles=bounds_of(case.context, clock_hz, case.amounts, case.traffic),
        step_cycles=_step_cycles(case, clock_hz),
        waves=float(work.max()) / float(item_work.mean()) if item_work.any() else 0.0,
        balance=float(work.mean() / work.max()) if work.any() else 1.0,
    )


def look_up(context: LaunchContext) -> Case:
    """Return the work counts, rates and traffic of a launch.

    Raises
    ------
    BadInput : the GPU lacks instructions that the plan needs
    """
    plan, gpu = context.plan, context.gpu
    amounts = launch_amounts(context)
    rules = memory_rules(context)
    in_flight = min(plan.blocks, context.held)
    traffic = plan_traffic(context, rules, amounts, in_flight)
    rates, traits = sm_rates(plan.dtype, plan.tensor, gpu), program_traits(context.programs)
    # Set-ups under programmatic dependent launch do not count, since DRAM still serves the preceding launch:
    # with them, a measured convolution that is limited by DRAM is predicted 25 instead of 23 % off
    waits = 0 if context.pdl else sum(p.start[0].amount for p in context.programs if p.start and p.fetches)
    starts = 0.0 if context.prologue_is_hidden else float(gpu.block_start_cycles + waits)
    before = 0.0 if context.co_resident else starts + gpu.dram_latency_cycles
    at_once = not (context.co_resident or context.prologue_is_hidden or context.copies_through_registers)
    delays = traits.weights_first and at_once
    return Case(context, plan, gpu, rules, traits, amounts, rates, traffic, in_flight, before, delays)


def _step_cycles(case: Case, clock_hz: float) -> dict[str, float]:
    """Return `Estimate.step_cycles`: a dict from level to its busy cycles for a k-step of all blocks.

    Each resident block of every SM runs one full k-step.
    """
    gpu, step = case.gpu, case.amounts.step
    resident = min(case.context.fit.blocks_per_sm, -(-case.plan.blocks // gpu.sm_count))
    cycles = {level: resident * float(c) for level, c in sm_level_cycles(step, case.rates).items()}
    l2_bytes = resident * min(case.plan.blocks, gpu.sm_count) * float(step[Quantity.L2])
    cycles["l2"] = l2_bytes / (gpu.l2_bytes_per_s / clock_hz)
    traffic = case.traffic
    missing = min(1.0, traffic.dram_bytes / traffic.l2_bytes) if traffic.l2_bytes else 0.0
    cycles["dram"] = missing * l2_bytes / (gpu.dram_bytes_per_s / clock_hz)
    return {level: cycles[level] for level in LEVELS}
