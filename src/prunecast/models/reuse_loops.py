"""Jitted loops of `traffic.py` and `working_sets.py`: what L2 keeps between uses, and repeated DRAM reads."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.jit import inner, njit
from prunecast.models.terms import FloatArray

IntArray = npt.NDArray[np.int64]
NEVER_ABSENT = -50.0
"""Takes the place of log 0 = -inf, the logarithm of the fraction of rows that a tile drops, for a tile that
drops none: e^-50 is below the rounding of sums. Kind: choice, rounding."""


class RowsOfItems(NamedTuple):
    """Rows of B that each item reads; the columns of A are divided into segments of equal length."""

    key: IntArray
    """(items,) index of the item's token range, 0 <= key < keys."""
    size: FloatArray
    """(items,) bytes of all rows of B in the token range."""
    start: FloatArray
    """(items,) first of the item's columns, in units of segments: 1.5 is the middle of segment 1."""
    stop: FloatArray
    """(items,) end of the item's columns, in the unit of `start`."""
    density: FloatArray
    """(items,) fraction of the columns of A that the item's tile keeps. In each segment the item reads this
    fraction of the rows of B."""
    segments: int
    """Number of segments."""
    keys: int
    """Number of token ranges."""


class Unread(NamedTuple):
    """Fractions of an item's data that L2 does not contain when the item needs them, each (items,) float64.

    All are -1 if whole waves decide what L2 holds, see `traffic._wave_reads`.
    """

    weights: FloatArray
    """Fraction of the weights."""
    rows: FloatArray
    """Fraction of the rows of B."""


@njit()
def fetch_again(run, a_key, a_bytes, once, b, c_bytes, capacity, unread, a_keys, out):
    """Return the bytes of A and B that DRAM reads again because L2 has evicted them.

    The docstring of `traffic._wave_reads` describes the model. A piece of A is the packed weights of one tile
    or k-slice. Items of the first wave run in lockstep, so that all of them wait for data that one of them
    reads from DRAM. In later waves only the first reader of a piece of A or of a row of B waits.

    Parameters
    ----------
    run : `traffic._RunOrder`: items in execution order, in which their waves ascend, and the wave of each
    a_key : (items,) int64, number of the piece of A that an item reads, 0 <= key < a_keys
    a_bytes : (items,) float64, bytes of that piece
    once : bytes of all pieces if DRAM reads each weight once; pieces can overlap. If `unread` is known, also
        the bytes of all rows of B
    b : `RowsOfItems`
    c_bytes : (items,) float64, bytes of C that the item writes
    capacity : usable bytes of L2
    unread : `Unread`
    a_keys : number of pieces of A
    out : `traffic.WaveReads`. `read_bytes`, all zero, receives the bytes of A and B that DRAM reads in each
        wave, and `waits` the fraction of each item's k-steps that wait for DRAM, 0 to 1
    """
    segments = (b.keys, b.segments)
    a_wave, b_wave = np.full(a_keys, -1, np.int64), np.full(segments, -1, np.int64)
    # Bytes touched before the wave of the last use began. The reuse distance counts from there, since every
    # item of a wave uses its pieces from the begin of the wave to its end.
    a_mark, b_mark = np.zeros(a_keys), np.zeros(segments)
    in_wave, in_cache, ever = np.zeros(segments), np.zeros(segments), np.zeros(segments)
    touched, at_begin, again = 0.0, 0.0, -once
    this_wave = np.int64(-1)
    for i in run.order:
        a, key, w = a_key[i], b.key[i], run.wave[i]
        if w != this_wave:
            this_wave = w
            at_begin = touched
        reads_a = a_wave[a] < 0
        weights = 0.0
        if a_wave[a] != w:
            reads_a |= at_begin - a_mark[a] > capacity
            weights = 1.0 if reads_a else 0.0
            a_wave[a] = w
            a_mark[a] = at_begin
            touched += a_bytes[i]
        if unread.weights[i] >= 0.0:
            weights = unread.weights[i]
        out.read_bytes[w] += weights * a_bytes[i]
        again += weights * a_bytes[i]
        missed, wanted, size = 0.0, 0.0, b.size[i] / b.segments
        for s in range(int(b.start[i]), int(np.ceil(b.stop[i]))):
            if b_wave[key, s] != w:
                if at_begin - b_mark[key, s] > capacity:
                    in_cache[key, s] = 0.0
                b_wave[key, s] = w
                b_mark[key, s] = at_begin
                in_wave[key, s] = 0.0
            covered = min(b.stop[i], s + 1.0) - max(b.start[i], float(s))
            share = covered * b.density[i]
            fetched, first = (1.0 - in_cache[key, s]) * share, (1.0 - ever[key, s]) * share
            ever[key, s] += first
            if unread.rows[i] >= 0.0:
                fetched, first = unread.rows[i] * share, 0.0
            missed += fetched
            wanted += share
            new_in_wave = (1.0 - in_wave[key, s]) * share
            again += (fetched - first) * size
            out.read_bytes[w] += fetched * size
            touched += new_in_wave * size
            in_cache[key, s] += (1.0 - in_cache[key, s]) * share
            in_wave[key, s] += new_in_wave
        touched += c_bytes[i]
        out.waits[i] = 1.0 if w == 0 or reads_a else missed / max(wanted, 1e-9)
    return max(again, 0.0)


