"""Jitted loops of the performance models, on plain arrays and numbers.

`waves.py`, `chip.py` and `bounds.py` call these functions and define their quantities. The functions write
their results to arrays named `out_*`.
"""

from typing import Any, NamedTuple

import numpy as np

from prunecast.jit import inner, njit

NEVER = np.int64(0x7FF0000000000000)
"""Bit pattern of an infinite float64, the key of an SM without a time. Kind: definition, IEEE 754."""
TIE_BITS = np.int64(22)
"""Lowest bits of a float64 time in which equal times may differ: 2^22 of 2^52, a relative difference of 1e-9.
They contain the rank and the number of an SM. Kind: choice, above all rounding errors."""

SHORTEST_CYCLES = 1e-6
"""Intervals between the ends of SMs up to this length do not count. Kind: choice, rounding."""


@inner()
def _key(ends, sm, leaves):
    """Return an int64 key that orders SMs by their end times, with the lower SM first if ends are equal.

    The key is the bits of the end (float64, at least 0), rounded to a multiple of 2^`TIE_BITS`. Ends with the
    same rounded bits count as equal. If bits were cut off instead, a whole number of cycles would differ from
    a value that a rounding error puts just below it. The lowest bits are rank * `leaves` + SM. The rank is
    the SM too; `run_down` raises it.
    """
    half = np.int64(1) << (TIE_BITS - 1)
    return ((ends.view(np.int64)[sm] + half) & -(2 * half)) | (sm * leaves + sm)


@inner()
def _new_queue(ends):
    """Return a winner tree over SMs: the second half contains the leaves, and entry 1 is the lowest key."""
    leaves = 1
    while leaves < ends.size:
        leaves *= 2
    key = np.full(2 * leaves, NEVER)
    for sm in range(ends.size):
        key[leaves + sm] = _key(ends, sm, leaves)
    for node in range(leaves - 1, 0, -1):
        key[node] = min(key[2 * node], key[2 * node + 1])
    return key


@inner()
def _requeue(key, sm, new_key):
    """Change the key of an SM and update the winner tree.

    Each level reads only the sibling's key, not both keys of the level below: 380 calls need 6 us instead of
    14 us.
    """
    node, best = key.size // 2 + sm, new_key
    key[node] = best
    while node > 1:
        best = min(best, key[node ^ 1])
        node >>= 1
        key[node] = best


@inner()
def _root_of_delay(alone, demand, residents):
    """Return the square root of the delay of a unit by one equal unit on its SM, relative to `alone`."""
    return np.sqrt(max(residents * demand / max(alone, 1e-300) - 1.0, 0.0) / max(residents - 1, 1))


@inner()
def _sum_of_roots(units, alone, demand):
    """Return the number of resident units of an SM, and the sum of their `_root_of_delay`.

    Parameters
    ----------
    units : (slots,) int64, unit of each block slot; -1 if the slot is empty
    """
    residents, roots = 0, 0.0
    for slot in range(units.size):
        residents += units[slot] >= 0
    for slot in range(units.size):
        if units[slot] >= 0:
            roots += _root_of_delay(alone[units[slot]], demand[units[slot]], residents)
    return residents, roots


@inner()
def _next_end(sm, now, unit, left, alone, demand, ending):
    """Return the cycle at which the first of an SM's resident units ends; infinity if the SM is empty.

    The block slot of this unit is written to `ending[sm]`.
    """
    residents, roots = _sum_of_roots(unit[sm], alone, demand)
    soonest = np.inf
    for slot in range(unit.shape[1]):
        u = unit[sm, slot]
        if u >= 0:
            root = _root_of_delay(alone[u], demand[u], residents)
            end = now + left[sm, slot] * alone[u] * (1.0 + root * (roots - root))
            if end < soonest:
                soonest = end
                ending[sm] = slot
    return soonest


@inner()
def _run_down_alone(alone, demand, following, first, out_finish, out_sm, out_end):
    """Schedule units as `run_down` does, on SMs with one block slot each.

    Parameters
    ----------
    following : first unit that does not start at once; it runs on the next SM that becomes free
    first : (SMs,) unit with which each SM starts; -1 if the SM has none
    """
    ends = np.full(first.size, np.inf)
    for sm in range(first.size):
        if first[sm] >= 0:
            ends[sm] = max(alone[first[sm]], demand[first[sm]])
            out_end[first[sm]] = ends[sm]
    key = _new_queue(ends)
    leaves = key.size // 2
    for unit in range(following, alone.size):
        sm = key[1] & (leaves - 1)
        out_sm[unit] = sm
        ends[sm] += max(alone[unit], demand[unit])
        out_end[unit] = ends[sm]
        _requeue(key, sm, _key(ends, sm, leaves))
    for sm in range(first.size):
        out_finish[sm, 0] = ends[sm] if ends[sm] < np.inf else 0.0


