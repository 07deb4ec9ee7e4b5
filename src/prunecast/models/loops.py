"""Jitted loops of the performance models; plain arrays and numbers, no meaning.

The wrappers are in `waves.py`, `chip.py` and `bounds.py`. Arrays named `out_*` are changed in place.
"""

from typing import Any, NamedTuple

import numpy as np

from prunecast.jit import inner, njit

NEVER = np.int64(0x7FF0000000000000)
"""Bits of an endless time."""


@inner()
def _key(ends, sm, leaves):
    """Integer that orders SMs by their ends: the bits of the end, none below 0, the last of them the SM.

    Ends that differ by less than 1e-13 are a tie, which the lower SM wins.
    """
    return (ends.view(np.int64)[sm] & -np.int64(leaves)) | sm


@inner()
def _new_queue(ends):
    """A winner tree over SMs: the leaves are its second half, the lowest key stands at 1."""
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
    """Give an SM another key. The rivals on the way up are known before: 14 us for 380 calls became 6."""
    node, best = key.size // 2 + sm, new_key
    key[node] = best
    while node > 1:
        best = min(best, key[node ^ 1])
        node >>= 1
        key[node] = best


@inner()
def _next_end(sm, now, unit, left, alone, demand, ending):
    """Cycle at which the next resident unit of an SM ends, and its slot; infinity if the SM is empty."""
    residents = 0
    for slot in range(unit.shape[1]):
        if unit[sm, slot] >= 0:
            residents += 1
    soonest = np.inf
    for slot in range(unit.shape[1]):
        u = unit[sm, slot]
        if u >= 0:
            end = now + left[sm, slot] * max(alone[u], residents * demand[u])
            if end < soonest:
                soonest = end
                ending[sm] = slot
    return soonest


@inner()
def _run_down_alone(alone, demand, following, first, out_finish, out_sm):
    """`run_down` of SMs with one slot each, which nobody shares; `first` (SMs,) is the unit of each or -1."""
    ends = np.full(first.size, np.inf)
    for sm in range(first.size):
        if first[sm] >= 0:
            ends[sm] = max(alone[first[sm]], demand[first[sm]])
    key = _new_queue(ends)
    leaves = key.size // 2
    for unit in range(following, alone.size):
        sm = key[1] & (leaves - 1)
        out_sm[unit] = sm
        ends[sm] += max(alone[unit], demand[unit])
        _requeue(key, sm, _key(ends, sm, leaves))
    for sm in range(first.size):
        out_finish[sm, 0] = ends[sm] if ends[sm] < np.inf else 0.0


@njit()
def run_down(alone, demand, places, out_finish, out_sm):
    """Run units in order over SMs; the slots of an SM share it.

    alone, demand : (units,) float64, cycles of a unit that has an SM to itself, and of the busiest pipe of
        the SM for it; of r resident units each gets on by 1 / max(alone, r * demand) per cycle
    places : (units,) int64, -1 or the SM where a unit must start at once; places must be taken first
    out_finish : (SMs, slots) float64, all zero; becomes the end of the last unit of each slot
    out_sm : (units,) int64; becomes the SM of each unit
    """
    sms, slots = out_finish.shape
    unit = np.full((sms, slots), -1, np.int64)
    left = np.ones((sms, slots))
    since = np.zeros(sms)
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
        _run_down_alone(alone, demand, following, unit[:, 0], out_finish, out_sm)
        return
    ends = np.empty(sms)
    for sm in range(sms):
        ends[sm] = _next_end(sm, 0.0, unit, left, alone, demand, ending)
    key = _new_queue(ends)
    leaves = key.size // 2
    while key[1] < NEVER:
        own = key[1]
        sm = own & (leaves - 1)
        now = ends[sm]
        residents = 0
        for slot in range(slots):
            if unit[sm, slot] >= 0:
                residents += 1
        for slot in range(slots):
            u = unit[sm, slot]
            if u >= 0:
                done = (now - since[sm]) / max(alone[u], residents * demand[u], 1e-300)
                left[sm, slot] = max(left[sm, slot] - done, 0.0)
        slot = ending[sm]
        out_finish[sm, slot] = now
        unit[sm, slot] = -1
        if following < alone.size:
            unit[sm, slot] = following
            left[sm, slot] = 1.0
            out_sm[following] = sm
            following += 1
        since[sm] = now
        ends[sm] = _next_end(sm, now, unit, left, alone, demand, ending)
        new_key = _key(ends, sm, leaves)
        if ends[sm] <= now and following < alone.size:
            # Of slots that come free together one on every SM first: else one SM would take all that is left
            new_key = own + leaves
        _requeue(key, sm, new_key)