class Pace(NamedTuple):
    """When each item of a launch reads which data.

    Time is counted in kept columns: in a unit of time, each running block reads and multiplies the data of
    one column that its tile keeps.
    """

    begin: FloatArray
    """(items,) time at which the item would have passed the first kept column of its tile."""
    start: FloatArray
    """(items,) first kept column of the item, counted in its tile."""
    stop: FloatArray
    """(items,) end of its kept columns."""
    columns: IntArray
    """(items,) number of the set of columns that the item's tile keeps, the same for tiles that keep the same
    columns."""
    kept_before: FloatArray
    """(bounds, numbers) how many columns a tile keeps below each bound, for each number of `columns`. The
    bounds divide the K columns of A into equal parts."""
    log_absent: FloatArray
    """(items,) logarithm of the fraction of the rows that the item's tile drops."""
    read_bytes: FloatArray
    """(2, items) bytes of weights (row 0) and bytes of B (row 1) that the item reads through L2."""
    stored_bytes: FloatArray
    """(items,) bytes of C that the item writes."""


class SampledReads(NamedTuple):
    """A sample of what the items of a launch read: weights and rows of B.

    The bytes of all items, one item after another, are divided into equal steps. One read is sampled from
    each step and represents it. Times are counted in kept columns (`working_sets`).
    """

    item: IntArray
    """(reads,) number of the item that makes the read."""
    passed: FloatArray
    """(reads,) place of the read column among the kept columns of the item's tile, from 0."""
    place: FloatArray
    """(reads,) the same column among all K columns of A, in units of the distance between two bounds of
    `Pace.kept_before`."""
    begin: FloatArray
    """(reads,) time at which the item begins to read the bytes of the step, in the unit of time of `Pace`."""
    end: FloatArray
    """(reads,) time at which the item has read the bytes of the step, in the same unit."""
    read_bytes: FloatArray
    """(2, reads) bytes of weights, and bytes of rows of B, in the step."""


@njit()
def count_before(columns, starts, tiles, bounds, out):
    """Count the columns of each of `tiles` that are below each bound, (bounds, tiles).

    Parameters
    ----------
    columns, starts : `TileMap.column_index` and `column_start`
    tiles : (tiles,) int64
    bounds : (bounds,) float64, ascending
    out : (bounds, tiles) float64; receives the counts
    """
    for n, tile in enumerate(tiles):
        out[:, n] = np.searchsorted(columns[starts[tile] : starts[tile + 1]], bounds)


@inner()
def _window_of(gap, windows):
    """Return the index of the first entry of `windows` (ascending lengths of time) that is at least `gap`, or
    the number of entries if none is.
    """
    first, after = 0, windows.size
    while first < after:
        middle = (first + after) // 2
        if windows[middle] < gap:
            first = middle + 1
        else:
            after = middle
    return first


@njit()
def unread_shares(pace, reads, order, bounds, key, windows, out):
    """Compute the probability that nothing has read the same data within a window of time before a read.

    Two items pass a row of B at times that differ by the distance of the kept columns that they have passed.
    If this is at most the window, the later one finds the row in L2, if the tile of the earlier one keeps it.
    Tiles keep rows independently, unless they have the same columns: of these the last one counts.

    Parameters
    ----------
    pace : `Pace`
    reads : `SampledReads`
    order, bounds : items sorted by key and columns, and the first of each key in this order
    key : (items,) int64, number of the token range (for rows of B) or of the tile (for weights). Only items
        with the same key read the same data
    windows : (windows,) float64, ascending by equal ratios
    out : (reads, windows) float64, all zero; receives the probabilities
    """
    logs = np.zeros(windows.size + 1)
    # The innermost loop compares an item with all items of its key: read their fields in sequence
    begin, start, stop = pace.begin[order], pace.start[order], pace.stop[order]
    columns, log_absences = pace.columns[order], pace.log_absent[order]
    whole = pace.kept_before[-1]
    for n, i in enumerate(reads.item):
        own, inside = pace.columns[i], reads.place[n] % 1.0
        below, above = pace.kept_before[int(reads.place[n])], pace.kept_before[int(reads.place[n]) + 1]
        now = pace.begin[i] + reads.passed[n]
        logs[:] = 0.0
        nearest, group, log_absent, there = np.inf, np.int64(-1), 0.0, 0.0
        for q in range(bounds[key[i]], bounds[key[i] + 1]):
            if begin[q] + start[q] > now:
                continue
            if columns[q] != group:
                if nearest < np.inf:
                    logs[_window_of(nearest, windows)] += log_absent
                nearest, group = np.inf, columns[q]
                # Kept columns that tiles of this group have passed when they read the same column of A
                there = below[group] + inside * (above[group] - below[group])
                log_absent = log_absences[q]
                if group == own:
                    there, log_absent = reads.passed[n], NEVER_ABSENT
            # In this order, because items that are in step must be at the same column in spite of rounding
            j, gap = order[q], (pace.begin[i] - begin[q]) + (reads.passed[n] - there)
            later = gap < 0.0 or (gap == 0.0 and j > i)
            # A tile counts as passing columns beyond its last one, since its density is that of all columns
            passes = start[q] <= there and (there < stop[q] or stop[q] >= whole[group])
            if i != j and not later and passes:
                nearest = min(nearest, gap)
        if nearest < np.inf:
            logs[_window_of(nearest, windows)] += log_absent
        _add_unread(logs, 1.0, out[n])


