"""Jitted loops of `tile_lengths.py`; plain arrays and numbers.

The meaning of each is where the whole model has it: lengths and costs of items in `item_costs.py`, the ends
of SMs and their stores in `balance.py`, clock and cycles in `roofline.py`, also the twin in the tests.
`incremental_arrays.py` says what they are handed. Fields of `Now` and arrays named `out_*` are changed.
"""

# Bodies of jitted functions are judged by Numba.

import math

import numpy as np
from numba import njit

from prunecast.kernels.launches.power_draw import OUT_OF_STEP

__all__ = [
    "A_BYTES",
    "CYCLES",
    "DEMAND",
    "EDGE",
    "FETCH",
    "FETCH_LAST",
    "FIELDS",
    "LAST",
    "MULTIPLY",
    "STEPS",
    "TOTALS",
    "WAIT",
    "add_up",
    "set_all",
    "set_some",
    "settled_seconds",
]

# Columns of `Lists.cost`: rows of `Now.cycles` but for the last of them, `wait`, then columns of `Now.totals`
FETCH, FETCH_LAST, MULTIPLY, LAST, EDGE, DEMAND, STEPS, A_BYTES, TOTALS = 0, 1, 2, 3, 4, 5, 6, 7, 8
FIELDS, WAIT, CYCLES = TOTALS + 6, 6, 7