class BlockLists(NamedTuple):
    """Items of blocks, which `run_lists` runs one after another."""

    block_start: np.ndarray
    """(blocks + 1,) int64."""
    times: Any
    """`block_times.BlockTimes`, each column (items,)."""
    group: np.ndarray
    owner: np.ndarray
    """(items,) int32, as in `kernels.plan.WorkList`."""
    block_cycles: float
    """Cycles of a block without items."""
    signal: float
    """Cycles from the end of a k-slice until its owner has the signal."""


@inner()
def _run_list(lists, block, ready, parts_only):
    """Cycle at which a list ends. `ready` (groups,) is changed by k-slices and awaited by owners."""
    first, stop = lists.block_start[block], lists.block_start[block + 1]
    now = lists.block_cycles if first == stop else 0.0
    for i in range(first, stop):
        group = lists.group[i]
        if parts_only and group >= 0 and lists.owner[i] == 1:
            break
        now += lists.times.first[i] if i == first else lists.times.later[i]
        if group >= 0 and lists.owner[i] == 1:
            now = max(now, ready[group] + lists.times.after_parts[i])
        elif group >= 0:
            ready[group] = max(ready[group], now + lists.signal)
    return now


@njit()
def run_lists(lists, out_alone, out_demand, out_quiet):
    """Run the items of every list one by one.

    In every list k-slices precede owners, so that nothing that waits for k-slices comes before one.

    out_alone, out_demand : (blocks,) float64, cycles of each list on an SM of its own, and of its SM among
        others
    out_quiet : (blocks,) float64, cycles at its end in which it reads nothing
    """
    groups = 0
    for i in range(lists.group.size):
        groups = max(groups, lists.group[i] + 1)
    ready = np.zeros(groups)
    for block in range(out_alone.size if groups > 0 else 0):
        _run_list(lists, block, ready, True)
    for block in range(out_alone.size):
        out_alone[block] = _run_list(lists, block, ready, False)
        for i in range(lists.block_start[block], lists.block_start[block + 1]):
            is_first = i == lists.block_start[block]
            out_demand[block] += lists.times.first_demand[i] if is_first else lists.times.demand[i]
            out_quiet[block] = lists.times.quiet[i]


class SmEnds(NamedTuple):
    """Time between the end of one SM and that of the next, for unlimited bandwidth of L2 and DRAM.

    An SM reads at an even rate while it works. If a level of the memory works c cycles for S SM-cycles in
    total, a SMs request a * c / S of it in each cycle. Where that is above 1, the time is longer by this
    factor, so that a tail in which few SMs work gets its full share of the bandwidth.
    """

    lasting: np.ndarray
    """(SMs,) cycles from the end of one SM to the end of the next one, in order of their ends. The first
    interval begins after `quiet`."""
    share_of_work: np.ndarray
    """(SMs,) share of all requests that is made in each interval."""
    quiet: float
    """Cycles at the start in which nothing is transferred yet; they only delay."""
    together: float
    """Sum of `lasting`."""


class ChipEnds(NamedTuple):
    """Ends of all slots as `chip_cycles` needs them for any SM clock: cycles, seconds (`_s`) and shares."""

    fetching: SmEnds
    """Ends of the reads of SMs, and of the C of all items but the last ones."""
    working: SmEnds
    """Ends of all reads and stores of SMs."""
    between: float
    """Cycles in which an SM reads nothing between the end of one block and the next one's begin."""
    behind: float
    """Cycles from the end of the last read to that of the last store, less `head_start`."""
    head_start: float
    """Cycles that repeated launches save: blocks of the next launch run their prologues on SMs that are done,
    and with SMs that end early fewer blocks can be the straggler."""
    extra_latency: float
    """Cycles by which stragglers delay the end of the launch."""
    earlier_share: float
    """Share of C that is stored before the last items of all blocks end."""
    l2_reads_s: float
    l2_requests_s: float
    l2_stores_s: float
    l2_merging_s: float
    """As in `bounds.L2Seconds`."""
    dram_reads_s: float
    dram_writes_s: float
    dram_read_share: float
    """Share of DRAM's bytes that are read."""
    first_weights_s: float
    """Seconds of weights that DRAM delivers before rows of B."""
    wave_work: np.ndarray
    """(waves,) share of the cycles of all items, without waits for DRAM."""
    wave_reads: np.ndarray
    """(waves,) share of the bytes of A and B that DRAM delivers."""
    queues: bool
    """True if SMs wait for DRAM's queue before DRAM is busy all the time."""
    busy_share: float
    """Mean over all SMs of the time until its last block ends, divided by the largest such time (0 to 1). The
    power that the GPU draws, and with it the clock, depends on it."""