class SlotsApart(NamedTuple):
    """Cycles that the order in which `run_down` fills block slots adds to the ends of units.

    A wave of an SM is as many units as it has slots, in the order of their ends. If all cycles are 0, slot j
    of each SM is filled before slot j + 1 of any.
    """

    first: float = 0.0
    """Between the ends of the first units of a wave on SM i and on SM i + 1."""
    later: float = 0.0
    """Between the ends of other units of a wave on SM i and on SM i + 1."""
    after_first: float = 0.0
    """Least cycles between the ends of the first and the second unit of a wave on one SM."""
    on_sm: float = 0.0
    """Least cycles between the ends of any other two units on one SM."""


@njit()
def run_down(alone, demand, places, apart, out_finish, out_sm, out_end):
    """Schedule units (blocks) in order: each block slot that becomes free runs the next unit.

    Of r equal units on an SM, each needs max(alone, r * demand) cycles, so that each of the others delays it
    by the fraction d = max(r * demand / alone - 1, 0) / (r - 1) of `alone`. Unequal units i and j delay each
    other by sqrt(d_i d_j): a unit that hardly uses the pipes of the SM delays none.

    Parameters
    ----------
    alone : (units,) float64, cycles of a unit if it is the only one on its SM
    demand : (units,) float64, cycles for which the unit occupies the busiest pipe of the SM
    places : (units,) int64, SM on which a unit starts at once, or -1; units with an SM come first
    apart : (4,) float64, the fields of `SlotsApart`; not read if each SM has one slot
    out_finish : (SMs, slots) float64, all zero; receives the cycle in which each slot's last unit ends
    out_sm : (units,) int64; receives the SM of each unit
    out_end : (units,) float64; receives the cycle in which each unit ends
    """
    sms, slots = out_finish.shape
    unit = np.full((sms, slots), -1, np.int64)
    left = np.ones((sms, slots))
    since, freed = np.zeros(sms), np.empty(sms)  # `freed`: `ends` by which slots are filled
    ending = np.zeros(sms, np.int64)
    following = np.int64(0)  # a literal would compile the function below once more
    for u in range(alone.size):
        if places[u] < 0:
            break
        for slot in range(slots):
            if unit[places[u], slot] < 0:
                unit[places[u], slot] = u
                out_sm[u] = places[u]
                break
        following = u + 1
    if slots == 1:
        _run_down_alone(alone, demand, following, unit[:, 0], out_finish, out_sm, out_end)
        return
    between_first, between_later, after_first, on_sm = apart[0], apart[1], apart[2], apart[3]
    ends, ended = np.empty(sms), np.zeros(sms, np.int64)
    for sm in range(sms):
        ends[sm] = _next_end(sm, 0.0, unit, left, alone, demand, ending)
        freed[sm] = ends[sm] + sm * between_first
    key = _new_queue(freed)
    leaves = key.size // 2
    while key[1] < NEVER:
        own = key[1]
        sm = own & (leaves - 1)
        now = ends[sm]
        residents, roots = _sum_of_roots(unit[sm], alone, demand)
        for slot in range(slots):
            u = unit[sm, slot]
            if u >= 0:
                root = _root_of_delay(alone[u], demand[u], residents)
                done = (now - since[sm]) / max(alone[u] * (1.0 + root * (roots - root)), 1e-300)
                left[sm, slot] = max(left[sm, slot] - done, 0.0)
        slot = ending[sm]
        out_finish[sm, slot] = now
        out_end[unit[sm, slot]] = now
        unit[sm, slot] = -1
        if following < alone.size:
            unit[sm, slot] = following
            left[sm, slot] = 1.0
            out_sm[following] = sm
            following += 1
        since[sm] = now
        ends[sm] = _next_end(sm, now, unit, left, alone, demand, ending)
        ended[sm] += 1
        rank = ended[sm] % slots  # in its wave, of the unit that ends next
        between, least = between_later if rank else between_first, after_first if rank == 1 else on_sm
        freed[sm] = max(ends[sm] + sm * between, freed[sm] + least)
        # Slots that become free at the same time are filled by rank. If an SM kept its rank, it would get all
        # remaining units
        _requeue(key, sm, max(_key(freed, sm, leaves), own + leaves * sms))


