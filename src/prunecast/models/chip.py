"""The end of the launch, from those of all slots: SMs slow down where they ask too much of L2 or DRAM."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from prunecast.hardware.clock import busy_share
from prunecast.launch.overlap import (
    free_sms,
    head_start_cycles,
    prologue_cycles,
    prologue_under_preceding_cycles,
    straggler_credit_cycles,
    straggler_credit_scale,
    straggler_cycles,
    straggler_of,
)
from prunecast.models.bounds import L2Seconds
from prunecast.models.case import Case
from prunecast.models.loops import longer_of_each, queued_waves
from prunecast.models.prefetch import first_weights_s
from prunecast.models.rates import runs_ahead
from prunecast.models.terms import FloatArray
from prunecast.models.traffic import WaveReads
from prunecast.models.waves import Placement
from prunecast.plan.kernel_plan import Schedule

QUEUE_ORDER = 5
"""Order of the norm that adds what SMs do and what DRAM does meanwhile. Kind: fitted, half of the fit rows of
the tile, 2:4 and dense kernels, H200, 2026-11-22: MAPE 3.68 % for the longer of both, 3.47 of order 4, 3.41
of 5, 3.43 of 6; the norm was taken from one SM's end to the next then, and is not fitted again."""


class _WaveShares(NamedTuple):
    """Shares of waves of items, each (waves,) float64.

    B is read in the first wave and found in L2 by the later ones, as far as tiles share columns. Where tiles
    have few k-steps, DRAM holds the first wave up while the others do not need it: layers of trained
    weights with 16,384 tokens and tiles of 64 rows (`benchmarks.guided`, H200) were 13 % fast with reads
    spread evenly and are 7 % fast with this.
    """

    work: FloatArray
    """Shares of the cycles of all items, none of them waiting for DRAM."""
    reads: FloatArray
    """Shares of the bytes of A and B that DRAM delivers."""


_ONE_WAVE = _WaveShares(np.ones(1), np.ones(1))


def _wave_shares(waves: WaveReads, item_cycles: Callable[[], FloatArray]) -> _WaveShares:
    """Shares from the cycles of items (items,), asked for where there are several waves; reads go with the
    work where nothing is known of them.
    """
    if waves.read_bytes.size == 1:
        return _ONE_WAVE
    cycles = item_cycles()
    work = np.bincount(waves.of_item, weights=cycles, minlength=waves.read_bytes.size).astype(np.float64)
    work /= max(float(work.sum()), 1.0)
    read = float(waves.read_bytes.sum())
    return _WaveShares(work, np.asarray(waves.read_bytes / read) if read else work)


class _SmEnds(NamedTuple):
    """The time between the ends of one SM and the next, if L2 and DRAM were endless.

    An SM asks at an even rate while it works: of a level that works c cycles for S SM-cycles in all, a SMs
    ask a * c / S of each cycle. Where that is above 1 the time runs that much longer, so a tail in which few
    SMs work gets its full share of bandwidth. A quiet start, in which nothing moves yet, only delays.
    """

    lasting: FloatArray
    """(SMs,) cycles of each."""
    share_of_work: FloatArray
    """(SMs,) of all that is asked of the chip."""
    quiet: float
    together: float
    """Cycles of `lasting` added up."""

    def stretched(self, most: float) -> float:
        """Cycles until the last SM is done, where the busiest level of the chip works `most` for all of them.

        Never below the last end nor below `most`.
        """
        return max(most, self.quiet + float(longer_of_each(self.lasting, self.share_of_work, most)))

    def queued(self, reads: float, evenly: float, waves: _WaveShares) -> float:
        """Cycles until the last SM is done, where DRAM works `reads` and `evenly` for all of them and its
        queues fill.

        SMs wait for DRAM before it is busy all the time: 15 % longer where it works as long as they do. Never
        below `stretched`.

        Parameters
        ----------
        reads : cycles of DRAM for A and B, in the waves that read them
        evenly : cycles of DRAM for what goes with the work: C
        """
        queued = queued_waves(self.together, reads, evenly, waves.work, waves.reads, QUEUE_ORDER)
        return max(self.stretched(reads + evenly), self.quiet + float(queued))


def _sm_ends(sm_finish: FloatArray, quiet_cycles: float = 0.0) -> _SmEnds:
    """Sort the ends.

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM would run dry if L2 and DRAM were endless
    quiet_cycles : cycles at the start, in `sm_finish`, in which nothing moves yet
    """
    ends = np.sort(sm_finish)
    spent = float(ends.sum())
    if spent <= 0.0:
        return _SmEnds(np.zeros(0), np.zeros(0), 0.0, 0.0)
    share_of_work = _rises(ends, 0.0) * np.arange(ends.size, 0, -1) / spent
    quiet = min(quiet_cycles, float(ends[-1]))
    lasting = _rises(np.maximum(ends, quiet), quiet)
    return _SmEnds(lasting, share_of_work, quiet, float(lasting.sum()))


def _rises(values: FloatArray, first: float) -> FloatArray:
    """(values,): each less the one before it, `first` before them all. `np.diff` takes four times as long."""
    rises = np.empty_like(values)
    rises[0] = values[0] - first
    np.subtract(values[1:], values[:-1], out=rises[1:])
    return rises


class _DramSeconds(NamedTuple):
    """Time that DRAM works."""

    reads: float
    writes: float
    read_share: float
    """Share of what it moves that is read."""


