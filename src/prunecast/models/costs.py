"""What an item and a block cost, in SM cycles: pipes and chains of waits laid over one another.

An item has three times. *Fetch*: its bytes through the SM's port, or its steps at the pace of the warps that
fetch, whichever takes longer. *Multiply*: its tensor work, issue slots and reads of shared memory, or its
steps at the pace of the warps that multiply. *Edge*: what these do around the steps. Where some warps only
fetch, they are up to a ring of stages ahead, and a list of items takes what its slower side takes
(`loops.run_lists`); else each item waits for its first stage, and nothing is fetched on the side.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from prunecast.hardware.occupancy import Occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launch_floor import before_b_cycles, begins_early, ends_apart_cycles
from prunecast.kernels.plan import KernelPlan, Schedule
from prunecast.kernels.program import Op
from prunecast.kernels.store_latency import store_latency_cycles
from prunecast.models.amounts import Amounts
from prunecast.models.bounds import sm_level_cycles
from prunecast.models.chain import Chain, plan_chain
from prunecast.models.chains import (
    after_parts_cycles,
    begun_early,
    edge_cycles,
    multiply_pace,
    stores_behind_cycles,
    turn_cycles,
    walk_block,
    walk_pace,
)
from prunecast.models.in_turns import in_turns_cycles
from prunecast.models.loops import BlockLists, run_lists
from prunecast.models.rates import SmRates
from prunecast.models.roles import runs_ahead, waits_for_parts
from prunecast.models.terms import FloatArray, Quantity
from prunecast.models.traffic import Traffic
from prunecast.patterns.tile_map import MaskArray

__all__ = [
    "Case",
    "Costs",
    "Starts",
    "UnitCosts",
    "item_costs",
    "lists_of",
    "starts_of",
    "steady",
    "unit_costs",
]


UNHINDERED_STEPS = 2
"""Of a block: the first one's copies are there before anything is multiplied, and those of the next find the
port idle."""


class Case(NamedTuple):
    """A plan on a GPU, and what was found out about it before any time was."""

    plan: KernelPlan
    gpu: GpuSpec
    fit: Occupancy
    amounts: Amounts
    rates: SmRates
    traffic: Traffic

    @property
    def blocks_in_flight(self) -> int:
        """Blocks that run at once at the start."""
        return min(self.plan.blocks, self.gpu.sm_count * self.fit.blocks_per_sm)

    @property
    def earlier_share(self) -> float:
        """Share of C that is stored before the last items of all blocks end."""
        return max(0.0, 1.0 - self.blocks_in_flight / max(int(self.plan.work.owner.sum()), 1))


class Costs(NamedTuple):
    """Cycles of kinds of items, each (kinds,) float64."""

    fetch: FloatArray
    """0 where no warps only fetch, and without k-steps."""
    fetch_last: FloatArray
    """Of `fetch`, its last k-step."""
    multiply: FloatArray
    last: FloatArray
    """Of the pipes' work, its last k-step: it waits for the last of what is fetched."""
    edge: FloatArray
    demand: FloatArray
    """That the busiest pipe of the SM works for an item."""
    after_parts: FloatArray
    """Of `edge`, what an owner of a split tile does once it has the signals of the other parts."""


class UnitCosts(NamedTuple):
    """Cycles of what is placed as one, blocks with their lists or items that are drawn, (units,) float64."""

    alone: FloatArray
    """Of a unit that has an SM to itself."""
    demand: FloatArray
    quiet: FloatArray
    """At its end, when it has nothing more to fetch."""


def item_costs(case: Case) -> Costs:
    """Cycles of every kind of item whose data keep coming."""
    amounts, rates = case.amounts, case.rates
    chain = _steady_chain(case)
    steps, edges = sm_level_cycles(amounts.steps, rates), sm_level_cycles(amounts.edges, rates)
    edge = np.maximum(_edge_chain(case, chain), np.maximum(edges["issue"], edges["shared"]))
    partitions = min(float(rates.sub_partitions), amounts.tensor_warps)
    tensor = steps["tensor"] * rates.sub_partitions / partitions
    pipes = np.maximum(tensor, np.maximum(steps["issue"], steps["shared"]))
    pace = _pace_of_steps(case, chain, walk_pace)
    if runs_ahead(case.plan.programs):
        multiply = np.maximum(pipes, _pace_of_steps(case, chain, multiply_pace).all)
        fetch = np.maximum(steps["l2 port"], pace.all)
        fetch_last = np.maximum(pace.all - (amounts.step_count - 1.0) * pace.whole, 0.0)
    else:
        multiply = np.maximum(np.maximum(pipes, steps["l2 port"]), pace.all)
        fetch = fetch_last = np.zeros_like(multiply)
    demand = _demand(case, steps, edges, edge, pace.all)
    stored = amounts.edges[:, Quantity.C] + amounts.edges[:, Quantity.PARTIALS_OUT]
    demand = np.maximum(demand, stored / case.gpu.store_bytes_per_clk_per_sm)
    after_parts = after_parts_cycles(chain) + _sums_in(case)
    return Costs(fetch, fetch_last, multiply, _last_step(case, steps), edge, demand, after_parts)