@inner()
def _add_unread(logs, weight, out):
    """Add `weight` times the fraction of unread data of each window to `out`, (windows,).

    `logs` are logarithms of the fractions that items passed in each window leave unread.
    """
    absent, share = 0.0, 1.0
    for g in range(out.size):
        if logs[g] != 0.0:  # exp is slow, and most windows contain no further item
            absent += logs[g]
            share = np.exp(absent)
        out[g] += weight * share


@njit()
def find_kept_times(reads, received, starts, stored, capacity, windows, out):
    """Compute for how long L2 keeps data after their use, in each phase of a launch; infinite to the end.

    L2 evicts data when it has received `capacity` bytes of different data since their use. A read brings
    data that have not been received yet if nothing has read them since then.

    Parameters
    ----------
    reads : `SampledReads`
    received : (reads, windows) float64, bytes per unit of time that a read brings if it comes between a
        window and the next shorter one after the use
    starts : (phases, starts) float64, times of uses in each phase
    stored : (phases, windows) float64, bytes of C that are written within each window after these times, mean
        of a phase
    capacity : usable bytes of L2
    windows : as in `unread_shares`
    out : (phases,) float64; receives the times
    """
    between = np.zeros(windows.size)  # bytes of different data that L2 receives between two windows
    for phase in range(starts.shape[0]):
        between[:] = 0.0
        for start in starts[phase]:
            for n in range(reads.item.size):
                passed, far = max(reads.begin[n] - start, 0.0), min(reads.end[n] - start, windows[-1])
                if far <= passed:
                    continue
                w = _window_of(passed, windows)
                while windows[w] < far:
                    between[w] += received[n, w] * (windows[w] - passed)
                    passed = windows[w]
                    w += 1
                between[w] += received[n, w] * (far - passed)
        held, read, low, out[phase] = 0.0, 0.0, 0.0, np.inf
        for w, window in enumerate(windows):
            read += between[w] / starts.shape[1]
            if read + stored[phase, w] >= capacity:
                out[phase] = low + (window - low) * (capacity - held) / (read + stored[phase, w] - held)
                break
            held, low = read + stored[phase, w], window


@njit()
def reads_by_part(b, items, lasting, parts, points):
    """Return the bytes of B that DRAM reads in each part of a wave whose items begin together, (parts,).

    Points at equal distances stand for the columns of A. An item reads the fraction `density` of the rows at
    a point when it passes the point, except rows that other items of its token range have read before.

    Parameters
    ----------
    b : `RowsOfItems`
    items : (items,) int64, items of the wave
    lasting : (items,) float64, k-steps of each of them divided by those of the longest one
    parts : number of parts, each with equally many k-steps of the longest item
    points : points per segment of columns
    """
    unread, size = np.ones((b.keys, b.segments * points, parts + 1)), np.zeros(b.keys)
    for n, i in enumerate(items):
        size[b.key[i]] = b.size[i]
        start, stop = points * b.start[i], points * b.stop[i]
        # Parts that pass while the item goes from one point to the next
        passing = lasting[n] * parts / max(stop - start, 1e-9)
        for s in range(int(np.ceil(start - 0.5)), int(np.ceil(stop - 0.5))):
            for part in range(parts + 1):
                passed = min(max(part / passing - (s - start), 0.0), 1.0)
                unread[b.key[i], s, part] *= 1.0 - passed * b.density[i]
    read = (unread[:, :, :-1] - unread[:, :, 1:]).sum(axis=1)
    return size @ read / unread.shape[1]
