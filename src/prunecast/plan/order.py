"""Who does which item, and in which order: the schedules of a work list.

Non-owner parts of split tiles come before every owner, in a block's list and in a common list, so that an
owner that waits never stands before a part that it waits for.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import Schedule, WorkList
from prunecast.plan.work_items import Sizes, cut_items, take_items


class Assigned(NamedTuple):
    """A work list in the order in which it is done, and how blocks come by it."""

    work: WorkList
    schedule: Schedule
    blocks: int


def assign_hardware(items: WorkList) -> Assigned:
    """One block per item; the hardware starts them in order, non-owner parts first."""
    work = take_items(items, np.argsort(_rank(items), kind="stable"))
    blocks = items.tile.size
    return Assigned(
        work._replace(block_start=np.arange(blocks + 1, dtype=np.int32)), Schedule.HARDWARE, blocks
    )


def assign_longest_first(items: WorkList, cost: Sizes, blocks: int) -> Assigned:
    """A persistent grid with fixed lists: items by falling cost, each to the block with the least so far.

    Ties go to the lower block and to the earlier item. A list has the non-owner parts of split tiles first
    and the owners last, whose parts have then had the most time to arrive. The blocks with the most to do are
    the first: where launches overlap, they get the SMs that the launch before leaves first.
    """
    block_of_item = _most_first(longest_first(cost, blocks), cost, blocks)
    order = np.lexsort((-np.asarray(cost, np.int64), _rank(items), block_of_item))
    work = take_items(items, order)
    counts = np.bincount(block_of_item, minlength=blocks)
    return Assigned(work._replace(block_start=_starts(counts)), Schedule.STATIC, blocks)


def assign_stream_k(items: WorkList, blocks: int, block_k: int) -> Assigned:
    """A persistent grid whose blocks take equal, contiguous shares of all k-steps of whole items.

    An empty item counts as one step, so that loads differ by at most one. The block in which a tile
    begins owns it and comes to it last; a block that begins inside a tile does that part first.
    Source: the stream-K decomposition, Osama et al., PPoPP 2023.
    """
    _check_blocks(blocks)
    units = np.maximum(-(-items.k_stop // block_k), 1).astype(np.int64)
    ends = np.cumsum(units)
    total = int(units.sum())
    share_start = np.arange(blocks + 1, dtype=np.int64) * total // blocks
    cuts = np.union1d(np.append(ends - units, total), share_start)
    source = np.searchsorted(ends, cuts[:-1], side="right")
    begin = (ends - units)[source]
    work = cut_items(items, source, cuts[:-1] - begin, cuts[1:] - begin, block_k)
    block_of_part = np.searchsorted(share_start, cuts[:-1], side="right") - 1
    counts = np.bincount(block_of_part, minlength=blocks)
    return Assigned(work._replace(block_start=_starts(counts)), Schedule.STATIC, blocks)


def longest_first(cost: Sizes, blocks: int) -> IntArray:
    """(items,) int32: block of each item when the costliest item left goes to the least loaded block."""
    from prunecast.plan.loops import fill_longest_first  # numba is slow to import

    _check_blocks(blocks)
    costs = np.ascontiguousarray(cost, dtype=np.int64)
    order = np.argsort(-costs, kind="stable")
    block_of_item = np.zeros(costs.size, np.int32)
    fill_longest_first(order, costs, np.zeros(blocks, np.int64), np.arange(blocks), block_of_item)
    return block_of_item


def block_loads(cost: Sizes, block_of_item: IntArray, blocks: int) -> npt.NDArray[np.int64]:
    """(blocks,) int64: summed cost of each block's items."""
    return np.bincount(block_of_item, weights=cost, minlength=blocks).astype(np.int64)


def _most_first(block_of_item: IntArray, cost: Sizes, blocks: int) -> IntArray:
    """The assigned lists with blocks numbered by falling cost."""
    place = np.empty(blocks, np.int32)
    place[np.argsort(-block_loads(cost, block_of_item, blocks), kind="stable")] = np.arange(blocks)
    return place[block_of_item]


def _rank(items: WorkList) -> IntArray:
    """0 for non-owner parts, 1 for whole items, 2 for owners of split tiles."""
    return np.where(items.owner == 0, 0, np.where(items.parts > 1, 2, 1)).astype(np.int32)


def _starts(counts: Sizes) -> IntArray:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def _check_blocks(blocks: int) -> None:
    if blocks < 1:
        raise BadInput(f"a persistent grid needs at least 1 block, got {blocks}")
