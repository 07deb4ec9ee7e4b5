"""Compute the cost of blocks with their lists of items, their placement on SMs, and the end of each SM."""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch import LaunchContext
from prunecast.models.block_times import BlockTimes, first_stages_share, ring_steps
from prunecast.models.bounds import L2Seconds
from prunecast.models.case import Case
from prunecast.models.fitted import FITTED
from prunecast.models.loops import BlockLists, SlotsApart, list_costs, list_ends, run_down
from prunecast.models.prefetch import burst_overlap, unposted_bytes
from prunecast.models.rates import blocks_end_together, sm_level_cycles
from prunecast.models.terms import OF_STORES, FloatArray, Quantity
from prunecast.plan.program import Op

EXACT_WAVES = 64
"""Number of waves at the end of a launch whose units are scheduled one by one. Earlier waves are assumed to
fill all block slots evenly. Kind: choice, for speed."""

EVENLY = SlotsApart()
"""Slots that become free in the same cycle are filled evenly. Kind: definition."""

BURST_SHARE = FITTED["burst_share"]
"""Wait of a block for its first stages, as a fraction of the time in which L2 or DRAM delivers the first
stages of all blocks."""

LATER_BURST_SHARE = FITTED["later_burst_share"]
"""Wait of a block of a later wave, as a fraction of the time in which DRAM delivers all weights that its wave
requests (`later_burst_cycles`)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Scheduled units on the SMs of a GPU. A unit is a block with its list of items.

    Parameters
    ----------
    slot_finish : (SMs, slots) float64, cycle in which each block slot ends its last unit; 0 for a slot
        without units
    sm : (units,) int64, SM of each unit
    unit_end : (units,) float64, cycle in which each unit ends; 0 for units before the last `EXACT_WAVES`
    unit_wait : (units,) float64, cycles at the end of each unit for which it waits for partial sums
    demand_share : cycles for which a unit occupies the busiest pipe of its SM, divided by its cycles if it is
        alone on the SM, as the mean of all units
    sm_finish : (SMs,) float64, cycle in which each SM ends its last unit
    """

    slot_finish: FloatArray
    sm: npt.NDArray[np.int64]
    unit_end: FloatArray
    unit_wait: FloatArray
    demand_share: float = 0.0
    sm_finish: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sm_finish", self.slot_finish.max(axis=1))


def place_units(
    context: LaunchContext,
    alone: FloatArray,
    demand: FloatArray,
    apart: SlotsApart = EVENLY,
) -> Placement:
    """Return the placement of units by list scheduling; units that are resident on one SM share its pipes.

    Units that start at once are assigned to SMs round robin, or to the slots of `LaunchContext.places` if it
    is given. A slot that becomes free runs the next unit. r equal units on an SM need max(alone, r * demand)
    cycles each; `run_down` gives the delays of unequal units.

    Parameters
    ----------
    alone : (units,) float64, cycles of a unit if it is the only one on its SM
    demand : (units,) float64, cycles for which a unit occupies the busiest pipe of its SM
    apart : result of `slots_apart`, or zeros to fill slots evenly
    """
    sms, in_flight = context.gpu.sm_count, min(context.plan.blocks, context.held, alone.size)
    early = max(alone.size - EXACT_WAVES * in_flight, 0) // max(in_flight, 1) * in_flight
    places = np.full(alone.size - early, -1, np.int64)
    first = np.arange(in_flight) if context.places is None else context.places[:in_flight]
    places[:in_flight] = first % sms
    finish, sm = np.zeros((sms, context.fit.blocks_per_sm)), np.arange(alone.size) % sms
    end = np.zeros(alone.size)
    run_down(alone[early:], demand[early:], places, np.array(apart), finish, sm[early:], end[early:])
    if early:
        shared = np.maximum(alone[:early], in_flight / sms * demand[:early])
        before = float(shared.sum()) / in_flight
        finish[finish > 0.0] += before
        end[early:] += before
    return Placement(
        slot_finish=finish,
        sm=sm,
        unit_end=end,
        unit_wait=np.zeros(alone.size),
        demand_share=float(demand.sum()) / max(float(alone.sum()), 1.0),
    )


