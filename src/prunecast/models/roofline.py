"""The closed-form time of a plan: hierarchical roofline, pipeline fill, waves, balance, clock and launch.

All in SM cycles until the last line:

- item    = what is fetched, what is multiplied, and the edges around it, see `item_costs.py`;
- block   = its start, latency and transfer of the first stage, then its items, the warps that fetch ahead of
            those that multiply, and owners of split tiles behind the other parts (`loops.run_lists`);
- SM      = list scheduling of the units over the slots, resident blocks sharing the SM (`waves.py`);
- chip    = last SM to end + its last stores, SMs slowed down where together they ask too much of L2 or DRAM
            (`balance.SmEnds`);
- seconds = launch floor + cycles / clock, the clock depending on tensor duty and L2 traffic. The floor is
            that of back-to-back empty kernels, which start and drain too: it is added in full.

Left out: warps that get in each other's way inside an SM, and blocks that drift apart or ask in bursts. Both
take time, so the estimate tends to be low.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from prunecast.errors import check_choice
from prunecast.hardware.clock import STATES, busy_share, sm_clock_hz
from prunecast.hardware.spec import GpuSpec
from prunecast.launch import COLD, CacheState, LaunchContext, burst_contexts, launch_context
from prunecast.launch.context import l2_power
from prunecast.launch.floor import LAUNCHES, beside_s, launch_floor_s
from prunecast.launch.overlap import (
    free_sms,
    head_start_cycles,
    prologue_cycles,
    prologue_under_preceding_cycles,
    straggler_credit_cycles,
    straggler_credit_scale,
    straggler_cycles,
    straggler_of,
)
from prunecast.models.amounts import launch_amounts
from prunecast.models.bounds import L2Seconds, bounds_of, l2_seconds, sm_level_cycles
from prunecast.models.case import LEVELS, Case, Estimate, Explained
from prunecast.models.chain import plan_chain
from prunecast.models.item_costs import Costs, item_costs
from prunecast.models.prefetch import first_weights_s, first_weights_share
from prunecast.models.rates import runs_ahead, sm_rates
from prunecast.models.starts import Starts, starts_of
from prunecast.models.terms import FloatArray, Quantity
from prunecast.models.traffic import plan_traffic
from prunecast.models.unit_costs import (
    SmEnds,
    WaveShares,
    lists_of,
    sm_ends,
    steady,
    unit_costs,
    wave_shares,
)
from prunecast.models.waves import Placement, place_units, seats_of, units_of
from prunecast.plan.kernel_plan import KernelPlan, Schedule

CLOCK_ROUNDS = 6
"""Rounds of cycles -> duty -> clock -> cycles, each about a third as far from the end as the one before: the
clock of tile products on an H200 is within 2.3 % after two, 0.9 % after three and 0.03 % after six."""
SAME_CLOCK = 1e-12
"""Share of a clock by which two are the same: no later round changes them. Kind: choice, rounding."""


class _Settled(NamedTuple):
    """Cycles and the clock that goes with them."""

    cycles: float
    clock_hz: float


def estimate(
    plan: KernelPlan, gpu: GpuSpec, *, state: str = "burst", launch: str = "graph", l2: CacheState = COLD
) -> Estimate:
    """Time of one launch in closed form; takes about a millisecond for a plan of hundreds of items.

    Parameters
    ----------
    state : `burst` or `sustained`, see `hardware.clock`
    launch : one of `LAUNCHES`
    l2 : what of the operands lies in L2

    Raises
    ------
    PlanDoesNotFit : no block fits on an SM, or a persistent grid is larger than the GPU holds at once
    BadInput : an unknown state or launch, or instructions that the GPU does not have
    """
    check_choice("state", state, STATES)
    check_choice("launch", launch, LAUNCHES)
    context = launch_context(plan, gpu, l2)
    context.check_fit()
    placed = burst_contexts(context)
    found = [_estimate(each, state=state, launch=launch) for _, each in placed]
    if len(found) == 1:
        return found[0]
    typical = found[int(np.argmax([share for share, _ in placed]))]
    cycles = sum(share * one.cycles for (share, _), one in zip(placed, found, strict=True))
    return replace(typical, cycles=cycles, seconds=typical.launch_s + cycles / typical.clock_hz)


def _estimate(context: LaunchContext, *, state: str, launch: str) -> Estimate:
    case = _look_up(context)
    items, starts = item_costs(case), starts_of(case)
    units = unit_costs(lists_of(case, items, starts), starts)
    seats = seats_of(context, units.alone.size)
    placement = place_units(seats, units.alone, units.demand)
    launch_s = launch_floor_s(context, launch)
    waves = wave_shares(case.traffic.waves, partial(_item_cycles, case, items, starts))
    ends = _ends(case, placement, units.quiet, starts, waves)
    settled = _settle(case, ends, launch_s - beside_s(context), state)
    return Estimate(
        seconds=launch_s + settled.cycles / settled.clock_hz,
        cycles=settled.cycles,
        clock_hz=settled.clock_hz,
        launch_s=launch_s,
        state=state,
        occupancy=context.fit,
        explained=_Once(partial(_explained, case, items, starts, placement, settled.clock_hz)),
    )


class _Once:
    """What a call gives, made when it is first asked for; then the call and all that it holds are let go."""

    def __init__(self, make: Callable[[], Explained]) -> None:
        self._make: Callable[[], Explained] | None = make
        self._made: Explained | None = None

    def __call__(self) -> Explained:
        if self._made is None:
            assert self._make is not None
            self._made, self._make = self._make(), None
        return self._made


def _item_cycles(case: Case, items: Costs, starts: Starts) -> FloatArray:
    """(items,): what each takes of an SM, among others like it."""
    of_kinds = np.maximum(steady(items, starts) / case.context.fit.blocks_per_sm, items.demand)
    return np.asarray(of_kinds[case.amounts.kinds.of_item])


def _explained(case: Case, items: Costs, starts: Starts, placement: Placement, clock_hz: float) -> Explained:
    item_work = _item_cycles(case, items, starts)
    work = np.bincount(placement.sm, weights=units_of(case.plan, item_work), minlength=case.gpu.sm_count)
    return Explained(
        bound_cycles=bounds_of(case.context, clock_hz, case.amounts, case.traffic),
        step_cycles=_step_cycles(case, clock_hz),
        waves=float(work.max()) / float(item_work.mean()) if item_work.any() else 0.0,
        balance=float(work.mean() / work.max()) if work.any() else 1.0,
    )


def _look_up(context: LaunchContext) -> Case:
    """Amounts, rates and bytes of a launch; raises what `estimate` raises."""
    plan, gpu = context.plan, context.gpu
    amounts = launch_amounts(context)
    traffic = plan_traffic(context, amounts, min(plan.blocks, context.held))
    rates = sm_rates(plan, gpu)
    # Where rings run ahead DRAM's share says what comes late; beside a B in L2 each round of weights waits
    latency = gpu.dram_latency_cycles if context.b_in_l2 else gpu.l2_latency_cycles
    return Case(context, amounts, rates, traffic, plan_chain(context, rates, latency))


def _settle(case: Case, ends: "_Ends", launch_s: float, state: str) -> _Settled:
    """Find cycles and clock together: L2 and DRAM have fixed bytes per second, the clock follows the duty of
    the whole time from one launch to the next but for other kernels' work.
    """
    gpu = case.gpu
    total = case.amounts.total(case.plan.blocks)
    l2_bytes = l2_power(case.context) * float(total[Quantity.L2])
    dram_bytes, tensor = case.traffic.dram_bytes, float(sm_level_cycles(total, case.rates)["tensor"])
    settled = _Settled(_chip_cycles(case, ends, gpu.max_clock_hz), gpu.max_clock_hz)
    for _ in range(CLOCK_ROUNDS):
        period_s = settled.cycles / settled.clock_hz + launch_s
        sm_cycles = period_s * settled.clock_hz * gpu.sm_count
        clock_hz = sm_clock_hz(
            gpu,
            tensor_duty=tensor / sm_cycles,
            l2_bytes_per_clk_per_sm=l2_bytes / sm_cycles,
            dram_bytes_per_clk_per_sm=dram_bytes / sm_cycles,
            state=state,
            dtype=case.plan.dtype,
            busy_share=ends.busy_share,
            period_s=period_s,
        )
        if abs(clock_hz - settled.clock_hz) < SAME_CLOCK * clock_hz:
            break
        settled = _Settled(_chip_cycles(case, ends, clock_hz), clock_hz)
    return settled


class _Ends(NamedTuple):
    """What the ends of all slots mean for the chip, whatever the clock."""

    fetching: SmEnds
    """Ends of what SMs read, and of the C of all items but the last ones."""
    between: float
    """Cycles in which an SM reads nothing, one block having ended and the next one beginning."""
    working: SmEnds
    """Ends of all that SMs read and store."""
    behind: float
    """From the end of the last fetch to that of the last store, less what the next launch does meanwhile."""
    head_start: float
    """Head start of the next launch, in cycles, contained in `behind`."""
    late: float
    """From the last end of all SMs to that of the launch, whose last block is late."""
    busy_share: float
    """Mean time until an SM is done over the longest."""
    earlier_share: float
    """Share of C that is written earlier, as `Case` says."""
    l2: L2Seconds
    waves: WaveShares
    first_weights_s: float
    """Before rows of B, as `first_weights_s` says."""
    dram: "_DramSeconds"


class _DramSeconds(NamedTuple):
    """Time that DRAM works."""

    reads: float
    writes: float
    read_share: float
    """Share of what it moves that is read."""


def _dram_seconds(case: Case) -> _DramSeconds:
    traffic, gpu = case.traffic, case.gpu
    reads = (traffic.dram_bytes - traffic.c_bytes) / gpu.dram_bytes_per_s
    return _DramSeconds(reads, traffic.c_bytes / gpu.dram_write_bytes_per_s, traffic.read_share)


def _ends(
    case: Case, placement: Placement, quiet_end: FloatArray, starts: Starts, waves: WaveShares
) -> _Ends:
    # Nothing comes before the first block has started and its first read has gone to DRAM and back.
    quiet = case.gpu.block_start_cycles + case.gpu.dram_latency_cycles
    context, sm_finish = case.context, placement.sm_finish
    fetched = placement.fetched(sm_finish, quiet_end)
    prologue = prologue_under_preceding_cycles(context)
    head_start = head_start_cycles(sm_finish, prologue, free_sms(sm_finish, prologue))
    head_start += straggler_credit_cycles(sm_finish, straggler_credit_scale(context))
    columns = float((case.plan.work.k_stop - case.plan.work.k_start).sum(dtype=np.int64))
    share = first_weights_share(case.context)
    return _Ends(
        fetching=sm_ends(fetched, quiet),
        between=between_cycles(case, quiet_end),
        working=sm_ends(sm_finish, quiet),
        behind=placement.cycles - float(fetched.max()) + starts.store_drain - head_start,
        head_start=head_start,
        late=straggler_cycles(sm_finish, straggler_of(context)),
        busy_share=busy_share(sm_finish),
        earlier_share=case.earlier_share,
        l2=l2_seconds(case.context, case.amounts, case.traffic),
        waves=waves,
        first_weights_s=first_weights_s(case.context, share, case.traffic.a_bytes, columns),
        dram=_dram_seconds(case),
    )


def between_cycles(case: Case, quiet_end: FloatArray) -> float:
    """Cycles in which SMs read nothing between blocks that the hardware starts one after another."""
    plan = case.plan
    one_after_another = plan.schedule is Schedule.HARDWARE and not case.context.co_resident
    if not one_after_another or not quiet_end.size or not runs_ahead(case.context.programs):
        return 0.0
    later_rounds = plan.blocks / max(case.blocks_in_flight, 1) - 1.0
    return later_rounds * (float(quiet_end.mean()) + prologue_cycles(case.context))


def _chip_cycles(case: Case, ends: _Ends, clock_hz: float) -> float:
    """Cycles until the last SM is done and L2 has its stores, for what all SMs share.

    When launches repeat, DRAM must write all of C, and partial sums, in the time of one. L2 hands over what
    it drops for what comes: of the C of launches before, while this one reads, as much as it reads of all
    that passes DRAM.
    """
    reads_s, writes_s, read_share = ends.dram
    earlier = ends.earlier_share
    written = max(earlier, read_share)
    l2_s = max(ends.l2.reads + earlier * ends.l2.stores, earlier * ends.l2.merging)
    last_fetch = ends.fetching.stretched(clock_hz * l2_s)
    read_cycles, write_cycles = clock_hz * reads_s, clock_hz * written * writes_s
    # Co-resident blocks hide each other's waits, and what is late of them counts as stragglers
    if case.context.co_resident:
        last_fetch = max(last_fetch, ends.fetching.stretched(read_cycles + write_cycles))
    else:
        last_fetch = max(last_fetch, ends.fetching.queued(read_cycles, write_cycles, ends.waves))
    asked_first = clock_hz * (ends.l2.requests + earlier * ends.l2.stores)
    last_fetch = max(last_fetch, ends.fetching.quiet + asked_first)
    # Blocks of all SMs end and begin in step, for DRAM serves them in turn; C is written meanwhile
    in_step_s = reads_s + read_share * writes_s
    if ends.between:
        last_fetch = max(last_fetch, ends.fetching.quiet + ends.between + clock_hz * in_step_s)
    busiest = clock_hz * max(ends.l2.data, reads_s + writes_s)
    asked = clock_hz * ends.l2.all
    all_traffic = max(ends.working.stretched(busiest), ends.working.quiet + asked) - ends.head_start
    all_traffic = max(all_traffic, busiest, asked)
    steps_end = last_fetch + ends.behind + clock_hz * ends.first_weights_s
    return max(steps_end, all_traffic, 1.0) + ends.late


def _step_cycles(case: Case, clock_hz: float) -> dict[str, float]:
    """Cycles per full k-step of one of the blocks that share an SM, all SMs at work."""
    gpu, step = case.gpu, case.amounts.step
    resident = min(case.context.fit.blocks_per_sm, -(-case.plan.blocks // gpu.sm_count))
    cycles = {level: resident * float(c) for level, c in sm_level_cycles(step, case.rates).items()}
    l2_bytes = resident * min(case.plan.blocks, gpu.sm_count) * float(step[Quantity.L2])
    cycles["l2"] = l2_bytes / (gpu.l2_bytes_per_s / clock_hz)
    cycles["dram"] = case.traffic.miss_share * l2_bytes / (gpu.dram_bytes_per_s / clock_hz)
    return {level: cycles[level] for level in LEVELS}
