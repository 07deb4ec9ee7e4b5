"""Assign work items to blocks: split-K, and per-block lists that balance the load.

The owner of a split tile is the k-slice that adds the partial sums of the tile's other slices and writes C.
In every list of items, per block or common to all blocks, all non-owner slices precede all owners. Owners
wait for partial sums, so this order avoids deadlock.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import Schedule, WorkList
from prunecast.plan.work_items import Sizes

FEWEST_STEPS_PER_PART = 8
"""Least number of k-steps of a split-K slice. Kind: choice; its partial sums cost 4 to 5 k-steps."""
WORTHWHILE_STEPS = 5
"""Number of k-steps by which the most loaded block must exceed the mean before items are split. Kind: choice,
the cost of the partial sums of a slice."""
TAIL_SLICES = (2, 3, 4, 6, 8)
"""Numbers of split-K slices that are tried for the items of a partly filled last wave. Kind: choice."""
HEAVY_SHARES = (1, 2, 4)
"""Divisors of the mean load of a block; the quotient is the maximum number of k-steps of a slice of a heavy
item. All are tried. Kind: choice."""


class Assigned(NamedTuple):
    """A work list in execution order, with the schedule and the number of blocks."""

    work: WorkList
    schedule: Schedule
    blocks: int


def assign_hardware(items: WorkList) -> Assigned:
    """Return a work list with one block per item, which the hardware starts in order: slices that write
    partial sums come before the slices that add them (owners).
    """
    work = take_items(items, np.argsort(_rank(items), kind="stable"))
    starts = np.arange(items.tile.size + 1, dtype=np.int32)
    return Assigned(work._replace(block_start=starts), Schedule.HARDWARE, items.tile.size)


def assign_longest_first(items: WorkList, cost: Sizes, blocks: int) -> Assigned:
    """Return a persistent grid with fixed lists: items by descending cost, each to the least loaded block.

    Ties go to the lower block and to the earlier item. Each list begins with the non-owner slices of split
    tiles and ends with the owners, so that the partial sums have the most time to arrive. Blocks are numbered
    by descending load: with overlapping launches, the most loaded blocks start on the SMs that the preceding
    launch frees first.

    Parameters
    ----------
    cost : (items,) time of each item as integers, in SM cycles (`item_cycles`) or any other unit
    blocks : number of blocks of the grid, at least 1
    """
    block_of_item, by_load = longest_first(cost, blocks), np.empty(blocks, np.int32)
    by_load[np.argsort(-block_loads(cost, block_of_item, blocks), kind="stable")] = np.arange(blocks)
    block_of_item = by_load[block_of_item]
    # The last key sorts first: by block, then non-owners before owners (no deadlock), then by cost
    order = np.lexsort((-np.asarray(cost, np.int64), _rank(items), block_of_item))
    work = take_items(items, order)
    counts = np.bincount(block_of_item, minlength=blocks)
    return Assigned(work._replace(block_start=_starts(counts)), Schedule.STATIC, blocks)


class ItemCost(NamedTuple):
    """Components of the time of an item, in SM cycles."""

    step: float
    """Cycles of one full k-step on the FMA or tensor pipes, with `slots` resident blocks on the SM."""
    overhead: float
    """Cycles of the epilogue and of the transition to the next item."""
    fix_up: float
    """Cycles to write or to read the partial sums of one split-K slice."""
    slots: int = 1
    """Maximum number of resident blocks per SM; `step` assumes that all of them are resident."""
    fetch: float = 0.0
    """Cycles that the producer warps need to copy one k-step, full or partial."""
    fetch_overhead: float = 0.0
    """Cycles that the producer warps need per item in addition to the copies of its k-steps."""
    fewest_columns: int = 0
    """Least number of columns that an item multiplies, even if it keeps fewer."""
    start: float = 0.0
    """Cycles of a block's prologue. Overlapping launches hide it if the blocks of both launches fit on the
    SMs."""

    def shared_by(self, items: int, blocks: int) -> "ItemCost":
        """Return the costs if `items` items run on `blocks` block slots; k-steps are faster if slots are
        empty.
        """
        there = min(max(items / blocks, 1.0 / self.slots), 1.0)
        return self._replace(step=self.step * there)


def assign_lists(
    items: WorkList, most_blocks: int, block_k: int, cost: ItemCost, *, split: str | int | None
) -> Assigned:
    """Split whole items along K and assign them to fixed lists, longest first.

    Parameters
    ----------
    most_blocks : maximum number of lists; there are at most as many as items
    split : `auto` for the slices of `even_slices`, a number for slices of at most that many k-steps, None for
        no splits
    """
    if split is not None:
        steps = np.maximum(-(-items.k_stop // block_k), 1)
        blocks = max(min(most_blocks, int(steps.sum())), 1)
        cut = even_slices(items, blocks, block_k, cost) if split == "auto" else -(-steps // int(split))
        items = split_items(items, cut, block_k)
    cycles = item_cycles(items, block_k, cost)
    return assign_longest_first(items, cycles, max(min(most_blocks, items.tile.size), 1))


def assign_stream_k(items: WorkList, blocks: int, block_k: int) -> Assigned:
    """Return a persistent grid whose blocks do equal, contiguous shares of all k-steps of whole items.

    An empty item counts as one k-step; loads differ by at most one k-step. The block with the first k-step of
    a tile adds the partial sums of the tile, which it processes last. A block whose share begins inside a
    tile processes that slice first. Source: the stream-K decomposition, Osama et al., PPoPP 2023.
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
    """Return the block of each item, (items,) int32: by descending cost, each to the least loaded block.

    `cost` is (items,) and is compared as integers: a fractional cost would be truncated.
    """
    from prunecast.plan.loops import fill_longest_first  # numba is slow to import

    _check_blocks(blocks)
    costs = np.ascontiguousarray(cost, dtype=np.int64)
    order = np.argsort(-costs, kind="stable")
    block_of_item = np.zeros(costs.size, np.int32)
    fill_longest_first(order, costs, np.zeros(blocks, np.int64), np.arange(blocks), block_of_item)
    return block_of_item