@njit(cache=True)
def _cut(place, kept_before, kept, unit):
    """Where a cut goes that lay at `place`: in proportion, to the nearest multiple of `unit`."""
    if place == 0 or kept == 0:
        return 0
    return min((2 * place * kept + kept_before * unit) // (2 * kept_before * unit) * unit, kept)


@njit(cache=True)
def _set_tile(tile, kept, lists, now):
    """Give the items of a tile their share of `kept` columns."""
    before, piece, last = lists.kept[tile], 0, -1
    now.kept[tile] = kept
    now.totals[tile, :] = 0.0
    for place in range(lists.part_start[tile], lists.part_start[tile + 1]):
        i, start, stop, kind = lists.part[place]
        start = _cut(start, before, kept, lists.cut_unit)
        stop = kept if stop == before else _cut(stop, before, kept, lists.cut_unit)
        if start != last:
            piece, last = place, start
        cost = lists.cost[kind, stop - start]
        now.columns[i] = stop - start
        now.piece[i] = piece
        for field in range(WAIT):
            now.cycles[field, i] = cost[field]
        now.cycles[WAIT, i] = lists.wait[i] if cost[STEPS] > 0.0 else 0.0
        for field in range(TOTALS, FIELDS):
            now.totals[tile, field - TOTALS] += cost[field]


@njit(cache=True)
def set_some(tiles, kept, lists, now):
    """Let some tiles (some,) int64 all keep `kept` columns."""
    for tile in tiles:
        _set_tile(tile, kept, lists, now)


@njit(cache=True)
def set_all(kept, lists, now):
    """Let each tile keep so many columns (tiles,) int64."""
    for tile in range(kept.size):
        if kept[tile] != now.kept[tile]:
            _set_tile(tile, kept[tile], lists, now)


@njit(cache=True)
def add_up(kept, totals, k, first, out_total):
    """`first` and the sums over all tiles (fields,), of `Now.kept` and `Now.totals`; returns the most columns
    that a tile keeps, and the share of all that is read in step (`kernels.power_draw.gathered_draw`).
    """
    out_total[:] = first
    most, columns, in_step = np.int64(0), 0.0, 0.0
    for tile in range(kept.size):
        most = max(most, kept[tile])
        columns += kept[tile]
        in_step += kept[tile] * (kept[tile] / k) ** OUT_OF_STEP
        for field in range(out_total.size):
            out_total[field] += totals[tile, field]
    return most, in_step / max(columns, 1.0)


@njit(cache=True)
def _clock(activity, points):
    """Value at `activity` of the line through the points: flat before the first, going on past the last."""
    xs, ys = points.activity, points.clock_hz
    if activity <= xs[0]:
        return ys[0]
    right = 1
    while right < xs.size - 1 and xs[right] <= activity:
        right += 1
    slope = (ys[right] - ys[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right - 1] + slope * (activity - xs[right - 1])


@njit(cache=True)
def _shares(ends, quiet_cycles, out_lasting, out_share):
    """The time between ends of SMs, which rise, as `balance.sm_ends` has it; returns what is quiet."""
    quiet, spent = min(quiet_cycles, ends[ends.size - 1]), 0.0
    for end in ends:
        spent += end
    before, quiet_before = 0.0, quiet
    for place in range(ends.size):
        end = ends[place]
        out_share[place] = (end - before) * (ends.size - place) / spent if spent > 0.0 else 0.0
        out_lasting[place] = max(end, quiet) - quiet_before
        before, quiet_before = end, max(end, quiet)
    return quiet


@njit(cache=True)
def _stretched(lasting, share, quiet, most):
    cycles = 0.0
    for i in range(lasting.size):
        cycles += max(lasting[i], most * share[i])
    return max(quiet + cycles, most)


@njit(cache=True)
def _head_start(by_sm, rising, before_b, ends_apart):
    """As `launch_floor.head_start_cycles`, of the ends of all SMs by SM and in order."""
    last = rising[rising.size - 1]
    latest = 0.0
    for place in range(by_sm.size):
        early = min(last - rising[place] + ends_apart, before_b) if by_sm[place] > 0.0 else 0.0
        latest = max(latest, by_sm[place] - early)
    return last - latest


@njit(cache=True)
def _last_of(rising, scale):
    """As `late_blocks`, of the ends of all SMs in order."""
    if scale <= 0.0:
        return 0.0
    last, alike = rising[rising.size - 1], 0.0
    for end in rising:
        if end > 0.0:
            alike += math.exp((end - last) / scale)
    return scale * math.log(alike)


@njit(cache=True)
def _spared(rising, scale):
    """As `slow_sms.spared_cycles`, of the ends of all SMs in order."""
    working = (rising > 0.0).sum()
    return scale * math.log(working) - _last_of(rising, scale) if scale > 0.0 and working else 0.0


@njit(cache=True)
def _late(rising, chip):
    """As `late_blocks.late_cycles`, of the ends of all SMs in order."""
    own = max(rising[rising.size - 1] - chip.late_start, 0.0)
    scale = min(chip.late_share * own, chip.late_most)
    if scale <= 0.0:
        return 0.0
    return max(_last_of(rising, scale) - _last_of(rising, chip.late_counted), 0.0)


@njit(cache=True)
def _put_in_order(values, out_rising):
    """Sort values, none below 0, each to its place: nothing has to be foreseen. 132 take 1.7 us, not 4.7.

    Values that differ by less than 1e-13 may change places.
    """
    places = 1
    while places < values.size:
        places *= 2
    key, bits = np.empty(values.size, np.int64), values.view(np.int64)
    for i in range(values.size):
        key[i] = (bits[i] & -np.int64(places)) | i
    for i in range(values.size):
        own, place = key[i], 0
        for other in key:
            place += np.int64(other < own)
        out_rising[place] = values[i]


@njit(cache=True)
def settled_seconds(slot_finish, sm_of_unit, quiet, launch, chips, points, rounds):
    """Seconds of the cycles that the ends of all slots (SMs, slots) make, clock and cycles found together.

    sm_of_unit, quiet : (units,), as in `waves.Placement` and `costs.UnitCosts`
    chips : (1,) of `CHIP`
    """
    chip = chips[0]
    sms, slots = slot_finish.shape
    found = np.zeros((4, sms))
    by_sm, fetched_by_sm, finish, fetched = found[0], found[1], found[2], found[3]
    for unit in range(sm_of_unit.size):
        fetched_by_sm[sm_of_unit[unit]] = quiet[unit]
    for sm in range(sms):
        for slot in range(slots):
            by_sm[sm] = max(by_sm[sm], slot_finish[sm, slot])
        fetched_by_sm[sm] = max(by_sm[sm] - fetched_by_sm[sm], 0.0)
    _put_in_order(by_sm, finish)
    _put_in_order(fetched_by_sm, fetched)
    behind = finish[sms - 1] - fetched[sms - 1] + chip.store_drain
    head_start = _head_start(by_sm, finish, chip.before_b, chip.ends_apart)
    head_start += _spared(finish, chip.spared_scale)
    behind -= head_start
    late = _late(finish, chip)
    lasting, share = np.zeros((2, sms)), np.zeros((2, sms))
    quiet_fetching = _shares(fetched, chip.quiet_cycles, lasting[0], share[0])
    quiet_working = _shares(finish, chip.quiet_cycles, lasting[1], share[1])
    requests_s = (launch.l2_bytes - launch.stored_bytes) / chip.l2_bytes_per_s
    l2_reads_s = requests_s / chip.requests_over_reads
    l2_stores_s = launch.stored_bytes / chip.l2_store_bytes_per_s
    merging_s = chip.c_line_cost * launch.c_bytes / chip.l2_store_bytes_per_s
    reads_s = (launch.dram_bytes - launch.written_bytes) / chip.dram_bytes_per_s
    writes_s, earlier = launch.written_bytes / chip.dram_write_bytes_per_s, chip.earlier_share
    read_share = 1.0 - launch.written_bytes / launch.dram_bytes if launch.dram_bytes > 0.0 else 0.0
    written, in_step_s = max(earlier, read_share), reads_s + read_share * writes_s
    between = chip.later_rounds * (quiet.mean() + chip.until_b) if quiet.size else 0.0
    l2_s = max(l2_reads_s + earlier * l2_stores_s, earlier * merging_s)
    before_last_s = max(l2_s, reads_s + written * writes_s)
    all_s = max(l2_reads_s + l2_stores_s, merging_s, reads_s + writes_s)
    asked_s = max(requests_s + l2_stores_s, merging_s)
    clock_hz, cycles = chip.max_clock_hz, 1.0
    working = (finish > 0.0).sum()
    busy = finish.sum() / working / finish[sms - 1] if working else 1.0
    work = chip.tensor_activity * launch.tensor_cycles
    work += chip.activity_per_l2_byte * launch.l2_draw * launch.l2_bytes
    work += chip.activity_per_dram_byte * launch.dram_bytes
    for step in range(rounds + 1):
        if step > 0 and launch.tensor_cycles > 0.0:
            period_s = cycles / clock_hz + chip.launch_s
            followed = 1.0 - (1.0 - busy) * (1.0 - math.exp(-period_s / chip.follow_s))
            activity = work / (period_s * clock_hz * chip.sm_count)
            clock_hz = followed * _clock(activity / followed, points) + (1.0 - followed) * points.clock_hz[0]
        last_fetch = _stretched(lasting[0], share[0], quiet_fetching, clock_hz * before_last_s)
        last_fetch = max(last_fetch, quiet_fetching + clock_hz * (requests_s + earlier * l2_stores_s))
        if between > 0.0:
            last_fetch = max(last_fetch, quiet_fetching + between + clock_hz * in_step_s)
        all_traffic = _stretched(lasting[1], share[1], quiet_working, clock_hz * all_s)
        all_traffic = max(all_traffic, quiet_working + clock_hz * asked_s) - head_start
        steps_end = last_fetch + behind + clock_hz * launch.first_weights_s
        cycles = max(steps_end, all_traffic, clock_hz * max(all_s, asked_s), 1.0) + late
    return cycles / clock_hz