def place_blocks(case: Case, units: "_UnitCosts") -> Placement:
    """Return the placement of the blocks of a launch, with waits of owners for partial sums.

    The ends of the k-slices of split tiles are known only after the placement: blocks that share their SM are
    slower than `units.alone`. Owners on other SMs wait for them, add the sums and store C, which no resident
    block hides, because all k-slices end at about that time.
    """
    placement = place_units(case.context, units.alone, units.demand, slots_apart(case))
    if case.context.crowd == 1 or not np.any(units.lists.group >= 0):
        return replace(placement, unit_wait=units.wait)
    end, wait = np.empty((2, units.alone.size))
    list_ends(units.lists, np.maximum(placement.unit_end / np.maximum(units.alone, 1.0), 1.0), end, wait)
    last = np.zeros(case.gpu.sm_count)
    np.maximum.at(last, placement.sm, end)
    finish = np.where(placement.slot_finish > 0.0, np.maximum(placement.slot_finish, last[:, None]), 0.0)
    return replace(placement, slot_finish=finish, unit_end=end, unit_wait=wait)


def slots_apart(case: Case) -> SlotsApart:
    """Return the cycles between the ends of blocks on two SMs that follow each other, and on one SM.

    Blocks of an SM that take turns k-step by k-step end about a k-step apart. Those that copy through
    registers do so (`blocks_end_together`), and those that copy asynchronously if their items have more than
    twice the k-steps of their pipeline: of 408 random layers of the RTX 4090 and the A100 the latter changes
    seven, whose engines are then 3.4 instead of 5.6 % apart. All cycles are 0 for other blocks.

    L2 serves the requests of all n SMs in order. It needs s cycles for the data that a block requests before
    it multiplies: its first stages, or one k-step if copies pass through registers. It needs c cycles for C
    of a block, which the store port of an SM accepts in p cycles.

    * The first blocks of a wave end on all n SMs within the longer of n s and n c - p cycles.
    * Second blocks store after these n c cycles.
    * Second and later blocks end within n (c + f) cycles, because L2 also serves the first stages (f cycles)
      of the blocks that replaced first ones.

    If the latter is longer than a k-step, an SM gets several of the remaining blocks before others get their
    second one, and the last wave is uneven.
    """
    plan, context, traits, gpu = case.plan, case.context, case.traits, case.gpu
    ring = ring_steps(context.programs, plan.resources.stages)
    in_turn = context.crowd > 1 and not (context.co_resident or traits.runs_ahead or traits.waits_for_weights)
    in_turn &= float(plan.steps_per_item.sum()) > 2 * ring * plan.item_count
    through_registers = blocks_end_together(context)
    if not (in_turn or through_registers):
        return EVENLY
    l2 = L2Seconds.of(context, case.amounts, case.traffic)
    blocks = max(plan.blocks / case.blocks_in_flight, 1.0) * context.crowd * gpu.sm_count
    stored = l2.stores * gpu.max_clock_hz / blocks
    filled = l2.reads * first_stages_share(case) * gpu.max_clock_hz / blocks
    stored_bytes = float(case.amounts.total[OF_STORES].sum()) / plan.blocks
    port = stored_bytes / float(gpu.store_bytes_per_clk_per_sm)
    step = max(float(c) for c in sm_level_cycles(case.amounts.step, case.rates).values())
    return SlotsApart(
        first=max(filled / ring if through_registers else filled, stored - port / gpu.sm_count),
        later=stored + filled,
        after_first=max(step, gpu.sm_count * stored),
        on_sm=step,
    )


class _UnitCosts(NamedTuple):
    """SM cycles of each unit (a block with its list of items), each (units,) float64."""

    lists: BlockLists
    alone: FloatArray
    """Cycles of a unit if it is the only one on its SM."""
    demand: FloatArray
    """SM cycles per unit if the SM holds `LaunchContext.crowd` units: cycles until all of them end, divided
    by their number."""
    quiet: FloatArray
    """Cycles at the end of a unit during which it reads nothing, without `wait`."""
    wait: FloatArray
    """Cycles at the end of a unit for which it waits for partial sums, if no other unit is on its SM."""


