"""Compute the end of a launch from the ends of its SMs, slowed down if they exceed L2 or DRAM bandwidth."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.clock import busy_share
from prunecast.launch import LaunchContext
from prunecast.launch.overlap import gained_cycles, straggler_cycles, straggler_of
from prunecast.models.amounts import units_of
from prunecast.models.block_times import first_stages_share, stores_together
from prunecast.models.bounds import L2Seconds
from prunecast.models.case import Case
from prunecast.models.fitted import FITTED
from prunecast.models.loops import ChipEnds, GroupEnds, SmEnds
from prunecast.models.rates import store_rate
from prunecast.models.reuse_loops import reads_by_part
from prunecast.models.terms import OF_READS, OF_STORES, FloatArray, Quantity
from prunecast.models.traffic import SEGMENTS, WaveReads
from prunecast.models.waves import Placement
from prunecast.plan.kernel_plan import Schedule

QUEUE_ORDER = round(FITTED["queue_order"])
"""Order of the norm that combines the time of the SMs with that of DRAM."""

DEEP_STAGES = 3
"""Fewest pipeline stages with which a block always has a requested k-step in addition to the one that it
waits for. Kind: definition, a third stage is multiplied."""

PARTS, POINTS = 8, 16
"""Parts of the first wave, and columns of A that stand for those of an unsplit item (`_in_parts`). A k-slice
has as many, or fewer if a tile has more than 16 of them (`MOST_SEGMENTS`). Kind: choice, for speed."""


class _WaveShares(NamedTuple):
    """Fractions of work and of DRAM reads in each wave of items, each (waves,) float64; they sum to 1.

    The first wave reads B from DRAM, and later waves find it in L2 as far as tiles share columns. If tiles
    have few k-steps, DRAM therefore delays only the first wave. Layers of trained weights with 16,384 tokens
    and tiles of 64 rows (`benchmarks.guided`, H200) were predicted 13 % too fast with evenly distributed
    reads, and 7 % too fast with these fractions.
    """

    work: FloatArray
    """Cycles of the items of each wave, without waits for DRAM, divided by those of all items."""
    reads: FloatArray
    """Bytes of A and B that DRAM delivers in each wave, divided by those of the launch."""


_ONE_WAVE = _WaveShares(np.ones(1), np.ones(1))
"""A launch of one wave. Kind: definition, shares sum to 1."""


def _wave_shares(waves: WaveReads, item_cycles: Callable[[], FloatArray]) -> _WaveShares:
    """Return the fractions of work and of DRAM reads in each wave.

    If DRAM reads nothing, the fractions of reads are set to those of the work.

    Parameters
    ----------
    item_cycles : returns the cycles of each item, (items,); called only if there are several waves
    """
    if waves.read_bytes.size == 1:
        return _ONE_WAVE
    cycles = item_cycles()
    work = np.bincount(waves.of_item, weights=cycles, minlength=waves.read_bytes.size).astype(np.float64)
    work /= max(float(work.sum()), 1.0)
    read = float(waves.read_bytes.sum())
    return _WaveShares(work, np.asarray(waves.read_bytes / read) if read else work)


def _in_parts(case: Case, shares: _WaveShares) -> _WaveShares:
    """Return the fractions of each wave with the first wave divided into parts of equally many k-steps.

    Blocks of the first wave begin together and advance at the same rate. A tile with few kept columns passes
    through K faster and reads its rows from DRAM before other tiles need them: most rows are read early, and
    later k-steps find theirs in L2. Other reads are distributed evenly. The first wave is not divided if
    blocks of the second one start before it has ended, since their reads fill the gaps.
    """
    plan, waves = case.plan, case.traffic.waves
    first = np.flatnonzero((waves.of_item == 0) & (plan.steps_per_item > 0))
    replaced = plan.schedule is not Schedule.STATIC and shares.work.size > 1
    if replaced or not first.size:
        return shares
    steps = plan.steps_per_item[first].astype(np.float64)
    points = POINTS if waves.rows.segments == 1 else POINTS // SEGMENTS
    reads = reads_by_part(waves.rows, first, steps / steps.max(), PARTS, points)
    total = max(shares.reads[0] * (case.traffic.dram_bytes - case.traffic.written_bytes), reads.sum(), 1.0)
    of_first = shares.reads[0] * (reads + (total - reads.sum()) / PARTS) / total
    work = np.full(PARTS, shares.work[0] / PARTS)
    return _WaveShares(np.append(work, shares.work[1:]), np.append(of_first, shares.reads[1:]))


_NO_GROUPS = GroupEnds(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(1, np.int64))
"""Groups of a launch in which all SMs run equally many blocks. Kind: definition, no group."""
_NO_INTERVALS = SmEnds(np.zeros(0), np.zeros(0), 0.0, 0.0, _NO_GROUPS, 0.0)
"""Intervals between the ends of SMs that delay nothing: for a launch without blocks, and where the ends of
SMs are not known. Kind: definition, no interval."""


def _sm_ends(
    sm_finish: FloatArray,
    quiet_cycles: float = 0.0,
    requested: FloatArray | None = None,
    wait_cycles: float = 0.0,
    blocks: npt.NDArray[np.int64] | None = None,
    later_share: float = 0.0,
    ending: npt.NDArray[np.int64] | None = None,
) -> SmEnds:
    """Return the intervals between the sorted ends of SMs, or of their block slots.

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM ends if L2 and DRAM have unlimited bandwidth
    quiet_cycles : cycles at the start, included in `sm_finish`, in which no data are transferred
    requested : (SMs,) bytes that each SM requests; None if they are proportional to its cycles
    wait_cycles : part of `quiet_cycles` over which requests are distributed too. Without CSR's wait its error
        on the H100 is 6.1 instead of 5.4 % (9 rows)
    blocks : (SMs,) blocks that each SM runs at once; None if equally many
    later_share : fraction of the data that blocks request after their first stages
    ending : (SMs,) number of blocks that end at each time; None for all `blocks` of the SM
    """
    order = np.argsort(sm_finish, kind="stable")
    ends = sm_finish[order]
    if ends[-1] <= 0.0:
        return _NO_INTERVALS
    quiet = min(quiet_cycles, float(ends[-1]))
    # SMs that end before any data are transferred, such as those with only empty tiles, read nothing
    reading = np.where(ends > quiet, ends - quiet + wait_cycles, 0.0) if quiet < ends[-1] else ends
    lasting = np.diff(np.maximum(ends, quiet), prepend=quiet)
    asked = reading if requested is None else np.where(reading > 0.0, requested[order], 0.0)
    rates = asked / np.where(reading > 0.0, reading, 1.0) if asked.any() else np.ones_like(reading)
    share_of_work = np.diff(reading, prepend=0.0) * np.cumsum(rates[::-1])[::-1]
    work = float(share_of_work.sum())
    if later_share and blocks is not None and np.ptp(blocks[sm_finish > 0.0]):
        own = (blocks if ending is None else ending)[order]
        groups = _group_ends(np.maximum(ends, quiet) - quiet, reading, rates / work, blocks[order], own)
    else:
        groups, later_share = _NO_GROUPS, 0.0
    return SmEnds(lasting, share_of_work / work, quiet, float(lasting.sum()), groups, later_share)


def _group_ends(
    ends: FloatArray,
    reading: FloatArray,
    rates: FloatArray,
    blocks: npt.NDArray[np.int64],
    ending: npt.NDArray[np.int64],
) -> GroupEnds:
    """Return the intervals between the ends of SMs with equally many blocks.

    Parameters
    ----------
    ends, reading : (SMs,) ascending, cycles in which data are transferred until each SM ends, and cycles for
        which it reads
    rates : (SMs,) fraction of all requests that each SM makes per cycle
    blocks : (SMs,) blocks of each SM
    ending : (SMs,) blocks that end at each time
    """
    order = np.argsort(blocks, kind="stable")
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(blocks[order])) + 1, [ends.size]))
    lasting, share_of_work, working_blocks = np.empty((3, ends.size))
    for first, stop in pairwise(bounds.tolist()):
        own = order[first:stop]
        lasting[first:stop] = np.diff(ends[own], prepend=0.0)
        working = np.cumsum(np.stack((rates, ending))[:, own[::-1]], axis=1)[:, ::-1]
        share_of_work[first:stop] = np.diff(reading[own], prepend=0.0) * working[0]
        working_blocks[first:stop] = working[1]
    return GroupEnds(lasting, share_of_work, working_blocks, bounds.astype(np.int64))


def _slot_ends(
    placement: Placement,
    ends: FloatArray,
    requested: FloatArray,
    quiet: float,
    wait: float,
    later_share: float,
) -> SmEnds:
    """Return the intervals between the ends of the block slots of all SMs.

    The blocks of an SM end one by one if they have unequal lists of items, or if few blocks remain for the
    last wave. While r blocks run, the SM requests data at a rate in proportion to r / max(1, r d), where d is
    the demand of a block relative to its cycles alone on the SM: more blocks request more, until a pipe of
    the SM is always busy. A slot counts with the rate that its SM loses when the slot ends. At a constant
    rate until its last block ends, the SM would request less while most blocks run than DRAM has to serve,
    and more at the end: in 53 random grouped launches on an A100, closed form and simulator would differ by
    6.0 instead of 2.6 % in the mean.

    Parameters
    ----------
    ends : (SMs,) cycle in which the last block of each SM ends, or has read all data
    requested : (SMs,) bytes that each SM requests
    quiet, wait, later_share : as in `_sm_ends`
    """
    slots = np.sort(placement.slot_finish, axis=1)
    used = slots > 0.0
    if not used.any():
        return _NO_INTERVALS
    own = np.maximum(slots - (placement.sm_finish - ends)[:, None], 0.0)
    running = np.cumsum(used[:, ::-1], axis=1)[:, ::-1]
    rate = running / np.maximum(1.0, running * placement.demand_share)
    lost = rate - np.append(rate[:, 1:], np.zeros((used.shape[0], 1)), axis=1)
    read = np.where(used & (own > quiet), lost * (own - quiet + wait), 0.0)
    of_sm = read.sum(axis=1)
    of_slots = read * (requested / np.where(of_sm > 0.0, of_sm, 1.0))[:, None]
    blocks = np.broadcast_to(used.sum(axis=1)[:, None], used.shape)[used]
    return _sm_ends(own[used], quiet, of_slots[used], wait, blocks, later_share, np.ones_like(blocks))


def chip_ends(
    case: Case, placement: Placement, quiet_end: FloatArray, item_cycles: Callable[[], FloatArray]
) -> ChipEnds:
    """Return the input of `chip_cycles` for a placement of units (blocks with their items) on SMs.

    Parameters
    ----------
    placement : SM of each unit, and the cycle in which each block slot ends, for unlimited bandwidth of L2
        and DRAM
    quiet_end : (units,) cycles at the end of each unit during which it reads nothing
    item_cycles : returns the SM time of each item, (items,) cycles; called only if there are several waves
    """
    gpu, context = case.gpu, case.context
    quiet = case.before_data
    starts = max(quiet - gpu.dram_latency_cycles, 0.0)
    waits = max(starts - gpu.block_start_cycles, 0.0)
    sm_finish = placement.sm_finish
    fetched = last_reads(placement, quiet_end)
    columns = float((case.plan.work.k_stop - case.plan.work.k_start).sum(dtype=np.int64))
    l2, traffic, waves = L2Seconds.of(context, case.amounts, case.traffic), case.traffic, case.traffic.waves
    shares, head_start = _wave_shares(waves, item_cycles), gained_cycles(context, sm_finish)
    read_bytes, l2_bytes = _requested_bytes(case, placement)
    # Warps that do not wait hide all queueing, and k-steps of copies through registers contain their waits.
    # Co-resident blocks hide each other's waits, and their delays count as stragglers. The exception is a
    # block that is alone on its SM and streams its weights while B stays in L2
    blocks_hide_waits = context.co_resident and not (context.weights_evict_first and context.crowd == 1)
    queues = case.traits.waits and not case.context.copies_through_registers and not blocks_hide_waits
    # Blocks with three stages, whose warps copy and multiply, request a k-step two k-steps before they need
    # it. Its wait in DRAM's queue delays them only if DRAM is always busy. Small-n waits for all weights that
    # it has requested. With one token, rows of B arrive after all weights, so that block times contain the
    # wait. The norm is fitted to blocks with producer warps
    hides_queue = case.plan.resources.stages >= DEEP_STAGES or case.weights_delay_rows
    hides_queue &= not case.traits.runs_ahead and not case.traits.waits_for_weights
    parts = _in_parts(case, shares) if queues or case.context.copies_through_registers else shares
    behind, between = float(sm_finish.max()) - float(fetched.max()), _between_cycles(case, quiet_end)
    later_share = 1.0 - first_stages_share(case)
    return ChipEnds(
        phases=l2_phases(case, placement, quiet_end, l2),
        fetching=_slot_ends(placement, fetched, read_bytes, quiet, waits, later_share),
        working=_slot_ends(placement, sm_finish, l2_bytes, quiet, waits, later_share),
        at_once=_requested_at_once(case),
        between=between,
        behind=behind,
        stores_at_once=min(stores_at_once_cycles(case), behind),
        head_start=head_start,
        early_weights=min(head_start, starts) * traffic.a_bytes / max(traffic.a_bytes + traffic.b_bytes, 1.0),
        extra_latency=float(straggler_cycles(sm_finish, straggler_of(context))),
        earlier_share=max(0.0, 1.0 - case.blocks_in_flight / max(int(case.plan.work.owner.sum()), 1)),
        l2_reads_s=l2.reads,
        l2_requests_s=l2.requests,
        l2_stores_s=l2.stores,
        l2_merging_s=l2.merging,
        dram_reads_s=(traffic.dram_bytes - traffic.written_bytes) / case.gpu.dram_bytes_per_s,
        dram_writes_s=traffic.written_bytes / case.gpu.dram_write_bytes_per_s,
        dram_read_share=traffic.read_share,
        first_weights_s=first_weights_s(context, case.rules.weights_first, traffic.a_bytes, columns),
        wave_work=shares.work,
        wave_reads=shares.reads,
        part_work=parts.work,
        part_reads=parts.reads,
        queue_order=np.inf if hides_queue else float(QUEUE_ORDER),
        reads_early=parts is not shares,
        first_rows=_first_rows(case) if between > 0.0 else 0.0,
        queues=queues,
        busy_share=busy_share(sm_finish),
    )


def l2_phases(case: Case, placement: Placement, quiet_end: FloatArray, l2: L2Seconds) -> SmEnds:
    """Return the intervals between the times at which blocks start or end to read and to store.

    SMs whose blocks start together request more than L2 serves while they read, and L2 only stores C while
    they change blocks. In descending order of k-steps, the block that starts last has fewest k-steps, so that
    SMs come together from wave to wave. A block reads from the end of its prologue to `quiet_end` cycles
    before its end, and then stores C. If only the last units are scheduled one by one, earlier ones count as
    if they read and store like these. The intervals end with the last read. They are empty if several blocks
    share an SM, a block has a list of items, or blocks request more than one k-step in advance: L2 then still
    serves these while the SM does the last k-steps.

    Parameters
    ----------
    quiet_end : (units,) cycles at the end of each unit during which it reads nothing
    l2 : seconds for which all reads and all stores occupy L2
    """
    one_by_one = case.plan.schedule is Schedule.HARDWARE and case.context.crowd == 1
    one_by_one &= case.context.copies_through_registers and case.plan.blocks > case.blocks_in_flight
    if not one_by_one:
        return _NO_INTERVALS
    units = np.lexsort((placement.unit_end, placement.sm))
    units = units[placement.unit_end[units] > 0.0]
    end, is_first = placement.unit_end[units], np.diff(placement.sm[units], prepend=-1) != 0
    start = np.where(is_first, case.before_data, np.append(0.0, end[:-1]) + case.context.prologue_cycles)
    # The start of an SM's first unit is not known if earlier ones are left out
    known = ~is_first if units.size < placement.unit_end.size else np.ones(units.size, np.bool_)
    start, stop, end = start[known], (end - quiet_end[units])[known], end[known]
    whole, lasting = case.amounts.whole[case.amounts.kinds.of_item[units][known]], (stop - start, end - stop)
    moved = np.stack([whole[:, columns].sum(axis=1) for columns in (OF_READS, OF_STORES)])
    # Seconds for which L2 serves the reads and the stores of each block, then per cycle of this time
    seconds = np.array([[l2.reads], [l2.stores]]) * moved / np.maximum(moved.sum(axis=1, keepdims=True), 1.0)
    reads, stores = np.where(np.array(lasting) > 0.0, seconds / np.maximum(lasting, 1.0), 0.0)
    last_read = float(stop.max())
    times = np.minimum(np.concatenate((start, stop, stop, end)), last_read)
    order = np.argsort(times, kind="stable")
    intervals = np.diff(times[order])
    requested = np.cumsum(np.concatenate((reads, -reads, stores, -stores))[order])[:-1]
    share_of_work = np.maximum(requested, 0.0) * intervals
    if not share_of_work.any():
        return _NO_INTERVALS
    together = last_read - case.before_data
    intervals *= together / float(intervals.sum())
    share_of_work /= float(share_of_work.sum())
    return SmEnds(intervals, share_of_work, case.before_data, together, _NO_GROUPS, 0.0)


def _requested_bytes(case: Case, placement: Placement) -> FloatArray:
    """Return the bytes that each SM reads (`OF_READS`) and those that it moves through L2, (2, SMs)."""
    whole, sms = case.amounts.whole, placement.sm_finish.size
    of_kinds = np.stack((whole[:, OF_READS].sum(axis=1), whole[:, Quantity.L2]), axis=1)
    units = units_of(case.plan, of_kinds[case.amounts.kinds.of_item])
    reads = np.bincount(placement.sm, units[:, 0], sms)
    return np.stack((reads, np.bincount(placement.sm, units[:, 1], sms)), dtype=np.float64)


def last_reads(placement: Placement, quiet: FloatArray) -> FloatArray:
    """Return the cycle of the last read of each SM, (SMs,) float64.

    An owner of a split tile has read its own rows before it waits for partial sums.

    Parameters
    ----------
    quiet : (units,) cycles at the end of each unit during which it reads nothing, without that wait
    """
    of_sm = np.zeros(placement.sm_finish.size)
    np.maximum.at(of_sm, placement.sm, placement.unit_end - placement.unit_wait - quiet)
    return of_sm


def first_weights_s(context: LaunchContext, share: float, a_bytes: float, columns: float) -> float:
    """Return the seconds for which DRAM serves the weight prefetch before the first rows of B.

    Parameters
    ----------
    share : `MemoryRules.weights_first`, fraction of the weights of the first pipeline fill that DRAM serves
        before rows of B
    a_bytes : bytes of weights that all items read
    columns : sum of the kept columns of all items
    """
    plan, gpu = context.plan, context.gpu
    ring = plan.resources.stages * plan.shape.block_k * plan.item_count
    return share * a_bytes * min(ring / columns, 1.0) / gpu.dram_bytes_per_s if columns else 0.0


def stores_at_once_cycles(case: Case) -> float:
    """Return the cycles by which the stores of the longest items are longer because other SMs store too.

    The result is 0 for blocks with producer warps, which stay in step, and for several blocks per SM, since
    other blocks work meanwhile.
    """
    if case.traits.runs_ahead or case.context.crowd > 1 or not case.plan.item_count:
        return 0.0
    stored = float(case.amounts.total[OF_STORES].sum()) / case.plan.item_count
    port = float(case.gpu.store_bytes_per_clk_per_sm)
    together = float(stores_together(case)[np.argmax(case.amounts.step_count)])
    return max(stored / store_rate(case.context, together) - stored / port, 0.0)


def _between_cycles(case: Case, quiet_end: FloatArray) -> float:
    """Return the cycles per launch in which all SMs read nothing, because all of them change blocks at once.

    Hardware-scheduled blocks with producer warps run in lockstep on all SMs. The gap between two blocks lasts
    from the last load of one, `quiet_end` before its end, to the first read of B by the next one.

    The result is 0 if some SMs read while others change blocks. This is so for:

    * other schedules
    * co-resident launches
    * blocks without producer warps
    * grouped launches, whose blocks read weights and tokens of different experts

    Parameters
    ----------
    quiet_end : (units,) cycles at the end of each block during which it reads nothing
    """
    plan = case.plan
    one_after_another = plan.schedule is Schedule.HARDWARE and not case.context.co_resident
    one_after_another &= plan.experts == 1
    if not one_after_another or not quiet_end.size or not case.traits.runs_ahead:
        return 0.0
    later_rounds = plan.blocks / max(case.blocks_in_flight, 1) - 1.0
    return later_rounds * (float(quiet_end.mean()) + case.context.prologue_cycles)


def _first_rows(case: Case) -> float:
    """Return the fraction of a wave's reads that are rows of B for first k-steps of its blocks.

    If all SMs change blocks at once, all blocks request these rows together and multiply after DRAM has
    delivered them: a wave of w cycles and b cycles of DRAM for rows of s k-steps lasts at least w + b / s.
    Weights are requested earlier. The result is 0 if they are not, since block times of the libraries contain
    the wait. With this wait, the mean error of tile-wise on the H100 is 3.61 instead of 3.65 % on 58 measured
    products, and 3.20 instead of 3.48 % on 60 to which constants of the kernel were fitted.
    """
    steps, traffic = case.plan.steps_per_item[case.traffic.waves.of_item == 0], case.traffic
    if not case.context.prefetches_weights:
        return 0.0
    of_b = traffic.b_bytes / max(traffic.a_bytes + traffic.b_bytes, 1.0)
    return of_b / max(float(steps.mean()), 1.0)


def _requested_at_once(case: Case) -> float:
    """Return the fraction of the data of a co-resident launch that its blocks request when they begin.

    These data do not delay the SMs in proportion to the time for which they work: both blocks of an SM have
    requested their data at once, and one works while the other waits. The result is 0 for other launches, and
    if not all blocks begin together.
    """
    plan = case.plan
    if not case.context.co_resident or plan.item_count > case.blocks_in_flight:
        return 0.0
    return first_stages_share(case)
