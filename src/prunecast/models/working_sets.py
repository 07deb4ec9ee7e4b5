"""Fractions of an item's data that L2 contains when the item reads them, from working sets over time.

Time is counted in kept columns that a block has passed, the same for all blocks. `resident_blocks` blocks run
at any time; when one of them ends, the next one starts in its place. An item finds data in L2 if another item
has read them so recently that L2 has not received as many bytes of different data since then as it holds:
the working set of this time (Denning and Schwartz, Properties of the working-set model, CACM 15, 1972) is at
most L2. Working sets change during a launch, since blocks begin in step and drift apart.
"""

import numpy as np
import numpy.typing as npt

from prunecast.models.loops import run_down
from prunecast.models.reuse_loops import (
    NEVER_ABSENT,
    Pace,
    RowsOfItems,
    SampledReads,
    Unread,
    count_before,
    find_kept_times,
    unread_shares,
)
from prunecast.models.terms import FloatArray
from prunecast.plan.kernel_plan import KernelPlan

MOST_SAMPLED, LEAST_SAMPLED, SAMPLED_PER_ITEM = 2048, 512, 16
"""Number of sampled reads of a launch (`SampledReads`): the most, the least if it has many items, and the
number per item if it has few. Kind: choice, for speed."""
COMPARISONS = 2**22
"""Most comparisons of sampled reads with the items of one token range. Launches with more get fewer sampled
reads, but not fewer than `LEAST_SAMPLED`. Kind: choice, for speed."""
GOLDEN = (5.0**0.5 - 1.0) / 2.0
"""Golden ratio, whose multiples are evenly distributed modulo 1. Kind: definition, x^2 + x = 1."""
WINDOWS, FIRST_WINDOW = 64, 8.0
"""Number of windows in which reads are compared, and the first of them in kept columns. Kind: choice, for
speed."""
PHASES, STARTS = 16, 8
"""Number of phases into which a launch is divided, each with equally many sampled reads, and number of times
in each phase over which its working set is averaged. Kind: choice, for speed."""
SHORTEST = 1e-3
"""Least time, in kept columns, between `begin` and `end` of a sampled read, so that its bytes per unit of
time are finite. Kind: choice, above rounding."""
PARTS = 64
"""Number of equal parts into which the K columns of A are divided. The columns that a tile keeps are counted
up to the end of each part, and interpolated within a part. Kind: choice, for speed."""

_Int64Array = npt.NDArray[np.int64]


def pace_of_items(
    plan: KernelPlan,
    rows: RowsOfItems,
    alike: _Int64Array,
    a_bytes: FloatArray,
    c_bytes: FloatArray,
    resident_blocks: int,
) -> Pace:
    """Return the pace of all items.

    Parameters
    ----------
    alike : (tiles,) result of `traffic.columns_of_tiles`
    a_bytes, c_bytes : (items,) bytes of weights and of C
    """
    work, tiles = plan.work, plan.tiles
    examples = np.unique(alike, return_index=True)[1]
    kept_before = np.zeros((PARTS + 1, examples.size))
    bounds = np.arange(PARTS + 1) * plan.k / PARTS
    count_before(tiles.column_index, tiles.column_start, examples, bounds, kept_before)
    start, stop = work.k_start.astype(np.float64), work.k_stop.astype(np.float64)
    return Pace(
        begin=start_times(plan, resident_blocks) - start,
        start=start,
        stop=stop,
        columns=alike[work.tile],
        kept_before=kept_before,
        log_absent=np.maximum(np.log1p(-np.minimum(rows.density, 1.0 - 1e-16)), NEVER_ABSENT),
        read_bytes=np.stack((a_bytes, rows.size * rows.density * (rows.stop - rows.start) / rows.segments)),
        stored_bytes=c_bytes,
    )


def start_times(plan: KernelPlan, resident_blocks: int) -> FloatArray:
    """Return the time at which each item starts, (items,), in kept columns that a block has passed.

    `resident_blocks` blocks start at time 0. When one of them ends, the next block starts in its place. The
    items of a block's list follow each other.
    """
    work, blocks = plan.work, plan.work.block_start
    before = np.concatenate(([0.0], np.cumsum(work.k_stop - work.k_start, dtype=np.float64)))
    lasting, slots = np.diff(before[blocks]), max(min(resident_blocks, plan.blocks), 1)
    slot = np.arange(lasting.size)
    places, end = np.where(slot < slots, slot, -1), np.zeros(lasting.size)
    run_down(lasting, np.zeros_like(lasting), places, np.zeros(3), np.zeros((slots, 1)), slot, end)
    return np.asarray(before[:-1] + np.repeat(end - before[blocks[1:]], np.diff(blocks)), np.float64)


def find_unread(plan: KernelPlan, pace: Pace, capacity: float, once: FloatArray) -> Unread:
    """Return the fractions of each item's data that are not in an L2 of `capacity` bytes.

    A sample of the reads of the launch is compared with all items that can have read the same data before.

    Parameters
    ----------
    once : (2,) bytes of weights and of rows of B if DRAM reads each once, which first reads are together
    """
    reads = sample_reads(plan, pace)
    lasting = float((pace.begin + pace.stop).max() - (pace.begin + pace.start).min())
    windows = np.geomspace(FIRST_WINDOW, max(lasting, 2.0 * FIRST_WINDOW), WINDOWS, dtype=np.float64)
    unread = np.zeros((2, reads.item.size, WINDOWS))
    for of_kind, own in zip(unread, (plan.work.tile, plan.work.token_start), strict=True):
        key = np.unique(own, return_inverse=True)[1].astype(np.int64)
        bounds = np.concatenate(([0], np.cumsum(np.bincount(key))))
        unread_shares(pace, reads, np.lexsort((pace.columns, key)), bounds, key, windows, of_kind)
    kept = _kept_before_reads(pace, reads, unread, capacity, windows)
    place = np.interp(np.log(np.maximum(kept, FIRST_WINDOW)), np.log(windows), np.arange(WINDOWS))
    low, every = np.minimum(place.astype(np.int64), WINDOWS - 2), np.arange(place.size)
    shares = unread[:, every, low]
    shares += (place - low) * (unread[:, every, low + 1] - shares)
    means = _means_of_items(pace, np.vstack((shares, unread[:, :, -1])))
    found, first = means[:2], means[2:]
    more = once / np.maximum((pace.read_bytes * first).sum(axis=1), 1e-9) - 1.0
    return Unread(*np.clip(found + more[:, None] * first, 0.0, 1.0))


