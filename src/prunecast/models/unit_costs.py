"""What a list of items costs, or an item that is drawn, from what its items and its start cost."""

from typing import NamedTuple

import numpy as np

from prunecast.models.case import Case
from prunecast.models.item_costs import Costs
from prunecast.models.loops import BlockLists, run_lists
from prunecast.models.roles import waits_for_parts
from prunecast.models.starts import Starts
from prunecast.models.terms import FloatArray
from prunecast.plan.kernel_plan import Schedule

__all__ = ["UnitCosts", "lists_of", "steady", "unit_costs"]


class UnitCosts(NamedTuple):
    """Cycles of what is placed as one, blocks with their lists or items that are drawn, (units,) float64."""

    alone: FloatArray
    """Cycles of a unit that has an SM to itself."""
    demand: FloatArray
    quiet: FloatArray
    """At its end, when it has nothing more to fetch."""


def steady(items: Costs | BlockLists, starts: Starts) -> FloatArray:
    """Cycles of each of `items` among others like it, the block's start aside."""
    behind_ring = np.maximum(items.edge - starts.ring, 0.0)
    return np.asarray(
        np.maximum(
            np.maximum(items.multiply + items.edge, items.fetch + np.maximum(behind_ring, starts.turn)),
            items.demand,
        )
    )


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
        group=plan.work.group
        if waits_for_parts(case.context.programs)
        else np.full_like(plan.work.group, -1),
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


def unit_costs(
    lists: BlockLists, starts: Starts, schedule: Schedule, room: UnitCosts | None = None
) -> UnitCosts:
    """Cycles of lists, or of items where blocks draw them: of those, the first ones start a block.

    `room` takes, if given, what is found.
    """
    if schedule is Schedule.DYNAMIC:
        return _drawn(lists, starts)
    found = room or UnitCosts(*np.zeros((3, lists.block_start.size - 1)))
    run_lists(lists, *found)
    np.minimum(found.quiet, starts.quiet, out=found.quiet)
    return found


def _drawn(lists: BlockLists, starts: Starts) -> UnitCosts:
    """Items that start a block are lists of one; another one costs what it adds to a list of its like."""
    once, twice = _alike(lists, 1), _alike(lists, 2)
    return UnitCosts(
        alone=np.where(starts.first, once.alone, twice.alone - once.alone + lists.wait),
        demand=lists.demand + np.where(starts.first, starts.block_demand, 0.0),
        quiet=once.quiet,
    )


def _alike(lists: BlockLists, count: int) -> UnitCosts:
    """Cycles of a list that has every item `count` times: it waits for data once and for no other slice."""
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