def unit_costs(case: Case, times: BlockTimes) -> _UnitCosts:
    """Return the cycles that each block needs for its list of items."""
    plan, of_item = case.plan, case.amounts.kinds.of_item
    of_items = BlockTimes(*(column[of_item] for column in times))
    refills = int(plan.work.block_start[case.blocks_in_flight])
    of_items.first[refills:] = of_items.refill[refills:]
    of_items.first_demand[refills:] = of_items.demand[refills:]
    burst, together = first_burst_cycles(case), case.blocks_in_flight
    first_wait = np.zeros(plan.work.block_start.size - 1)
    first_wait[:together] = np.maximum(first_waits(case, burst), burst * last_of_slices(case)[:together])
    lists = BlockLists(
        block_start=plan.work.block_start.astype(np.int64),
        times=of_items,
        group=np.where(case.traits.waits_for_parts, plan.work.group, -1),
        owner=plan.work.owner,
        first_wait=first_wait,
        block_cycles=float(case.gpu.block_start_cycles),
        signal=float(case.gpu.signal_latency_cycles),
    )
    found = _UnitCosts(lists, *np.zeros((4, first_wait.size)))
    list_ends(lists, np.ones_like(found.alone), found.alone, found.wait)
    list_costs(lists, found.demand, found.quiet)
    # An SM works as soon as the first of its blocks has its data. L2 and DRAM serve first blocks of all SMs
    # before second ones, so that second blocks on few SMs do not shorten the wait
    found.demand[:together] += burst * min(case.gpu.sm_count / max(together, 1), 1.0) / case.context.crowd
    later = later_burst_cycles(case, np.maximum(found.alone, case.context.crowd * found.demand))
    found.alone[together:] += later
    found.demand[together:] += later / case.context.crowd
    return found