class BlockLists(NamedTuple):
    """Items of each block, in execution order, with their times."""

    block_start: np.ndarray
    """(blocks + 1,) int64, first item of each block."""
    times: Any
    """`block_times.BlockTimes` with columns (items,)."""
    group: np.ndarray
    """(items,) reduction group as in `WorkList`; -1 for unsplit items, or if another launch adds the sums."""
    owner: np.ndarray
    """(items,) int32, 1 if the item writes C, as in `WorkList`."""
    first_wait: np.ndarray
    """(blocks,) cycles that a block waits for its first stages because other blocks request theirs too."""
    block_cycles: float
    """Cycles of a block without items."""
    signal: float
    """Cycles from the end of a k-slice until the owner of its tile receives the signal."""


@inner()
def _run_list(lists, block, slower, ready, parts_only):
    """Return the cycle at which a block ends its list of items, and for how long its last item waits.

    The wait is that of an owner for the partial sums of other k-slices, in cycles.

    Parameters
    ----------
    slower : factor on the cycles of the block
    ready : (groups,) cycle of the last signal of each group's k-slices. This function raises it for each
        k-slice of the block, and lets owners (which add the partial sums) wait for it
    parts_only : True to stop before the first owner, in a first pass that only computes `ready`
    """
    first, stop = lists.block_start[block], lists.block_start[block + 1]
    wait = 0.0
    now = slower * lists.first_wait[block] + (lists.block_cycles if first == stop else 0.0)
    for i in range(first, stop):
        group = lists.group[i]
        if parts_only and group >= 0 and lists.owner[i] == 1:
            break
        now += slower * (lists.times.first[i] if i == first else lists.times.later[i])
        wait = 0.0
        if group >= 0 and lists.owner[i] == 1:
            wait = max(ready[group] + lists.times.after_parts[i] - now, 0.0)
            now += wait
        elif group >= 0:
            ready[group] = max(ready[group], now + lists.signal)
    return now, wait


@njit()
def list_ends(lists, slower, out_end, out_wait):
    """Compute the cycle at which each block ends its list of items, and for how long its last item waits.

    The owner of a split tile (the item that adds the partial sums and writes C) waits for the other k-slices
    of the tile. In every list all of these k-slices precede all owners, so that no k-slice is delayed by an
    owner that waits.

    Parameters
    ----------
    lists : `BlockLists`
    slower : (blocks,) float64, factor on the cycles of each block
    out_end : (blocks,) float64; receives the ends
    out_wait : (blocks,) float64; receives the cycles for which the last item, as an owner, waits for partial
        sums
    """
    groups = 0
    for i in range(lists.group.size):
        groups = max(groups, lists.group[i] + 1)
    ready = np.zeros(groups)
    for block in range(out_end.size if groups > 0 else 0):
        _run_list(lists, block, slower[block], ready, True)
    for block in range(out_end.size):
        out_end[block], out_wait[block] = _run_list(lists, block, slower[block], ready, False)


@njit()
def list_costs(lists, out_demand, out_quiet):
    """Compute the cost of each block's list of items to its SM.

    Parameters
    ----------
    lists : `BlockLists`
    out_demand : (blocks,) float64, all zero; receives the SM cycles per block if the SM holds
        `LaunchContext.crowd` blocks: the cycles until all of them end, divided by their number
    out_quiet : (blocks,) float64; receives the cycles at the end of a block during which it reads nothing
    """
    for block in range(out_demand.size):
        for i in range(lists.block_start[block], lists.block_start[block + 1]):
            is_first = i == lists.block_start[block]
            out_demand[block] += lists.times.first_demand[i] if is_first else lists.times.demand[i]
            out_quiet[block] = lists.times.quiet[i]


class GroupEnds(NamedTuple):
    """Intervals between the ends of SMs as in `SmEnds`, of each group of SMs that run equally many blocks."""

    lasting: np.ndarray
    """(SMs,) cycles from the end of one SM to the end of the next one of its group, group after group."""
    share_of_work: np.ndarray
    """(SMs,) fraction of all requests that SMs of the group make in each interval."""
    blocks: np.ndarray
    """(SMs,) resident blocks of the SMs of the group that work in each interval."""
    bounds: np.ndarray
    """(groups + 1,) int64, first interval of each group."""