def sample_reads(plan: KernelPlan, pace: Pace) -> SampledReads:
    """Return reads at equal distances in bytes, of all items in the order of their numbers.

    The bytes of a launch are divided into equal steps, and each read stands for the bytes of its step. Reads
    are not at equal places in their steps, so that samples of items in which tiles alternate contain all
    tiles.
    """
    tiles, before = plan.tiles, _bytes_before(pace)
    items_of_range = plan.item_count / np.unique(plan.work.token_start).size
    most = min(max(int(COMPARISONS / items_of_range), LEAST_SAMPLED), MOST_SAMPLED)
    count = min(SAMPLED_PER_ITEM * plan.item_count, most)
    number, step = np.arange(count), before[-1] / count
    at = (number + (number * GOLDEN + 0.5) % 1.0) * step
    item = np.searchsorted(before[1:-1], at, side="right").astype(np.int64)
    size = np.maximum(np.diff(before), 1e-9)[item]
    # Parts of the item's bytes before the read, and before both ends of the step
    parts = np.clip((np.stack((at, number * step, (number + 1) * step)) - before[item]) / size, 0.0, 1.0)
    passed, begin, end = pace.start[item] + parts * (pace.stop - pace.start)[item]
    passed = np.minimum(np.floor(passed), np.maximum(pace.stop[item] - 1.0, 0.0))
    column = tiles.column_start[plan.work.tile[item]] + passed.astype(np.int64)
    return SampledReads(
        item=item,
        passed=passed,
        place=tiles.column_index[np.minimum(column, tiles.column_index.size - 1)] * (PARTS / plan.k),
        begin=pace.begin[item] + begin,
        end=pace.begin[item] + np.maximum(end, begin + SHORTEST),
        read_bytes=step / size * pace.read_bytes[:, item],
    )


def _bytes_before(pace: Pace) -> FloatArray:
    """Return the cumulative bytes that items read, (items + 1,): entry i is the sum of items 0 to i - 1."""
    return np.concatenate(([0.0], np.cumsum(pace.read_bytes.sum(axis=0))))


def _means_of_items(pace: Pace, of_reads: FloatArray) -> FloatArray:
    """Return means over the bytes of each item, (rows, items), of values of sampled reads, (rows, reads)."""
    before = _bytes_before(pace)
    ends = np.linspace(0.0, before[-1], of_reads.shape[1] + 1)
    sums = np.cumsum(np.column_stack((np.zeros(of_reads.shape[0]), of_reads * ends[1])), axis=1)
    at_items = np.stack([np.interp(before, ends, row) for row in sums])
    return np.asarray(np.diff(at_items, axis=1) / np.maximum(np.diff(before), 1e-9))


def _kept_before_reads(
    pace: Pace, reads: SampledReads, unread: FloatArray, capacity: float, windows: FloatArray
) -> FloatArray:
    """Return how long before each sampled read the oldest data that L2 still contains were used, (reads,).

    If data that are used at the time t are kept for k(t), L2 contains at the time t + k(t) the data that were
    used since t. k is computed for the phases of a launch and interpolated between their middles.
    """
    now = pace.begin[reads.item] + reads.passed
    starts = np.quantile(now, np.arange(PHASES * STARTS) / (PHASES * STARTS)).reshape(PHASES, STARTS)
    new = np.einsum("kr,krw->rw", reads.read_bytes, unread)
    # Mean of both windows; nothing has been read again in a window of no time
    received = (np.column_stack((reads.read_bytes.sum(axis=0), new[:, :-1])) + new) / 2.0
    received /= (reads.end - reads.begin)[:, None]
    kept = np.zeros(PHASES)
    find_kept_times(reads, received, starts, stored_since(pace, starts, windows), capacity, windows, kept)
    used = np.concatenate((starts[:1, 0], starts.mean(axis=1), starts[-1:, -1]))
    evicted = np.maximum.accumulate(used + np.concatenate((kept[:1], kept, kept[-1:])))
    known = np.isfinite(evicted)
    if not known.any():
        return np.full(now.size, np.inf)
    since = np.interp(now, evicted[known], used[known])
    return np.asarray(np.where(now < evicted[0], np.inf, now - since))


def stored_since(pace: Pace, starts: FloatArray, windows: FloatArray) -> FloatArray:
    """Return the bytes of C that are written within each window after the starts of a phase, their mean.

    An item writes C when it ends.

    Parameters
    ----------
    starts : (phases, starts), times
    windows : (windows,); the result is (phases, windows)
    """
    ends = pace.begin + pace.stop
    order = np.argsort(ends, kind="stable")
    until = np.concatenate(([0.0], np.cumsum(pace.stored_bytes[order])))
    first = np.searchsorted(ends[order], starts, side="right")
    last = np.searchsorted(ends[order], starts[:, :, None] + windows, side="right")
    return np.asarray((until[last] - until[first][:, :, None]).mean(axis=1))
