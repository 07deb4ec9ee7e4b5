"""Work items as the engine reads them: a row of numbers each, which item follows which, where rows of B lie.

Rows of DRAM that kept columns read are those of B itself, or of the input of a convolution.
"""

import numpy as np

from prunecast.launch import LaunchContext
from prunecast.launch.memory import pixels_per_output
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import KernelPlan, Schedule
from prunecast.plan.program import Op
from prunecast.simulator import engine


def first_steps(plan: KernelPlan, block_k: int) -> tuple[np.ndarray, int]:
    """(items,) the step that each item begins with, of all steps that have segments of their own, and those.

    Items of a tile share the steps that both have, unless steps made longer begin within a part: then they
    share what begins with the same column.
    """
    work = plan.work
    # Room for steps behind the last columns, so that no two steps share a segment
    if np.all(work.k_start % block_k == 0):
        steps = -(-plan.tiles.kept_per_tile // block_k) + plan.fewest_steps
        base = np.concatenate(([0], np.cumsum(steps, dtype=np.int64)))
        return base[work.tile] + work.k_start // block_k, int(base[-1])
    begins = work.tile.astype(np.int64) * (int(work.k_start.max()) + 1) + work.k_start
    begin, place = np.unique(begins, return_inverse=True)
    steps = np.zeros(begin.size, np.int64)
    np.maximum.at(steps, place, -(-(work.k_stop - work.k_start) // block_k) + plan.fewest_steps)
    base = np.concatenate(([0], np.cumsum(steps)))
    return base[place], int(base[-1])


def items(plan: KernelPlan, first_step: np.ndarray, block_k: int, box_parts: int) -> np.ndarray:
    """(items, `engine.T_FIELDS`) their numbers; the first steps are those of `first_steps`.

    box_parts : CTAs of a pair, neighbours along the rows, each of which reads its own part of a token range
    """
    work, tiles = plan.work, plan.tiles
    k_count = work.k_stop.astype(np.int64) - work.k_start
    multiplied = plan.multiplied_columns.astype(np.int64)
    columns: dict[int, np.ndarray] = {
        engine.T_TILE: work.tile,
        engine.T_STEPS: -(-multiplied // block_k),
        engine.T_MULTIPLIED: multiplied,
        engine.T_KCOUNT: k_count,
        engine.T_KFIRST: tiles.column_start[work.tile] + work.k_start,
        engine.T_STEPFIRST: first_step,
        engine.T_ROWS: tiles.rows_per_tile[work.tile],
        engine.T_TOKENS: work.token_stop - work.token_start,
        engine.T_TOKENBLOCK: work.token_start // plan.shape.block_n * box_parts + work.tile % box_parts,
        engine.T_GROUP: work.group,
        engine.T_PARTS: work.parts,
        engine.T_OWNER: work.owner,
    }
    return np.stack([columns[field] for field in range(engine.T_FIELDS)], axis=1).astype(np.int64)


def first_items(context: LaunchContext) -> np.ndarray:
    """(slots,) the item that each slot begins with, where lists or places say so before; else nothing."""
    plan, places = context.plan, context.places
    if places is not None:
        first = np.full(int(places.max()) + 1, engine.NO_ITEM, np.int64)
        first[places] = np.arange(places.size)
        return first
    if plan.schedule is not Schedule.STATIC:
        return np.zeros(0, np.int64)
    start = plan.work.block_start.astype(np.int64)
    return np.where(start[1:] > start[:-1], start[:-1], engine.NO_ITEM)


def next_items(plan: KernelPlan) -> np.ndarray:
    """(items,) the item that follows in the same block."""
    count = plan.item_count
    following = np.arange(1, count + 1, dtype=np.int64)
    stops = plan.work.block_start[1:]
    following[stops[stops > 0] - 1] = engine.NO_ITEM
    return following


def rows_of_source(plan: KernelPlan, block_k: int) -> IntArray:
    """(kept columns of all tiles,) int32: the row that each kept column reads, as the engine counts segments.

    Of a convolution, all rows of B with one channel read the same bytes. With p input pixels for each output
    pixel a channel counts as p rows, of which a panel has p times as many. Boxes follow each other channel
    by channel, and as many of them as a filter has elements in a channel bring p boxes from DRAM.
    """
    columns = plan.tiles.column_index
    if plan.source is None:
        return columns
    pixels, taps = pixels_per_output(plan), plan.source.taps
    if any(ins.op is Op.COPY_B for program in plan.programs for ins in program.step):
        return (columns // block_k * pixels // taps * block_k).astype(np.int32)
    return (plan.source.channel_of(columns) * pixels).astype(np.int32)