class SmEnds(NamedTuple):
    """Intervals between the ends of SMs, for unlimited bandwidth of L2 and DRAM.

    From the end of `quiet` to its end, an SM requests its bytes at a constant rate: b_i / t_i for b_i bytes
    and t_i cycles. Let a memory level be busy for c cycles with all B bytes. SMs that still work request the
    sum of their b_i / t_i * c / B cycles of the level per cycle. If this is above 1, the interval is longer
    by this factor. In a tail, the few SMs that still work share the whole bandwidth.

    If blocks of an SM end one after another, an "SM" here is one of its block slots (`chip._slot_ends`).

    This is so for first stages, which all blocks request at once. Later requests wait for earlier ones of
    their block, and a level whose queue serves them in order gives all waiting blocks the same rate
    (`fair_cycles`): an SM with few blocks, which would be fast, waits longer than others.
    """

    lasting: np.ndarray
    """(SMs,) cycles from the end of one SM to the end of the next one, in order of their ends. The first
    interval begins after `quiet`."""
    share_of_work: np.ndarray
    """(SMs,) fraction of all requests that SMs make in each interval."""
    quiet: float
    """Cycles at the start in which no data are transferred."""
    together: float
    """Sum of `lasting`: cycles from `quiet` until the last SM ends."""
    groups: GroupEnds
    """The same intervals by groups of SMs."""
    later_share: float
    """Fraction of the data that blocks request after their first stages; 0 if all SMs run equally many
    blocks."""


class ChipEnds(NamedTuple):
    """Input of `chip_cycles` for any SM clock: cycles, seconds (names that end in `_s`) and fractions."""

    phases: SmEnds
    """Intervals between the times at which a block starts or ends reading or storing, instead of ends of SMs;
    empty if they are not known (`chip.l2_phases`)."""
    fetching: SmEnds
    """Times at which SMs have finished all reads, and all stores except those of their last items."""
    working: SmEnds
    """Times at which SMs have finished all reads and stores."""
    at_once: float
    """Fraction of the data that blocks of co-resident launches request when they begin, all together."""
    between: float
    """Cycles per launch in which all SMs change blocks at once and read nothing (`chip._between_cycles`)."""
    behind: float
    """Cycles from the last read to the last store of the launch."""
    stores_at_once: float
    """Cycles of `behind` by which the last stores are longer because all SMs store at once."""
    head_start: float
    """Cycles that each of a series of launches saves. Blocks of the next launch run their prologues on SMs
    that have finished. Also, if some SMs end early, fewer blocks can delay the end as stragglers."""
    early_weights: float
    """Cycles that a launch limited by DRAM saves, since blocks that start early request their weights during
    the preceding launch: the head start, at most the cycles in which a block starts, times the fraction of
    weights in all bytes of A and B."""
    extra_latency: float
    """Cycles by which stragglers delay the end of the launch."""
    earlier_share: float
    """Fraction of C that is stored before the last items of all blocks end."""
    l2_reads_s: float
    """`bounds.L2Seconds.reads`."""
    l2_requests_s: float
    """`bounds.L2Seconds.requests`."""
    l2_stores_s: float
    """`bounds.L2Seconds.stores`."""
    l2_merging_s: float
    """`bounds.L2Seconds.merging`."""
    dram_reads_s: float
    """Seconds for which DRAM is busy with reads."""
    dram_writes_s: float
    """Seconds for which DRAM is busy with writes."""
    dram_read_share: float
    """Bytes that DRAM reads, divided by all bytes that it reads and writes."""
    first_weights_s: float
    """Seconds for which DRAM delivers prefetched weights before the first rows of B."""
    wave_work: np.ndarray
    """(waves,) cycles of the items of each wave, without waits for DRAM, divided by those of all items."""
    wave_reads: np.ndarray
    """(waves,) bytes of A and B that DRAM delivers in each wave, divided by those of the whole launch."""
    part_work: np.ndarray
    """`wave_work` with the first wave divided into parts (`chip._in_parts`)."""
    part_reads: np.ndarray
    """`wave_reads` with the first wave divided into the same parts."""
    queue_order: float
    """Order of the norm that combines the times of SMs and DRAM (`queued`), infinite for the longer time."""
    reads_early: bool
    """True if the first wave is divided: blocks read most rows of B from DRAM in its first parts."""
    first_rows: float
    """Fraction of the reads of each wave that are rows of B for first k-steps, if the blocks of all SMs begin
    at once in each wave; else 0."""
    queues: bool
    """True if SMs wait in DRAM's queue even when its mean utilization is below 1."""
    busy_share: float
    """Mean time at which SMs that have blocks end, divided by the latest of these times, 0 to 1. The power
    that the GPU draws, and with it the clock, depends on this number (`hardware.clock.busy_share`)."""


