"""What an item and a block cost, in SM cycles: pipes and chains of waits laid over one another.

An item's time is steps * pace + edges. The pace of the k-steps is the slowest of tensor, issue, shared memory
and the warps' own chain of waits; edges are what the multiplying warps do around the steps. Warps that only
fetch go on during the edges as far as the ring of stages lets them, so memory binds as
max(port, chain of the ring) + max(partial sums read in the edges, edges - what the ring holds).
"""

from typing import NamedTuple

import numpy as np

from prunecast.hardware.occupancy import Occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import KernelPlan, Schedule
from prunecast.models.amounts import Amounts
from prunecast.models.bounds import sm_level_cycles
from prunecast.models.chains import (
    Chain,
    after_parts_cycles,
    edge_cycles,
    plan_chain,
    runs_ahead,
    stores_behind_cycles,
    walk_block,
)
from prunecast.models.loops import run_lists
from prunecast.models.rates import SmRates
from prunecast.models.terms import FloatArray, Quantity
from prunecast.models.traffic import Traffic
from prunecast.patterns.tile_map import MaskArray

__all__ = ["Case", "Costs", "Starts", "UnitCosts", "item_costs", "starts_of", "unit_costs"]


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


class Costs(NamedTuple):
    """Cycles of kinds of items, each (kinds,) float64."""

    alone: FloatArray
    """Of an item that has an SM to itself."""
    demand: FloatArray
    """That its busiest pipe of the SM works for it."""
    after_parts: FloatArray
    """(kinds,): of `alone`, what an owner of a split tile does once it has the signals of the other parts."""


class UnitCosts(NamedTuple):
    """Cycles of units of work, each (units,) float64."""

    alone: FloatArray
    demand: FloatArray
    store_drain: float
    """From the last instruction of the last block until its stores are known to be through."""


def item_costs(case: Case) -> Costs:
    """Cycles of every kind of item whose data keep coming, without the lead-in of its block."""
    amounts, rates, programs = case.amounts, case.rates, case.plan.programs
    # Once the ring is full, what comes late is DRAM's share, which the chip's levels count.
    chain = plan_chain(case.plan, case.gpu, rates, case.gpu.l2_latency_cycles)
    steps, edges = sm_level_cycles(amounts.steps, rates), sm_level_cycles(amounts.edges, rates)
    edge = np.maximum(_edge_chain(case, chain), np.maximum(edges["issue"], edges["shared"]))
    partitions = min(float(rates.sub_partitions), amounts.tensor_warps)
    tensor = steps["tensor"] * rates.sub_partitions / partitions
    pipes = np.maximum(tensor, np.maximum(steps["issue"], steps["shared"]))
    port = steps["l2 port"] + edges["l2 port"]
    pace = walk_block(chain).step
    if runs_ahead(programs):
        multiply = np.maximum(pipes, amounts.step_count * walk_block(chain.with_data_there()).step) + edge
        port_pace = float(sm_level_cycles(amounts.step, rates)["l2 port"])
        in_ring = case.plan.resources.stages * max(port_pace, pace)
        sums = _sums_in(case)
        fetch = np.maximum(port - sums, amounts.step_count * pace) + np.maximum(sums, edge - in_ring)
    else:
        multiply = np.maximum(np.maximum(pipes, steps["l2 port"]), amounts.step_count * pace) + edge
        fetch = port
    demand = np.max([steps[level] + edges[level] for level in steps], axis=0, initial=0.0)
    stored = amounts.edges[:, Quantity.C] + amounts.edges[:, Quantity.PARTIALS_OUT]
    demand = np.maximum(demand, stored / case.gpu.store_bytes_per_clk_per_sm)
    alone = np.maximum(np.maximum(multiply, fetch), demand)
    return Costs(alone, demand, after_parts_cycles(chain) + _sums_in(case))


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
    """What blocks and items begin with, in cycles; none of it depends on how many columns are kept."""

    first: MaskArray
    """(items,): whether an item is the first one of its block."""
    waits: MaskArray
    """(items,): whether it waits for its first stage, if it has any k-step."""
    lead_in: float
    """Of that wait."""
    block: float
    """Start and end of a block."""
    block_demand: float
    """That the busiest pipe of the SM works for them."""
    store_drain: float
    """From the last instruction of the last block until its stores are known to be through; of blocks that
    the hardware starts it is part of `block`."""


def starts_of(case: Case) -> Starts:
    """Where warps run ahead only the first item of a block waits for its first stage; elsewhere every item
    does. That stage comes from DRAM: items that run together begin where none has read before.
    """
    chain = plan_chain(case.plan, case.gpu, case.rates, case.gpu.dram_latency_cycles)
    first = _first_items(case)
    block = case.gpu.block_start_cycles + edge_cycles(chain, ("start", "finish"), "unsplit")
    if case.plan.schedule is Schedule.HARDWARE:
        # A block leaves room for the next one when its stores are through.
        block += _store_drain(case, chain)
    return Starts(
        first=first,
        waits=first | (not runs_ahead(case.plan.programs)),
        lead_in=_lead_in(chain),
        block=block,
        block_demand=max(float(c) for c in sm_level_cycles(case.amounts.block, case.rates).values()),
        store_drain=0.0 if case.plan.schedule is Schedule.HARDWARE else _store_drain(case, chain),
    )


def _store_drain(case: Case, chain: Chain) -> float:
    """From the last instruction of a block until its last item's stores are known to be through."""
    return stores_behind_cycles(chain) + case.gpu.store_latency_cycles


def unit_costs(case: Case, items: Costs) -> UnitCosts:
    """Cycles of what is placed as one: items with their lead-in, added up over the list of a static block."""
    starts, of_item = starts_of(case), case.amounts.kinds.of_item
    waits = starts.waits & (case.amounts.step_count > 0)[of_item]
    alone = items.alone[of_item] + np.where(waits, starts.lead_in, 0.0)
    demand = items.demand[of_item] + np.where(starts.first, starts.block_demand, 0.0)
    alone = alone + np.where(starts.first, starts.block, 0.0)
    if case.plan.schedule is not Schedule.STATIC:
        return UnitCosts(alone, demand, starts.store_drain)
    lists = np.zeros((2, case.plan.blocks))
    run_lists(
        case.plan.work.block_start.astype(np.int64),
        alone,
        demand,
        case.plan.work.group,
        case.plan.work.owner,
        items.after_parts[of_item],
        float(case.gpu.signal_latency_cycles),
        lists[0],
        lists[1],
    )
    return UnitCosts(lists[0], lists[1], starts.store_drain)


def _lead_in(chain: Chain) -> float:
    """Cycles until the first stage is there, past the block's `start`; the item's `begin` runs meanwhile."""
    before = edge_cycles(chain, ("start",), "unsplit") + edge_cycles(chain, ("begin",), "unsplit")
    return max(0.0, walk_block(chain).lead - before)


def _first_items(case: Case) -> MaskArray:
    """(items,) bool: whether an item is the first one of its block."""
    place = np.arange(case.plan.item_count)
    if case.plan.schedule is Schedule.DYNAMIC:
        return np.asarray(place < case.blocks_in_flight)
    start = case.plan.work.block_start
    is_first = np.zeros(place.size, np.bool_)
    is_first[start[:-1][np.diff(start) > 0]] = True
    return is_first
