"""Work items: which exist, cut into which parts; who does which, and in which order.

Non-owner parts of split tiles come before every owner, in a block's list and in a common list, so that an
owner that waits never stands before a part that it waits for.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import Schedule, WorkList

Sizes = npt.NDArray[np.integer]
"""Counts or costs, one per item."""


class Raster(NamedTuple):
    """Order in which tiles and token ranges are walked, one entry per item."""

    tile: IntArray
    token_range: IntArray


def raster(tile_count: int, range_count: int, together: int) -> Raster:
    """All tiles of the first `together` token ranges, then all tiles of the next ones.

    Inside such a group the ranges of a tile follow one another. With 1, the tiles of a token range run
    together and share its rows of B in L2; with more, a tile's weights are read less often.
    """
    if tile_count < 0 or range_count < 0 or together < 1:
        raise BadInput(f"raster of {tile_count} tiles x {range_count} ranges in groups of {together}")
    index = np.arange(tile_count * range_count, dtype=np.int64)
    group, inside = np.divmod(index, max(tile_count * together, 1))
    width = np.minimum(together, range_count - group * together)
    return Raster(
        tile=(inside // np.maximum(width, 1)).astype(np.int32),
        token_range=(group * together + inside % np.maximum(width, 1)).astype(np.int32),
    )


def ranges_together(packed_bytes: int, round_bytes: float, block_m: int, ranges: int, gpu: GpuSpec) -> int:
    """Token ranges to walk together: 4 where L2 loses weights before the next range needs them, else 1.

    Parameters
    ----------
    packed_bytes : weights of all tiles
    round_bytes : that L2 sees from one use of a tile's weights to the next, if ranges follow one another
    block_m : rows of a block
    ranges : of all tokens

    It pays where weights are half of what L2 keeps: with less, groups of ranges lose more B at their edges
    than they save. Measured on an H200, 18 products (`benchmarks/measured/h200-sxm-walks-2026-11-21.json`):
    0.6 to 5.9 % faster than 1 from 22 MB of weights on, up to 3 % slower with 17 MB or less. 8 gain no more.
    Blocks of 64 rows live on B: 11008 x 4096 was 3 to 7 % faster where two ranges are all there is (four
    products), and 14 % slower in groups of four of 16 (suite, 2026-11-22).
    """
    lost = round_bytes > gpu.l2_usable_bytes and 2 * packed_bytes > gpu.l2_usable_bytes
    return 4 if lost and (block_m >= 128 or ranges <= 2) else 1


def whole_items(kept: IntArray, order: Raster, *, n: int, block_n: int) -> WorkList:
    """One unsplit item per entry of `order`, in one list; `kept` counts the kept columns of each tile."""
    items = order.tile.size
    zeros, ones = np.zeros(items, np.int32), np.ones(items, np.int32)
    start = order.token_range * np.int32(block_n)
    return WorkList(
        block_start=np.array([0, items], np.int32),
        tile=order.tile,
        token_start=start,
        token_stop=np.minimum(start + np.int32(block_n), np.int32(n)),
        k_start=zeros,
        k_stop=kept[order.tile],
        group=zeros - 1,
        part=zeros,
        parts=ones,
        owner=ones,
    )


def split_items(items: WorkList, pieces: Sizes, block_k: int) -> WorkList:
    """Cut whole item i into `pieces[i]` parts of nearly equal numbers of k-steps; part 0 owns the sum.

    Raises
    ------
    BadInput : an item shall be cut into more pieces than it has k-steps
    """
    steps = -(-items.k_stop // block_k)
    if np.any(pieces < 1) or np.any(pieces > np.maximum(steps, 1)):
        raise BadInput("pieces of an item must lie between 1 and its number of k-steps")
    if not np.any(pieces > 1):
        return items
    source = np.repeat(np.arange(pieces.size), pieces)
    place = np.arange(source.size) - (np.cumsum(pieces) - pieces)[source]
    begin, end = (place * steps[source] // pieces[source], (place + 1) * steps[source] // pieces[source])
    return cut_items(items, source, begin, end, block_k)


def cut_items(items: WorkList, source: Sizes, step_begin: Sizes, step_end: Sizes, block_k: int) -> WorkList:
    """Parts of whole items, in order of item and k: part j has the k-steps from step_begin[j] to step_end[j]
    of item source[j].
    """
    counts = np.bincount(source, minlength=items.tile.size)
    part = np.arange(source.size) - (np.cumsum(counts) - counts)[source]
    is_split = counts > 1
    group = np.where(is_split, np.cumsum(is_split) - 1, -1)
    return take_items(items, source)._replace(
        k_start=(step_begin * block_k).astype(np.int32),
        k_stop=np.minimum(step_end * block_k, items.k_stop[source]).astype(np.int32),
        group=group[source].astype(np.int32),
        part=part.astype(np.int32),
        parts=counts[source].astype(np.int32),
        owner=(part == 0).astype(np.int32),
    )


def take_items(items: WorkList, index: Sizes) -> WorkList:
    """The items of `index`, in its order, in one list."""
    columns = (column[index] for column in items[1:])
    return WorkList(np.array([0, index.size], np.int32), *columns)


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