@inner()
def _fair_speeds(needs, blocks, speeds):
    """Compute the speed of each group of SMs, 0 to 1, if a memory level serves all waiting blocks alike.

    Groups that need less per block than the others get all they need, and the others the same rate per block.

    Parameters
    ----------
    needs : (groups,) cycles of the level that a group needs per cycle; negative for groups that have ended
    blocks : (groups,) blocks of each group
    speeds : (groups,), receives the speeds
    """
    rate, left, waiting = np.inf, 1.0, 0.0
    for g in range(needs.size):
        speeds[g] = 0.0 if needs[g] >= 0.0 else 1.0
        waiting += blocks[g] if needs[g] >= 0.0 else 0.0
    served = True
    while served and waiting > 0.0:
        rate, served = left / waiting, False
        for g in range(needs.size):
            if speeds[g] == 0.0 and needs[g] <= rate * blocks[g]:
                speeds[g], served = 1.0, True
                left -= needs[g]
                waiting -= blocks[g]
    for g in range(needs.size):
        if speeds[g] == 0.0:
            speeds[g] = rate * blocks[g] / needs[g]


@njit()
def fair_cycles(groups, most):
    """Return the cycles from `SmEnds.quiet` until the last SM ends if all waiting blocks get the same rate.

    Parameters
    ----------
    groups : `GroupEnds`
    most : cycles that the busiest memory level needs in total
    """
    left, at = groups.lasting.copy(), groups.bounds[:-1].copy()
    needs, blocks, speeds = np.full(at.size, -1.0), np.zeros(at.size), np.zeros(at.size)
    total, passing = 0.0, 0.0
    while passing < np.inf:
        total += passing
        for g in range(at.size):
            if needs[g] >= 0.0:
                left[at[g]] -= passing * speeds[g]
            while at[g] < groups.bounds[g + 1] and left[at[g]] <= SHORTEST_CYCLES:
                at[g] += 1
            needs[g] = -1.0
            if at[g] < groups.bounds[g + 1]:
                needs[g] = most * groups.share_of_work[at[g]] / groups.lasting[at[g]]
                blocks[g] = groups.blocks[at[g]]
        _fair_speeds(needs, blocks, speeds)
        passing = np.inf
        for g in range(at.size):
            if needs[g] >= 0.0:
                passing = min(passing, left[at[g]] / speeds[g])
    return total


@njit()
def stretched(ends, most):
    """Return the cycles until the last SM ends if the busiest memory level needs `most` cycles in total.

    For data that blocks request at once, an interval between the ends of two SMs lasts as long as with
    unlimited bandwidth, or `most` times the fraction of all requests that SMs make in the interval, whichever
    is longer.
    """
    total = 0.0
    for i in range(ends.lasting.size):
        total += max(ends.lasting[i], most * ends.share_of_work[i])
    if ends.later_share > 0.0:
        total += ends.later_share * (fair_cycles(ends.groups, most) - total)
    return max(most, ends.quiet + total)


@njit()
def queued(ends, reads, evenly, wave_work, wave_reads, order, first_rows=0.0, behind_l2=0.0):
    """Return the cycles until the last SM ends, with queueing at DRAM; at least the result of `stretched`.

    Waves of items, or parts of a wave, follow each other. A wave lasts (work^p + dram^p)^(1/p) cycles with
    p = `order`, since SMs wait for DRAM even if it is not always busy. Example: with work = dram and p = 5 it
    lasts 15 % longer than work. If SMs also wait for L2, all waves are longer in proportion: L2 limits those
    that DRAM does not limit, and DRAM cannot use this time for the reads of others.

    Parameters
    ----------
    ends : `SmEnds` of the reads
    reads : DRAM cycles for A and B, distributed over the waves by `wave_reads`
    evenly : DRAM cycles for C, distributed over the waves by `wave_work`
    wave_work, wave_reads : (waves,) fractions, see `ChipEnds`
    order : order p of the norm; if infinite, a wave lasts as long as the longer of both
    first_rows : fraction of the reads of each wave for which SMs wait before they work
    behind_l2 : cycle in which the last SM ends if only L2 delays SMs
    """
    total, together = 0.0, max(ends.together, behind_l2 - ends.quiet)
    for i in range(wave_work.size):
        work = together * wave_work[i] + first_rows * reads * wave_reads[i]
        dram = evenly * wave_work[i] + reads * wave_reads[i]
        longer = max(work, dram)
        total += longer * (1.0 + (min(work, dram) / max(longer, 1e-9)) ** order) ** (1.0 / order)
    return max(stretched(ends, reads + evenly), ends.quiet + total)