@njit()
def stretched(ends, most):
    """Return the cycles until the last SM is done if the busiest level of the chip works `most` for them all.

    Each interval lasts as computed, or its share of `most` where that is longer.
    """
    total = 0.0
    for i in range(ends.lasting.size):
        total += max(ends.lasting[i], most * ends.share_of_work[i])
    return max(most, ends.quiet + total)


@njit()
def queued(ends, reads, evenly, wave_work, wave_reads, order):
    """Return the cycles until the last SM is done, with DRAM's queue; never less than `stretched`.

    The waves of items follow each other; each lasts as long as the norm of its work and of DRAM's time for
    it. SMs wait for DRAM before it is busy all the time: 15 % longer where it works as long as they do.

    reads : cycles of DRAM for A and B, in the waves that read them
    evenly : cycles of DRAM in proportion to the work: C
    """
    total = 0.0
    for i in range(wave_work.size):
        work = ends.together * wave_work[i]
        dram = evenly * wave_work[i] + reads * wave_reads[i]
        longer = max(work, dram)
        total += longer * (1.0 + (min(work, dram) / max(longer, 1e-9)) ** order) ** (1.0 / order)
    return max(stretched(ends, reads + evenly), ends.quiet + total)


@njit()
def chip_cycles(chip, clock_hz, queue_order):
    """Return the cycles until the last SM is done and L2 has its stores.

    If launches repeat, DRAM must write all of C, and partial sums, in the time of one. L2 evicts old lines
    for new ones: of the C of earlier launches, while this one reads, the share of reads in all bytes of DRAM.
    """
    earlier, fetching = chip.earlier_share, chip.fetching
    written = max(earlier, chip.dram_read_share)
    l2_s = max(chip.l2_reads_s + earlier * chip.l2_stores_s, earlier * chip.l2_merging_s)
    reads, writes = clock_hz * chip.dram_reads_s, clock_hz * written * chip.dram_writes_s
    last_fetch = stretched(fetching, clock_hz * l2_s)
    if chip.queues:
        behind_queue = queued(fetching, reads, writes, chip.wave_work, chip.wave_reads, queue_order)
        last_fetch = max(last_fetch, behind_queue)
    else:
        last_fetch = max(last_fetch, stretched(fetching, reads + writes))
    requested = clock_hz * (chip.l2_requests_s + earlier * chip.l2_stores_s)
    last_fetch = max(last_fetch, fetching.quiet + requested)
    if chip.between:
        # Blocks of all SMs end and begin in step, since DRAM serves them in order; C is written meanwhile
        in_step_s = chip.dram_reads_s + chip.dram_read_share * chip.dram_writes_s
        last_fetch = max(last_fetch, fetching.quiet + chip.between + clock_hz * in_step_s)
    # DRAM writes C of the launch before while the first blocks start, so that it binds as a whole only
    data_s = max(chip.l2_reads_s + chip.l2_stores_s, chip.l2_merging_s)
    busiest = clock_hz * max(data_s, chip.dram_reads_s + chip.dram_writes_s)
    all_requests = clock_hz * max(chip.l2_requests_s + chip.l2_stores_s, chip.l2_merging_s)
    working = max(stretched(chip.working, clock_hz * data_s), chip.working.quiet + all_requests)
    working = max(working - chip.head_start, busiest, all_requests)
    last_step = last_fetch + chip.behind + clock_hz * chip.first_weights_s
    return max(last_step, working, 1.0) + chip.extra_latency


@njit()
def busiest_sm(cycles, members, falling, sms):
    """Return the least possible cycles of the SM with the most work, for units of these cycles that are
    spread over `sms` SMs. With the units sorted from the longest, unit j * SMs is at least the (j + 1)-th of
    some SM, for each j.

    falling : order of the longest first, which NumPy finds as fast as compiled code that takes 2 s to compile
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
