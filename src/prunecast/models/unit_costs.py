"""What blocks with their lists cost, and how evenly that work lies on the SMs."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from prunecast.models.case import Case
from prunecast.models.item_costs import Costs
from prunecast.models.loops import BlockLists, longer_of_each, queued_waves, run_lists
from prunecast.models.rates import waits_for_parts
from prunecast.models.starts import Starts
from prunecast.models.terms import FloatArray
from prunecast.models.traffic import WaveReads


class _UnitCosts(NamedTuple):
    """Cycles of what is placed as one, a block with its list, (units,) float64."""

    alone: FloatArray
    """Cycles of a unit that has an SM to itself."""
    demand: FloatArray
    quiet: FloatArray
    """At its end, when it has nothing more to fetch."""


def steady(items: Costs, starts: Starts) -> FloatArray:
    """Cycles of each of `items` among others like it, the block's start aside."""
    behind_ring = np.maximum(items.edge - starts.ring, 0.0)
    return np.asarray(
        np.maximum(
            np.maximum(items.multiply + items.edge, items.fetch + np.maximum(behind_ring, starts.turn)),
            items.demand,
        )
    )


def lists_of(case: Case, items: Costs, starts: Starts) -> BlockLists:
    """Items one by one, as `loops.run_lists` wants them."""
    plan, of_item = case.plan, case.amounts.kinds.of_item
    return BlockLists(
        block_start=plan.work.block_start.astype(np.int64),
        costs=Costs(*(column[of_item] for column in items)),
        wait=np.where(case.amounts.step_count[of_item] > 0, starts.wait, 0.0),
        group=plan.work.group
        if waits_for_parts(case.context.programs)
        else np.full_like(plan.work.group, -1),
        owner=plan.work.owner,
        signal=float(case.gpu.signal_latency_cycles),
    )


def unit_costs(lists: BlockLists, starts: Starts) -> _UnitCosts:
    """Cycles of lists."""
    found = _UnitCosts(*np.zeros((3, lists.block_start.size - 1)))
    run_lists(lists, starts, *found)
    np.minimum(found.quiet, starts.quiet, out=found.quiet)
    return found


QUEUE_ORDER = 5
"""Order of the norm that adds what SMs do and what DRAM does meanwhile. Kind: fitted, half of the fit rows of
the tile, 2:4 and dense kernels, H200, 2026-11-22: MAPE 3.68 % for the longer of both, 3.47 of order 4, 3.41
of 5, 3.43 of 6; the norm was taken from one SM's end to the next then, and is not fitted again."""


class WaveShares(NamedTuple):
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


_ONE_WAVE = WaveShares(np.ones(1), np.ones(1))


def wave_shares(waves: WaveReads, item_cycles: Callable[[], FloatArray]) -> WaveShares:
    """Shares from the cycles of items (items,), asked for where there are several waves; reads go with the
    work where nothing is known of them.
    """
    if waves.read_bytes.size == 1:
        return _ONE_WAVE
    cycles = item_cycles()
    work = np.bincount(waves.of_item, weights=cycles, minlength=waves.read_bytes.size).astype(np.float64)
    work /= max(float(work.sum()), 1.0)
    read = float(waves.read_bytes.sum())
    return WaveShares(work, np.asarray(waves.read_bytes / read) if read else work)


class SmEnds(NamedTuple):
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

    def queued(self, reads: float, evenly: float, waves: WaveShares) -> float:
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


def sm_ends(sm_finish: FloatArray, quiet_cycles: float = 0.0) -> SmEnds:
    """Sort the ends.

    Parameters
    ----------
    sm_finish : (SMs,) cycle in which each SM would run dry if L2 and DRAM were endless
    quiet_cycles : cycles at the start, in `sm_finish`, in which nothing moves yet
    """
    ends = np.sort(sm_finish)
    spent = float(ends.sum())
    if spent <= 0.0:
        return SmEnds(np.zeros(0), np.zeros(0), 0.0, 0.0)
    share_of_work = _rises(ends, 0.0) * np.arange(ends.size, 0, -1) / spent
    quiet = min(quiet_cycles, float(ends[-1]))
    lasting = _rises(np.maximum(ends, quiet), quiet)
    return SmEnds(lasting, share_of_work, quiet, float(lasting.sum()))


def _rises(values: FloatArray, first: float) -> FloatArray:
    """(values,): each less the one before it, `first` before them all. `np.diff` takes four times as long."""
    rises = np.empty_like(values)
    rises[0] = values[0] - first
    np.subtract(values[1:], values[:-1], out=rises[1:])
    return rises