def first_waits(case: Case, burst: float) -> FloatArray:
    """Return the cycles that each block of the first wave waits for its first stages, (blocks in flight,).

    Of the blocks of an SM that are ready, the last one requests all of its stages first (greedy-then-youngest
    scheduling), then the one before it, and so on. DRAM serves these requests in order, so that the first
    block of each SM gets its data last. If blocks have lists of items, this delay lasts until the end of the
    list. In 53 random grouped launches on an A100, closed form and simulator differ by 2.0 % in the mean, and
    by 2.6 % with equal waits. No wait is shorter than `burst`. The waits are equal if each block has one
    item, for which `BURST_SHARE` was fitted, and if blocks wait for no data (CSR) or copy through registers:
    these start one after another and request one k-step each.

    Parameters
    ----------
    burst : result of `first_burst_cycles`, the wait of a block whose SM has no other one
    """
    plan, sms, together = case.plan, case.gpu.sm_count, case.blocks_in_flight
    waits = np.full(together, burst)
    in_order = plan.item_count > plan.blocks and case.traits.waits
    if not in_order or case.context.copies_through_registers:
        return waits
    # Blocks of later slots, in units of a block per SM: a last slot that few SMs fill delays others little
    served_before = np.maximum(together - sms * (np.arange(together) // sms + 1), 0) / sms
    return np.maximum(waits * (1.0 + served_before / BURST_SHARE) / max(together / sms, 1.0), burst)


def last_of_slices(case: Case) -> FloatArray:
    """Return the wait for first stages until the last k-slice of a block's tile has its data, over the mean.

    L2 and DRAM serve the requests of a wave in order, so that the waits of its blocks are distributed evenly
    between 0 and twice their mean. The owner of a tile in p k-slices waits for the last of them, which waits
    for p / (p + 1) of this range. If blocks copy through registers, slices wait in all k-steps, and not only
    for the first stages: then, and for unsplit tiles, the result is 1.

    The result is (blocks,) float64, by the tile of a block's first item.
    """
    work, slices = case.plan.work, np.ones(case.plan.blocks)
    if case.traits.waits_for_parts and not case.context.copies_through_registers:
        has_items = np.diff(work.block_start) > 0
        slices[has_items] = work.parts[work.block_start[:-1][has_items]]
    return 2.0 * slices / (slices + 1.0)


def later_burst_cycles(case: Case, lasting: FloatArray) -> float:
    """Return the cycles that blocks after the first wave wait because all of a wave request weights at once.

    `first_burst_cycles` is this wait for the first wave. Blocks of later waves start together if blocks of
    the wave before are equal, and wait for all weights that they have requested. With this wait, the mean
    error of 17 layers (`benchmarks/measured/h200-sxm-small-n-rounds-2026-11-29.csv`) is 8.4 instead of
    10.9 %. Unequal blocks drift apart, so that the wait counts by the mean overlap of two requests
    (`burst_overlap`). The result is 0 for blocks that do not wait for weights, and if no column is kept.

    Parameters
    ----------
    lasting : (blocks,) cycles of each block in its block slot
    """
    later = case.traffic.waves.of_item > 0
    columns = (case.plan.work.k_stop - case.plan.work.k_start).astype(np.float64)
    if not (case.traits.waits_for_weights and later.any() and columns.any()):
        return 0.0
    ring = ring_steps(case.context.programs, case.plan.resources.stages) * case.plan.shape.block_k
    requested = np.minimum(columns[later], ring).sum()
    waves = max(case.plan.blocks / case.blocks_in_flight - 1.0, 1.0)
    weights_s = case.traffic.a_bytes / case.gpu.dram_bytes_per_s * float(requested / columns.sum())
    burst = max(weights_s / waves * case.gpu.max_clock_hz, 1.0)
    wave = np.arange(lasting.size) // case.blocks_in_flight
    drift = lasting - (np.bincount(wave, lasting) / np.bincount(wave))[wave]
    return LATER_BURST_SHARE * burst * burst_overlap(burst, math.sqrt(float(np.mean(drift**2))), waves)


def first_burst_cycles(case: Case) -> float:
    """Return the cycles that blocks of the first wave wait because all request their first stages at once.

    Warps that both copy and multiply request all pipeline stages before they multiply. No stage is then
    complete before most of the data of all blocks have arrived. The result is 0 for

    * blocks with producer warps, which only copy and request stage by stage, so that the first stage is
      complete early
    * co-resident launches whose blocks share an SM, since blocks of the next launch request theirs while
      this one still runs; `_copied_weights_wait` is the wait of other co-resident launches
    * blocks that request weights before rows of B, whose samples contain the wait (`dram_busy_cycles`)
    """
    context, gpu, traffic = case.context, case.gpu, case.traffic
    if context.co_resident and context.fit.blocks_per_sm == 1:
        return _copied_weights_wait(case)
    if case.traits.runs_ahead or context.co_resident or case.weights_delay_rows:
        return 0.0
    columns = (case.plan.work.k_stop - case.plan.work.k_start).astype(np.float64)
    first = traffic.waves.of_item == 0
    of_wave = columns[first]
    if not of_wave.any():
        return 0.0
    weights = float(case.amounts.whole[case.amounts.kinds.of_item, Quantity.A] @ first)
    # Copies through registers load the weights of one k-step before rows of B
    requested = unposted_bytes(context, case.blocks_in_flight) / max(weights, 1.0)
    requested = min(requested or first_stages_share(case, first), 1.0)
    l2_s = L2Seconds.of(context, case.amounts, traffic).reads * float(of_wave.sum() / columns.sum())
    return BURST_SHARE * requested * max(case.first_reads_s, l2_s) * gpu.max_clock_hz


def _copied_weights_wait(case: Case) -> float:
    """Return the cycles by which the first weights of blocks that fill an SM arrive after their rows of B.

    These blocks start together when the preceding launch leaves its SMs, request rows of B, and copy the
    weights of the k-steps of `fill`. With d cycles of DRAM for the weights of all blocks, and copies of B
    that last `Instruction.late` cycles longer than their latency, the last weights arrive max(d - late, 0)
    cycles after the rows of B. Blocks of later waves do not wait: the mean error of measured products on the
    H200 is 3.89 % with this wait in the first wave, 3.86 % in all waves and 4.01 % in none (226 products), on
    the H100 1.90, 2.27 and 2.07 % (25). The result is 0 for programs that copy no weights in `fill`.
    """
    plan, traffic = case.plan, case.traffic
    fill = [i for program in case.context.programs for i in program.fill]
    first = traffic.waves.of_item == 0
    columns = (plan.work.k_stop - plan.work.k_start)[first].astype(np.float64)
    if not (any(i.op is Op.COPY_A for i in fill) and columns.any()):
        return 0.0
    filled = np.minimum(columns, (plan.resources.stages - 1) * plan.shape.block_k).sum() / columns.sum()
    weights = float(filled) * traffic.a_bytes / max(traffic.a_bytes + traffic.b_bytes, 1.0)
    late = max((i.late for i in fill if i.op is Op.COPY_B), default=0)
    return max(case.first_reads_s * weights * case.gpu.max_clock_hz - late, 0.0)