def _copied(amounts: FloatArray, rates: SmRates) -> FloatArray:
    """Cycles of the port of shared memory for what copies bring."""
    return np.asarray(amounts[..., Quantity.COPIED] / rates.shared_bytes_per_clk)


def _demand(
    case: Case,
    steps: dict[str, FloatArray],
    edges: dict[str, FloatArray],
    edge: FloatArray,
    pace: FloatArray,
) -> FloatArray:
    """(kinds,): of the busiest pipe; where all blocks begin and end together, of each phase's busiest, which
    warps that no barrier holds together do not keep busy.

    pace : (kinds,) cycles of the steps of a block that is alone
    """
    if not case.plan.starts_early:
        return np.asarray(np.max([steps[level] + edges[level] for level in steps], axis=0, initial=0.0))
    in_steps, around = (np.max(list(phase.values()), axis=0, initial=0.0) for phase in (steps, edges))
    if not any(i.op is Op.SYNC for program in case.plan.programs for i in program.step):
        in_steps = np.maximum(in_steps, _steps_in_turns(case, steps, pace))
    return np.asarray(in_steps + np.maximum(around, edge / _blocks_together(case)))


def _steps_in_turns(case: Case, steps: dict[str, FloatArray], pace: FloatArray) -> FloatArray:
    """(kinds,): a block's share of the steps of all that are together."""
    blocks, of_block = _blocks_together(case), sum(program.warps for program in case.plan.programs)
    partitions = case.rates.sub_partitions
    cycles = in_turns_cycles(
        pace,
        steps["issue"] * partitions / of_block,
        steps["shared"] / of_block,
        warps=blocks * of_block,
        partitions=partitions,
    )
    return np.asarray(cycles / blocks)


def _blocks_together(case: Case) -> int:
    """On the SM that has most."""
    return max(min(case.fit.blocks_per_sm, case.plan.item_count), 1)


class _Steps(NamedTuple):
    """Cycles at a pace, each (kinds,) float64."""

    all: FloatArray
    """Of all steps."""
    whole: FloatArray
    """Of a step that is whole."""