class ChipEnds(NamedTuple):
    """What the ends of all slots mean for the chip, whatever the clock."""

    fetching: _SmEnds
    """Ends of what SMs read, and of the C of all items but the last ones."""
    between: float
    """Cycles in which an SM reads nothing, one block having ended and the next one beginning."""
    working: _SmEnds
    """Ends of all that SMs read and store."""
    behind: float
    """Cycles from the last fetch's end to the last store's, less what the next launch does meanwhile."""
    head_start: float
    """Head start of the next launch, in cycles, contained in `behind`."""
    late: float
    """Cycles from the last end of all SMs to that of the launch, whose last block is late."""
    busy_share: float
    """Mean time until an SM is done over the longest."""
    earlier_share: float
    """Share of C that is written earlier, as `Case` says."""
    l2: L2Seconds
    waves: _WaveShares
    first_weights_s: float
    """Seconds of weights that come before rows of B, by `first_weights_s`."""
    dram: _DramSeconds

    def cycles(self, case: Case, clock_hz: float) -> float:
        """Cycles until the last SM is done and L2 has its stores, for what all SMs share.

        When launches repeat, DRAM must write all of C, and partial sums, in the time of one. L2 hands over
        what it drops for what comes: of the C of launches before, while this one reads, as much as it reads
        of all that passes DRAM.
        """
        reads_s, writes_s, read_share = self.dram
        earlier = self.earlier_share
        written = max(earlier, read_share)
        l2_s = max(self.l2.reads + earlier * self.l2.stores, earlier * self.l2.merging)
        last_fetch = self.fetching.stretched(clock_hz * l2_s)
        read_cycles, write_cycles = clock_hz * reads_s, clock_hz * written * writes_s
        # Co-resident blocks hide each other's waits, and what is late of them counts as stragglers, but for a
        # block that has its SM to itself and streams its weights beside a B in L2
        streams = case.context.b_in_l2 and case.context.crowd == 1
        if case.context.co_resident and not streams:
            last_fetch = max(last_fetch, self.fetching.stretched(read_cycles + write_cycles))
        else:
            last_fetch = max(last_fetch, self.fetching.queued(read_cycles, write_cycles, self.waves))
        asked_first = clock_hz * (self.l2.requests + earlier * self.l2.stores)
        last_fetch = max(last_fetch, self.fetching.quiet + asked_first)
        # Blocks of all SMs end and begin in step, for DRAM serves them in turn; C is written meanwhile
        in_step_s = reads_s + read_share * writes_s
        if self.between:
            last_fetch = max(last_fetch, self.fetching.quiet + self.between + clock_hz * in_step_s)
        busiest = clock_hz * max(self.l2.data, reads_s + writes_s)
        asked = clock_hz * self.l2.all
        all_traffic = max(self.working.stretched(busiest), self.working.quiet + asked) - self.head_start
        all_traffic = max(all_traffic, busiest, asked)
        steps_end = last_fetch + self.behind + clock_hz * self.first_weights_s
        return max(steps_end, all_traffic, 1.0) + self.late


def chip_ends(
    case: Case,
    placement: Placement,
    quiet_end: FloatArray,
    item_cycles: Callable[[], FloatArray],
) -> ChipEnds:
    """Ends of all slots, placed.

    Parameters
    ----------
    quiet_end : (units,) cycles at the end of each in which it fetches nothing
    item_cycles : gives what each item takes of an SM, (items,), where there are several waves
    """
    # Nothing comes before the first block has started and its first read has gone to DRAM and back.
    quiet = (
        0.0 if case.context.co_resident else float(case.gpu.block_start_cycles + case.gpu.dram_latency_cycles)
    )
    context, sm_finish = case.context, placement.sm_finish
    fetched = placement.fetched(sm_finish, quiet_end)
    prologue = prologue_under_preceding_cycles(context)
    head_start = head_start_cycles(sm_finish, prologue, free_sms(sm_finish, prologue))
    head_start += straggler_credit_cycles(sm_finish, straggler_credit_scale(context))
    columns = float((case.plan.work.k_stop - case.plan.work.k_start).sum(dtype=np.int64))
    share = case.rules.weights_first
    return ChipEnds(
        fetching=_sm_ends(fetched, quiet),
        between=_between_cycles(case, quiet_end),
        working=_sm_ends(sm_finish, quiet),
        behind=placement.cycles - float(fetched.max()) - head_start,
        head_start=head_start,
        late=straggler_cycles(sm_finish, straggler_of(context)),
        busy_share=busy_share(sm_finish),
        earlier_share=case.earlier_share,
        l2=L2Seconds.of(case.context, case.amounts, case.traffic),
        waves=_wave_shares(case.traffic.waves, item_cycles),
        first_weights_s=first_weights_s(case.context, share, case.traffic.a_bytes, columns),
        dram=_dram_seconds(case),
    )


def _dram_seconds(case: Case) -> _DramSeconds:
    traffic, gpu = case.traffic, case.gpu
    reads = (traffic.dram_bytes - traffic.written_bytes) / gpu.dram_bytes_per_s
    return _DramSeconds(reads, traffic.written_bytes / gpu.dram_write_bytes_per_s, traffic.read_share)


def _between_cycles(case: Case, quiet_end: FloatArray) -> float:
    """Cycles in which SMs read nothing between blocks that the hardware starts one after another.

    It is 0 for grouped launches: their blocks read weights and tokens of different experts, so that blocks of
    different SMs are not in step.
    """
    plan = case.plan
    one_after_another = plan.schedule is Schedule.HARDWARE and not case.context.co_resident
    one_after_another &= plan.experts == 1
    if not one_after_another or not quiet_end.size or not runs_ahead(case.context.programs):
        return 0.0
    later_rounds = plan.blocks / max(case.blocks_in_flight, 1) - 1.0
    return later_rounds * (float(quiet_end.mean()) + prologue_cycles(case.context))