def block_loads(cost: Sizes, block_of_item: IntArray, blocks: int) -> npt.NDArray[np.int64]:
    """Return the sum of the costs of each block's items, (blocks,) int64."""
    return np.bincount(block_of_item, weights=cost, minlength=blocks).astype(np.int64)


def item_cycles(items: WorkList, block_k: int, cost: ItemCost) -> npt.NDArray[np.int64]:
    """Return the SM cycles of each item, (items,) int64.

    The time of a k-slice includes writing its partial sums. The time of an owner, the slice that adds them,
    includes reading the partial sums of all other slices.
    """
    columns = np.maximum(items.k_stop - items.k_start, cost.fewest_columns)
    multiplied = -(-columns // 16) * 16 / block_k * cost.step + cost.overhead
    fetched = -(-columns // block_k) * cost.fetch + cost.fetch_overhead
    fix_ups = np.where(items.owner == 1, items.parts - 1, 1)
    cycles: npt.NDArray[np.float64] = np.maximum(multiplied, fetched) + fix_ups * cost.fix_up
    return np.rint(cycles).astype(np.int64)


def even_slices(items: WorkList, blocks: int, block_k: int, cost: ItemCost) -> Sizes:
    """Return the number of split-K slices of each item, (items,), with the shortest makespan of those tried.

    No slice is shorter than 8 k-steps. Nothing is split if the most loaded block is within 5 k-steps of the
    mean. The candidates split the items that exceed the mean load of a block divided by 1, 2 or 4
    (`HEAVY_SHARES`), split the last wave of the longest-first order into equal slices, or do both. The
    makespan is that of a longest-first assignment. A candidate with more slices is chosen only if it is
    faster by more than one k-step.
    """
    steps = -(-items.k_stop // block_k)
    most = np.maximum(steps // FEWEST_STEPS_PER_PART, 1)
    best = _finish(items, np.ones(steps.size, np.int64), blocks, block_k, cost)
    mean = float(item_cycles(items, block_k, cost.shared_by(steps.size, blocks)).sum()) / blocks
    if best.cycles - mean <= WORTHWHILE_STEPS * cost.step:
        return best.slices
    for slices in _choices(steps, most, mean / cost.step, blocks):
        found = _finish(items, slices, blocks, block_k, cost)
        if found.cycles < best.cycles - cost.step:
            best = found
    return best.slices


def split_items(items: WorkList, slices: Sizes, block_k: int) -> WorkList:
    """Return the items with item i cut along K into `slices[i]` slices of nearly equal numbers of k-steps.
    Slice 0 is the owner, which adds the partial sums.

    Raises
    ------
    BadInput : an item would be cut into more slices than it has k-steps
    """
    steps = -(-items.k_stop // block_k)
    if np.any(slices < 1) or np.any(slices > np.maximum(steps, 1)):
        raise BadInput("slices of an item must lie between 1 and its number of k-steps")
    if not np.any(slices > 1):
        return items
    source = np.repeat(np.arange(slices.size), slices)
    part = np.arange(source.size) - (np.cumsum(slices) - slices)[source]
    # Integer division makes slices whose lengths differ by at most one k-step
    begin, end = (part * steps[source] // slices[source], (part + 1) * steps[source] // slices[source])
    return cut_items(items, source, begin, end, block_k)


def cut_items(items: WorkList, source: Sizes, step_begin: Sizes, step_end: Sizes, block_k: int) -> WorkList:
    """Return slices of unsplit items; slice j has k-steps step_begin[j] to step_end[j] of item source[j].

    The slices must be in the order of items, and of k-steps within an item.
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
    """Return the items at `index`, in that order, as one list."""
    columns = (column[index] for column in items[1:])
    return WorkList(np.array([0, index.size], np.int32), *columns)


class _Split(NamedTuple):
    """Split-K slices of every item, and the makespan that they give."""

    slices: Sizes
    """(items,) number of slices of each item."""
    cycles: float
    """SM cycles from the start of the launch until the most loaded block ends."""


def _choices(steps: Sizes, most: Sizes, mean_steps: float, blocks: int) -> list[Sizes]:
    """Return the distinct candidates for `even_slices`, by ascending total number of slices.

    Each candidate is (items,), the number of slices of each item. Unsplit items are no candidate.

    Parameters
    ----------
    steps, most : (items,) k-steps of each item, and the most slices into which it may be cut
    mean_steps : mean load of a block in k-steps
    """
    heavy = [np.minimum(-(-steps // max(int(mean_steps / share), 1)), most) for share in HEAVY_SHARES]
    unsplit = np.ones(steps.size, np.int64)
    bases = [unsplit, *(np.maximum(slices, 1) for slices in heavy)]
    # Items that the longest-first order leaves for a partly filled last wave (wave quantization)
    last_wave = np.argsort(-steps, kind="stable")[steps.size // blocks * blocks :]
    choices = list(bases[1:])
    for base in bases:
        for count in TAIL_SLICES:
            slices = base.copy()
            slices[last_wave] = np.minimum(np.maximum(base[last_wave], count), most[last_wave])
            choices.append(slices)
    distinct = {slices.tobytes(): slices for slices in choices}
    distinct.pop(unsplit.tobytes(), None)
    return sorted(distinct.values(), key=lambda slices: int(slices.sum()))


def _finish(items: WorkList, slices: Sizes, blocks: int, block_k: int, cost: ItemCost) -> _Split:
    """Return `slices` with their makespan: the end of the most loaded block, or of an owner that waits for
    partial sums, whichever is later.
    """
    parts = split_items(items, slices, block_k)
    cycles = item_cycles(parts, block_k, cost.shared_by(parts.tile.size, blocks))
    # Blocks of two launches fit on the SMs, so that overlap hides the prologue, up to half of the slots
    start = cost.start if 2 * parts.tile.size > blocks else 0.0
    # An owner ends no earlier than the longest of its other slices, whose sums it then reads
    handed_over = np.where(parts.owner == 0, cycles + (parts.parts - 1) * cost.fix_up, 0)
    loads = block_loads(cycles, longest_first(cycles, blocks), blocks)
    return _Split(slices, float(max(loads.max(initial=0), handed_over.max(initial=0))) + start)


def _rank(items: WorkList) -> IntArray:
    """Return the rank of each item in a list: 0 for slices that write partial sums, 1 for unsplit items, 2
    for owners (slices that add partial sums).
    """
    return np.where(items.owner == 0, 0, np.where(items.parts > 1, 2, 1)).astype(np.int32)


def _starts(counts: Sizes) -> IntArray:
    """Return `WorkList.block_start`, (blocks + 1,), from the number of items of each block."""
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def _check_blocks(blocks: int) -> None:
    if blocks < 1:
        raise BadInput(f"a persistent grid needs at least 1 block, got {blocks}")