def _pace_of_steps(case: Case, chain: Chain, pace: Callable[[Chain], float]) -> _Steps:
    """Whole steps and a last one between a step of 16 columns and a whole one; slower where tokens lack."""
    k16, steps = -(-case.plan.shape.block_k // 16), case.amounts.step_count
    lacks = case.amounts.tokens < case.plan.shape.block_n
    whole, short = _by_tokens(chain, lacks, pace), _by_tokens(chain.with_short_steps(), lacks, pace)
    last = short + (case.amounts.last_k16 - 1.0) / max(k16 - 1, 1) * (whole - short)
    return _Steps(np.where(steps > 0, (steps - 1.0) * whole + last, 0.0), whole)


def _by_tokens(chain: Chain, lacks: MaskArray, pace: Callable[[Chain], float]) -> FloatArray:
    """(kinds,)."""
    if not lacks.any():
        return np.full(lacks.size, pace(chain))
    return np.where(lacks, pace(chain.where_tokens_lack()), pace(chain))


def _last_step(case: Case, steps: dict[str, FloatArray]) -> FloatArray:
    """(kinds,): what the other steps, which are whole, leave for tensor pipes and reads of shared memory."""
    whole, others = sm_level_cycles(case.amounts.step, case.rates), case.amounts.step_count - 1.0
    tensor = steps["tensor"] - others * float(whole["tensor"])
    read = steps["shared"] - _copied(case.amounts.steps, case.rates)
    read -= others * (float(whole["shared"]) - float(_copied(case.amounts.step, case.rates)))
    return np.asarray(np.max([tensor, read, np.zeros_like(others)], axis=0))


def steady(items: Costs | BlockLists, starts: "Starts") -> FloatArray:
    """Cycles of each of `items` among others like it, the block's start aside."""
    behind_ring = np.maximum(items.edge - starts.ring, 0.0)
    return np.asarray(
        np.maximum(
            np.maximum(items.multiply + items.edge, items.fetch + np.maximum(behind_ring, starts.turn)),
            items.demand,
        )
    )


def _steady_chain(case: Case) -> Chain:
    """Once the ring is full, what comes late is DRAM's share, which the chip's levels count."""
    return plan_chain(case.plan, case.gpu, case.rates, case.gpu.l2_latency_cycles)


def _sums_in(case: Case) -> FloatArray:
    """(kinds,): cycles in which an owner reads the other parts' sums, which come by the way of gathers."""
    rate = min(case.rates.port_bytes_per_clk, float(case.gpu.gather_bytes_per_clk_per_sm))
    return np.asarray(case.amounts.edges[:, Quantity.PARTIALS_IN] / rate)


def _edge_chain(case: Case, chain: Chain) -> FloatArray:
    """(kinds,): the multiplying warps' own cycles before and after the steps."""
    sections, example = ("begin", "end"), case.amounts.kinds.example
    parts, owner = case.plan.work.parts[example], case.plan.work.owner[example]
    edge = np.full(example.size, edge_cycles(chain, sections, "unsplit"))
    split = parts > 1
    if split.any():
        edge[split & (owner == 1)] = edge_cycles(chain, sections, "owner")
        edge[split & (owner == 0)] = edge_cycles(chain, sections, "part")
        edge += _sums_in(case)
    return edge


class Starts(NamedTuple):
    """What blocks and items begin and end with, in cycles, however many columns are kept."""

    first: MaskArray
    """(items,): whether an item is the first one of its block."""
    wait: FloatArray
    """(items,): until its first stage is there, if it has any k-step; 0 where it comes behind another one."""
    multiply_step: float
    """Of one whole k-step, as in `Costs`."""
    ring: float
    """Of steps that fill the ring."""
    first_ring: float
    """That a block's first ring of steps is fetched sooner than another one."""
    first_share: float
    """Of what a step is fetched in, by which one of the first ring is sooner."""
    first_reads: float
    """That a block's first steps are multiplied sooner than others, during which copies come."""
    first_reads_share: float
    """Of what a step is multiplied in, by which one of these is sooner."""
    turn: float
    """Of warps that only fetch, from one item of a block to its next."""
    block: float
    """Start and end of a block."""
    leave: float
    """From its end until the next one finds room."""
    block_demand: float
    """That the busiest pipe of the SM works for them."""
    ends_apart: float
    """Of SMs with the same work, where a launch leaves others free."""
    before_b: float
    """Of blocks of which some may start while the launch before ends: what they do before they read B."""
    store_drain: float
    """From the last instruction of the last block until its stores are known to be through; of blocks that
    the hardware starts it is what they `leave` after."""


def starts_of(case: Case) -> Starts:
    """Where warps run ahead only the first item of a block waits for its first stage; elsewhere every item
    does. That stage comes from DRAM: items that run together begin where none has read before.
    """
    chain, ahead = _steady_chain(case), runs_ahead(case.plan.programs)
    first_items, drain = (
        _first_items(case),
        stores_behind_cycles(chain) + store_latency_cycles(case.plan, case.gpu),
    )
    block = case.gpu.block_start_cycles + edge_cycles(chain, ("start", "finish"), "unsplit")
    levels = sm_level_cycles(case.amounts.step, case.rates)
    step = max(walk_block(chain).step, float(levels["l2 port"]))
    first = max(walk_pace(chain.of_first_ring()), float(levels["l2 port"]))
    sooner = max(step - first, 0.0) if ahead else 0.0
    multiply, hindered = _multiply_step(case, chain, levels) if ahead else (1.0, 0.0)
    # A block that the hardware starts leaves room for the next one when its stores are through.
    hardware = case.plan.schedule is Schedule.HARDWARE
    wait = _waits(case, chain, first_items | (not ahead))
    return Starts(
        first=first_items,
        wait=wait,
        multiply_step=max(float(levels["tensor"]), float(levels["shared"])) if ahead else 0.0,
        ring=case.plan.resources.stages * step if ahead else 0.0,
        first_ring=case.plan.resources.stages * sooner,
        first_share=sooner / step if step > 0.0 else 0.0,
        first_reads=UNHINDERED_STEPS * hindered,
        first_reads_share=hindered / multiply if multiply > 0.0 else 0.0,
        turn=turn_cycles(chain),
        block=block,
        leave=drain if hardware else 0.0,
        block_demand=max(float(c) for c in sm_level_cycles(case.amounts.block, case.rates).values())
        + _begun_together(case, block + float(wait.max(initial=0.0))),
        before_b=before_b_cycles(case.plan, case.gpu),
        ends_apart=ends_apart_cycles(case.plan, case.gpu),
        store_drain=0.0 if hardware else drain,
    )


class _MultiplyStep(NamedTuple):
    """Cycles in which a whole step is multiplied, and those of them that copies cost it."""

    cycles: float
    hindered: float


def _multiply_step(case: Case, chain: Chain, levels: dict[str, FloatArray]) -> _MultiplyStep:
    """Of a block's first steps the copies have passed shared memory before they are multiplied."""
    least = max(float(levels["tensor"]), multiply_pace(chain))
    shared = float(levels["shared"])
    reads = shared - float(_copied(case.amounts.step, case.rates))
    cycles = max(least, shared)
    return _MultiplyStep(cycles, cycles - max(least, reads))


def _begun_together(case: Case, until_data: float) -> float:
    """What its share of the others' wait costs a block of a launch whose blocks all wait for the launch
    before: nobody on the SM works for the others meanwhile.
    """
    return until_data / _blocks_together(case) if case.plan.starts_early else 0.0


def _waits(case: Case, steady: Chain, waits: MaskArray) -> FloatArray:
    """(items,): until the first stage is there, of items that wait for it.

    Blocks that start while the launch before theirs ends have read items and indices by then: no launch
    writes them, and the kernel waits for that end only before it reads B.
    """
    cold = plan_chain(case.plan, case.gpu, case.rates, case.gpu.dram_latency_cycles)
    wait = np.where(waits, _lead_in(cold, steady), 0.0)
    if begins_early(case.plan, case.gpu):
        hardware = case.plan.schedule is Schedule.HARDWARE
        early = slice(case.blocks_in_flight) if hardware else slice(None)
        wait[early] = np.where(waits[early], _lead_in(begun_early(cold), begun_early(steady)), 0.0)
    return wait


def _lead_in(first: Chain, steady: Chain) -> float:
    """Cycles until the first stage is there, past the block's `start`; the item's `begin` runs meanwhile."""
    before = edge_cycles(steady, ("start",), "unsplit") + edge_cycles(steady, ("begin",), "unsplit")
    return max(0.0, walk_block(first).lead - before)


def lists_of(case: Case, items: Costs, starts: Starts) -> BlockLists:
    """Items one by one, as `loops.run_lists` wants them."""
    plan, of_item = case.plan, case.amounts.kinds.of_item
    return BlockLists(
        block_start=plan.work.block_start.astype(np.int64),
        fetch=items.fetch[of_item],
        fetch_last=items.fetch_last[of_item],
        multiply=items.multiply[of_item],
        last=items.last[of_item],
        edge=items.edge[of_item],
        demand=items.demand[of_item],
        wait=np.where(case.amounts.step_count[of_item] > 0, starts.wait, 0.0),
        after_parts=items.after_parts[of_item],
        group=plan.work.group if waits_for_parts(plan.programs) else np.full_like(plan.work.group, -1),
        owner=plan.work.owner,
        multiply_step=starts.multiply_step,
        ring=starts.ring,
        first_ring=starts.first_ring,
        first_share=starts.first_share,
        first_reads=starts.first_reads,
        first_reads_share=starts.first_reads_share,
        turn=starts.turn,
        block=starts.block,
        leave=starts.leave,
        block_demand=starts.block_demand,
        signal=float(case.gpu.signal_latency_cycles),
    )


def unit_costs(lists: BlockLists, starts: Starts, schedule: Schedule) -> UnitCosts:
    """Cycles of lists, or of items where blocks draw them: of those, the first ones start a block."""
    if schedule is Schedule.DYNAMIC:
        return _drawn(lists, starts)
    found = np.zeros((3, lists.block_start.size - 1))
    run_lists(lists, *found)
    return UnitCosts(*found)


def _drawn(lists: BlockLists, starts: Starts) -> UnitCosts:
    """Items that start a block are lists of one; another one costs what it adds to a list of its like."""
    once, twice = _alike(lists, 1), _alike(lists, 2)
    return UnitCosts(
        alone=np.where(starts.first, once.alone, twice.alone - once.alone + lists.wait),
        demand=lists.demand + np.where(starts.first, starts.block_demand, 0.0),
        quiet=once.quiet,
    )


def _alike(lists: BlockLists, count: int) -> UnitCosts:
    """Of a list for every item, which has it `count` times. It waits for data once and for no other part."""
    items = lists.multiply.size
    again = {
        name: np.repeat(column, count)
        for name, column in lists._asdict().items()
        if isinstance(column, np.ndarray) and column.size == items
    }
    wait = np.zeros((items, count))
    wait[:, 0] = lists.wait
    alike = lists._replace(
        **again
        | {
            "block_start": np.arange(items + 1) * count,
            "wait": wait.ravel(),
            "group": np.full(items * count, -1, lists.group.dtype),
        }
    )
    found = np.zeros((3, items))
    run_lists(alike, *found)
    return UnitCosts(*found)


def _first_items(case: Case) -> MaskArray:
    """(items,) bool: whether an item is the first one of its block."""
    place = np.arange(case.plan.item_count)
    if case.plan.schedule is Schedule.DYNAMIC:
        return np.asarray(place < case.blocks_in_flight)
    start = case.plan.work.block_start
    is_first = np.zeros(place.size, np.bool_)
    is_first[start[:-1][np.diff(start) > 0]] = True
    return is_first
