"""Fractions of an item's data that L2 contains when the item reads them, from working sets over time.

Time is counted in kept columns that a block has passed, the same for all blocks. `resident_blocks` blocks run
at any time; when one of them ends, the next one starts in its place. An item finds data in L2 if another item
has read them at most a window before, in which the launch brings as many bytes into L2 as L2 holds (Denning
and Schwartz, Properties of the working-set model, CACM 15, 1972).
"""

import numpy as np
import numpy.typing as npt

from prunecast.models.amount_loops import NEVER_ABSENT, Pace, RowsOfItems, Unread, unread_shares
from prunecast.models.loops import run_down
from prunecast.models.terms import FloatArray
from prunecast.plan.kernel_plan import KernelPlan

SAMPLED, COMPARED = 256, 8
"""Items of a launch, and columns of each, whose reads are compared with those of other items. Kind: choice,
for speed: with 64 items the bytes of 144 layers are 2.3 instead of 1.6 % from those of an LRU cache."""
GOLDEN = (5.0**0.5 - 1.0) / 2.0
"""Golden ratio, whose multiples are evenly distributed modulo 1. Kind: definition, x^2 + x = 1."""
WINDOWS, FIRST_WINDOW = 24, 8.0
"""Number of windows in which reads are compared, and the first of them in kept columns. Kind: choice, for
speed."""
QUANTILES = 64
"""Reads before which the bytes that L2 receives are counted. Kind: choice, for speed."""

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
    work = plan.work
    start, stop = work.k_start.astype(np.float64), work.k_stop.astype(np.float64)
    return Pace(
        begin=start_times(plan, resident_blocks) - start,
        start=start,
        stop=stop,
        kept=np.maximum(plan.tiles.kept_per_tile, 1)[work.tile].astype(np.float64),
        columns=alike[work.tile],
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


def find_unread(plan: KernelPlan, pace: Pace, capacity: float, *, all_weights: bool, out: Unread) -> None:
    """Compute `Unread` for the items of a launch that reuses data after `capacity` bytes of L2 have passed.

    The bytes that L2 holds for a window are the integral, over all shorter windows, of the bytes per unit of
    time that are read or written, times the fraction of them that is not in L2 yet.

    Parameters
    ----------
    all_weights : True to compute `Unread.weights` for tiles that are not split too
    """
    sample = _sample_of(plan.item_count)
    lasting = float((pace.begin + pace.stop).max() - (pace.begin + pace.start).min())
    windows = np.geomspace(FIRST_WINDOW, max(lasting, 2.0 * FIRST_WINDOW), WINDOWS, dtype=np.float64)
    found = np.zeros((2, sample.size, WINDOWS))
    for of_kind, own in zip(found, (plan.work.tile, plan.work.token_start), strict=True):
        key = np.unique(own, return_inverse=True)[1].astype(np.int64)
        bounds = np.concatenate(([0], np.cumsum(np.bincount(key))))
        in_order = np.lexsort((pace.columns, key))
        unread_shares(pace, sample, in_order, bounds, key, COMPARED, windows, of_kind)
    sampled, stored = pace.read_bytes[:, sample], float(pace.stored_bytes.sum())
    read = float(pace.read_bytes.sum())
    missed = np.einsum("ks,ksw->w", sampled, found) * read / max(float(sampled.sum()), 1.0)
    new = (missed + stored) / max(read + stored, 1.0)
    rises = np.append(new[0] * windows[0], (new[1:] + new[:-1]) / 2.0 * np.diff(windows))
    held = np.maximum.accumulate(np.cumsum(rises) * bytes_per_time(pace, windows))
    place = float(np.interp(capacity, held, np.arange(WINDOWS)))
    low = min(int(place), WINDOWS - 2)
    shares = found[:, :, low] + (place - low) * (found[:, :, low + 1] - found[:, :, low])
    every = np.arange(plan.item_count)
    if all_weights or np.any(plan.work.group >= 0):
        out.weights[:] = np.interp(every, sample, shares[0])
    out.rows[:] = np.interp(every, sample, shares[1])
    out.new_rows[:] = np.interp(every, sample, found[1, :, -1])


def _sample_of(items: int) -> _Int64Array:
    """Return the numbers of up to `SAMPLED` items: all, or one from each of as many equal ranges.

    Positions in ranges are not equal, so that samples of items in which tiles alternate contain all tiles.
    """
    samples = min(items, SAMPLED)
    place = np.arange(samples) + (np.arange(samples) * GOLDEN % 1.0 if items > samples else 0.0)
    return np.unique((place * items / max(samples, 1)).astype(np.int64))


def bytes_per_time(pace: Pace, windows: FloatArray) -> FloatArray:
    """Return the mean bytes per unit of time that items read and write in windows before reads, (windows,).

    The mean is over `QUANTILES` reads at equal distances in bytes, without those before which less time than
    the window has passed since the launch began, which read nothing again after so long a time.
    """
    begin = pace.begin + pace.start
    end = np.maximum(pace.begin + pace.stop, begin + 1.0)
    order = np.argsort(np.concatenate((begin, end)), kind="stable")
    times = np.concatenate((begin, end))[order]
    of_reads = pace.read_bytes.sum(axis=0)
    rates = np.stack((of_reads, of_reads + pace.stored_bytes)) / (end - begin)
    running = np.cumsum(np.concatenate((rates, -rates), axis=1)[:, order], axis=1)[:, :-1]
    reads, moved = np.cumsum(running * np.diff(times), axis=1, dtype=np.float64)
    reads, moved = np.append(0.0, reads), np.append(0.0, moved)
    read = np.interp((np.arange(QUANTILES) + 0.5) / QUANTILES * reads[-1], reads, times)
    first = read - windows[:, None]
    whole = first >= times[0]
    found = ((np.interp(read, times, moved) - np.interp(first, times, moved)) * whole).sum(axis=1)
    count = whole.sum(axis=1)
    return np.asarray(np.where(count > 0, found / np.maximum(count, 1), moved[-1]) / windows, np.float64)


def find_unread_at_random(
    pace: Pace,
    of_wave: _Int64Array,
    wave: _Int64Array,
    b_of_wave: FloatArray,
    capacity: float,
    out: Unread,
) -> None:
    """Compute `Unread.rows` for blocks that are not in step, because their warps wait for no data.

    Items that begin at one column and time share reads. Others find the fraction of the rows of their wave's
    token ranges that L2 holds at any time (Che, Tung and Wang, Hierarchical Web Caching Systems, IEEE JSAC
    20, 2002: equally popular objects in an LRU cache). Weights and C occupy L2 in proportion to their share
    of all accesses.

    Parameters
    ----------
    of_wave, wave : (items,) number of an item's wave and token range, and of its wave
    b_of_wave : (waves,) bytes of all rows of B in the token ranges of a wave
    """
    weights, rows = pace.read_bytes.sum(axis=1)
    others = float(weights + pace.stored_bytes.sum()) / max(float(rows), 1.0)
    kept = np.minimum(capacity / np.maximum(b_of_wave * (1.0 + others), 1.0), 1.0)
    rate = float((pace.read_bytes.sum(axis=0) / np.maximum(pace.stop - pace.start, 1.0)).mean())
    window = max(capacity / max(rate * float(np.bincount(wave).max()), 1.0), 1.0)
    begin = np.rint(pace.begin / window).astype(np.int64)
    group = np.unique(of_wave * (int(np.ptp(begin)) + 1) + begin, return_inverse=True)[1]
    before = np.argsort(np.argsort(group, kind="stable")) - np.searchsorted(np.sort(group), group)
    leads = np.isin(group, group[np.unique(of_wave, return_index=True)[1]])
    out.rows[:] = np.where(leads, 1.0, 1.0 - kept[wave]) * np.exp(before * pace.log_absent)