@njit()
def chip_cycles(chip, clock_hz):
    """Return the cycles until the last SM has ended and L2 has its stores.

    If launches repeat, DRAM must write all of C and the partial sums within the time of one launch. Every
    line that enters L2 evicts an old line, so that the reads of a launch evict a part of the C of earlier
    launches. This part of C is assumed to equal the fraction of DRAM traffic that is reads.

    Parameters
    ----------
    chip : `ChipEnds`
    clock_hz : SM clock
    """
    earlier, fetching = chip.earlier_share, chip.fetching
    written = max(earlier, chip.dram_read_share)
    l2 = clock_hz * max(chip.l2_reads_s + earlier * chip.l2_stores_s, earlier * chip.l2_merging_s)
    reads, writes = clock_hz * chip.dram_reads_s, clock_hz * written * chip.dram_writes_s
    last_fetch = behind_l2 = max(stretched(fetching, l2), stretched(chip.phases, l2))
    if chip.queues:
        waves = (chip.wave_work, chip.wave_reads)
        last_fetch = max(last_fetch, queued(fetching, reads, writes, *waves, chip.queue_order))
        if chip.first_rows:
            last_fetch = max(last_fetch, queued(fetching, reads, writes, *waves, np.inf, chip.first_rows))
    else:
        in_proportion = stretched(fetching, reads + writes)
        at_once = fetching.quiet + max(fetching.together, reads + writes)
        last_fetch = max(last_fetch, in_proportion - chip.at_once * max(in_proportion - at_once, 0.0))
    if chip.reads_early:
        in_parts = queued(fetching, reads, writes, chip.part_work, chip.part_reads, np.inf, 0.0, behind_l2)
        last_fetch = max(last_fetch, in_parts)
    requested = clock_hz * (chip.l2_requests_s + earlier * chip.l2_stores_s)
    last_fetch = max(last_fetch, fetching.quiet + requested)
    if chip.between:
        # Blocks of all SMs end and begin in step, since DRAM serves them in order; C is written meanwhile
        in_step_s = chip.dram_reads_s + chip.dram_read_share * chip.dram_writes_s
        last_fetch = max(last_fetch, fetching.quiet + chip.between + clock_hz * in_step_s)
    # DRAM writes C of the preceding launch while the first blocks start, so it limits only the whole time
    data_s = max(chip.l2_reads_s + chip.l2_stores_s, chip.l2_merging_s)
    busiest = clock_hz * max(data_s, chip.dram_reads_s + chip.dram_writes_s)
    all_requests = clock_hz * max(chip.l2_requests_s + chip.l2_stores_s, chip.l2_merging_s)
    working = max(stretched(chip.working, clock_hz * data_s), chip.working.quiet + all_requests)
    working = max(working - chip.head_start, busiest, all_requests)
    # SMs that wait for memory get their last data one after another, so that their stores do not coincide
    waits = max(last_fetch - fetching.quiet - fetching.together, 0.0)
    behind = chip.behind - min(chip.stores_at_once, waits)
    # Blocks that start early have requested their weights when the preceding launch ends, but read B after it
    last_fetch = max(last_fetch - chip.head_start, fetching.quiet - chip.early_weights + reads + writes)
    last_step = last_fetch + behind + clock_hz * chip.first_weights_s
    return max(last_step, working, 1.0) + chip.extra_latency


@njit()
def busiest_sm(cycles, members, falling, sms):
    """Return a lower bound of the cycles of the most loaded SM, however units are distributed over SMs.

    With units in descending order, one SM gets at least j + 1 of the j * `sms` + 1 longest units, for each j.

    Parameters
    ----------
    cycles : (kinds,) cycles of one unit of each kind
    members : (kinds,) number of units of each kind
    falling : (kinds,) indices of the kinds by descending cycles. The caller sorts with NumPy, since a sort
        in this function would need 2 s to compile and would not be faster
    sms : number of SMs
    """
    if cycles.size == 0 or sms < 1:
        return 0.0
    most, total, before = 0.0, 0.0, 0.0
    for place in falling:
        before_next = before + members[place]
        last = np.floor((before_next - 1.0) / sms)
        if last * sms >= before:
            most = max(most, (last + 1.0) * cycles[place])
        total += cycles[place] * members[place]
        before = before_next
    return max(total / sms, most)
