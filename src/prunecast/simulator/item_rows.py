"""Integer tables of work items for the engine: sizes of items, item order in blocks, and rows of B.

The engine models L2 with *segments*: pieces of A, B or C that L2 holds or evicts as a whole. Kept columns
read rows of B, or of the input of a convolution.
"""

import numpy as np

from prunecast.launch import LaunchContext
from prunecast.launch.memory import pixels_per_output
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import KernelPlan, Schedule
from prunecast.plan.program import Op
from prunecast.simulator import engine


def first_steps(plan: KernelPlan, block_k: int) -> tuple[np.ndarray, int]:
    """Number the k-steps of all tiles; return the first one of each item, (items,), and their total number.

    The weights of each numbered k-step are a separate segment of the L2 model. Items of one tile with
    different token ranges share the k-steps, and thus the weights in L2. If the engine runs several k-steps
    of the plan as one of `block_k` columns, a k-slice can begin within such a k-step. Then only items that
    begin with the same column share k-steps.
    """
    work = plan.work
    # Add the steps of padding after the last columns, so that no two steps share a segment
    if np.all(work.k_start % block_k == 0):
        columns = plan.tiles.kept_per_tile if plan.padded is None else plan.padded
        steps = -(-columns // block_k) + plan.fewest_steps
        base = np.concatenate(([0], np.cumsum(steps, dtype=np.int64)))
        return base[work.tile] + work.k_start // block_k, int(base[-1])
    begins = work.tile.astype(np.int64) * (int(work.k_start.max()) + 1) + work.k_start
    begin, place = np.unique(begins, return_inverse=True)
    steps = np.zeros(begin.size, np.int64)
    np.maximum.at(steps, place, -(-(work.k_stop - work.k_start) // block_k) + plan.fewest_steps)
    base = np.concatenate(([0], np.cumsum(steps)))
    return base[place], int(base[-1])


def items(plan: KernelPlan, first_step: np.ndarray, block_k: int, box_parts: int) -> np.ndarray:
    """Return the engine's table of work items, (items, `engine.T_FIELDS`) int64, one row per item.

    A row contains the tile, k-steps, kept columns, rows, tokens and reduction group of the item.

    Parameters
    ----------
    first_step : (items,) first k-step of each item, from `first_steps`
    block_k : columns of a k-step
    box_parts : number of CTAs, neighbours along M, that share the rows of B of one token range and read a
        part of them each
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
    """Return the first item of each block, (blocks,) int64; NO_ITEM for a block without items.

    If `LaunchContext.places` is given, entry p is the item that runs in block slot p. The array is empty if
    the hardware assigns items to slots while the launch runs.
    """
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
    """Return the next item of the same block for each item, (items,) int64; NO_ITEM after the last one."""
    count = plan.item_count
    following = np.arange(1, count + 1, dtype=np.int64)
    stops = plan.work.block_start[1:]
    following[stops[stops > 0] - 1] = engine.NO_ITEM
    return following


def rows_of_source(plan: KernelPlan, block_k: int) -> IntArray:
    """Return the row of B that each kept column reads, (kept columns of all tiles,) int32.

    In a convolution, B is an implicit im2col matrix: all of its rows that belong to one input channel read
    the same bytes, so they get the same number. With p input pixels per output pixel, a channel counts as p
    rows, and a segment of the L2 model has p rows. If B is copied in boxes (COPY_B), the boxes of one channel
    (one per filter element) together read p boxes from DRAM.
    """
    columns = plan.tiles.column_index
    if plan.source is None:
        return columns
    pixels, taps = pixels_per_output(plan), plan.source.taps
    if any(ins.op is Op.COPY_B for program in plan.programs for ins in program.step):
        return (columns // block_k * pixels // taps * block_k).astype(np.int32)
    return (plan.source.channel_of(columns) * pixels).astype(np.int32)
