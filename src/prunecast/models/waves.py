"""What blocks with their lists cost, on which SMs they end up, wave after wave, and when each SM runs dry."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch import LaunchContext
from prunecast.models.block_times import BlockTimes, ring_steps
from prunecast.models.bounds import L2Seconds
from prunecast.models.case import Case
from prunecast.models.loops import BlockLists, run_down, run_lists
from prunecast.models.terms import FloatArray

EXACT_WAVES = 64
"""Waves up to which units are placed one by one; of more waves only the last ones are, as earlier ones fill
all slots evenly, to less than one unit."""

BURST_SHARE = 0.4
"""Share of the time of L2 or DRAM for the first stages of all blocks that a block waits. Kind: fitted to the
simulator on 326 random layers of eight GPUs: the engines differ by 2.43 % in the mean with 0, 2.16 with 0.25
and 0.4, 2.36 with 0.6, and in 11, 9, 8 and 10 layers by more than 10 % (2026-11-28)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Units of work on the SMs of a GPU.

    Parameters
    ----------
    slot_finish : (SMs, slots) float64, cycle in which each slot ends its last unit, 0 if it never had one
    sm : (units,) int64, SM of each unit
    """

    slot_finish: FloatArray
    sm: npt.NDArray[np.int64]

    @property
    def sm_finish(self) -> FloatArray:
        """(SMs,) float64: cycle in which each SM runs dry."""
        return np.asarray(self.slot_finish.max(axis=1))

    def fetched(self, sm_finish: FloatArray, quiet: FloatArray) -> FloatArray:
        """(SMs,) float64: when each SM has fetched all, if units fetch nothing in their last `quiet` (units,)
        cycles.
        """
        of_sm = np.zeros(sm_finish.size)
        of_sm[self.sm] = quiet  # that of an SM's last unit stays
        return np.maximum(sm_finish - of_sm, 0.0)

    @property
    def cycles(self) -> float:
        """Cycles until the last SM is done."""
        return float(self.slot_finish.max())


class _Seats(NamedTuple):
    """Places at which the units of a launch begin, however long they are."""

    slots: int
    """Slots of each SM."""
    in_flight: int
    """Units that start at once."""
    early: int
    """Units before the last `EXACT_WAVES` waves."""
    places: npt.NDArray[np.int64]
    """(units after the early ones,): the SM where a unit starts at once, else -1."""
    in_turn: npt.NDArray[np.int64]
    """(units,): an SM for each, in turn."""
    sms: int


def _seats_of(context: LaunchContext, units: int) -> _Seats:
    """Seats of so many units: the first ones go round robin over the SMs, or where they pile up."""
    sms, blocks_per_sm = context.gpu.sm_count, context.fit.blocks_per_sm
    in_flight = min(context.plan.blocks, context.held, units)
    early = max(units - EXACT_WAVES * in_flight, 0) // max(in_flight, 1) * in_flight
    places = np.full(units - early, -1, np.int64)
    first = np.arange(in_flight) if context.places is None else context.places[:in_flight]
    places[:in_flight] = first % sms
    in_turn = np.arange(units) % sms
    return _Seats(blocks_per_sm, in_flight, early, places, in_turn, sms)


def place_units(context: LaunchContext, alone: FloatArray, demand: FloatArray) -> Placement:
    """Run units over the SMs as the plan's schedule does: list scheduling with shared SMs.

    A slot that comes free takes the next unit of the list. Of r units on one SM each gets on at the rate
    1 / max(alone, r * demand).

    Parameters
    ----------
    alone : (units,) cycles of a unit that has an SM to itself, float64
    demand : (units,) cycles that its busiest pipe of the SM works for it, float64
    """
    seats = _seats_of(context, alone.size)
    early, in_flight = seats.early, seats.in_flight
    finish, sm = np.zeros((seats.sms, seats.slots)), seats.in_turn.copy()
    if not early:
        run_down(alone, demand, seats.places, finish, sm)
    else:
        run_down(alone[early:], demand[early:], seats.places, finish, sm[early:])
        shared = np.maximum(alone[:early], in_flight / seats.sms * demand[:early])
        finish[finish > 0.0] += float(shared.sum()) / in_flight
    return Placement(slot_finish=finish, sm=sm)


class _UnitCosts(NamedTuple):
    """Cycles of what is placed as one, a block with its list, (units,) float64."""

    alone: FloatArray
    """Cycles of a unit that has an SM to itself."""
    demand: FloatArray
    quiet: FloatArray
    """Cycles at the end of a unit in which it has nothing more to fetch."""


def unit_costs(case: Case, times: BlockTimes) -> _UnitCosts:
    """Return the cycles of the list of items of each block."""
    plan, of_item = case.plan, case.amounts.kinds.of_item
    lists = BlockLists(
        block_start=plan.work.block_start.astype(np.int64),
        times=BlockTimes(*(column[of_item] for column in times)),
        group=np.where(case.traits.waits_for_parts, plan.work.group, -1),
        owner=plan.work.owner,
        block_cycles=float(case.gpu.block_start_cycles),
        signal=float(case.gpu.signal_latency_cycles),
    )
    found = _UnitCosts(*np.zeros((3, lists.block_start.size - 1)))
    run_lists(lists, *found)
    burst, together = first_burst_cycles(case), case.blocks_in_flight
    found.alone[:together] += burst
    # An SM begins with the first of its blocks that has its data
    found.demand[:together] += burst / case.context.crowd**2
    return found


def first_burst_cycles(case: Case) -> float:
    """Return the cycles that blocks of the first wave wait because all request their first stages at once.

    Warps that both copy and multiply request all stages of the ring one after another: no stage is complete
    before most of the data of all blocks have arrived. Warps that only copy request stage by stage, and the
    first stage is soon complete.
    """
    context, gpu, traffic = case.context, case.gpu, case.traffic
    if case.traits.runs_ahead or context.co_resident:
        return 0.0
    columns = (case.plan.work.k_stop - case.plan.work.k_start).astype(np.float64)
    of_wave = columns[traffic.waves.of_item == 0]
    if not of_wave.any():
        return 0.0
    requested = np.minimum(of_wave, ring_steps(case) * case.plan.shape.block_k).sum()
    reads = traffic.waves.read_bytes
    first = float(reads[0] / reads.sum()) if reads.any() else 1.0
    # What is read evicts its share of C
    evicted_s = traffic.read_share * traffic.written_bytes / gpu.dram_write_bytes_per_s
    dram_s = ((traffic.dram_bytes - traffic.written_bytes) / gpu.dram_bytes_per_s + evicted_s) * first
    l2_s = L2Seconds.of(context, case.amounts, traffic).reads * float(of_wave.sum() / columns.sum())
    requested_s = float(requested / of_wave.sum()) * max(dram_s, l2_s)
    return BURST_SHARE * requested_s * gpu.max_clock_hz
