"""What blocks and items begin and end with: set-up, first stages, and what the next block waits for."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunecast.launch.overlap import prologue_is_hidden, store_latency_cycles
from prunecast.models.bounds import copied_cycles, sm_level_cycles
from prunecast.models.case import Case
from prunecast.models.chain import Chain, runs_ahead
from prunecast.models.chains import (
    edge_cycles,
    multiply_pace,
    phases_before,
    stores_behind_cycles,
    turn_cycles,
    walk_block,
    walk_pace,
)
from prunecast.models.in_turns import in_turns_cycles
from prunecast.models.item_costs import each_for_itself
from prunecast.models.prefetch import posted_bytes, unposted_bytes
from prunecast.models.terms import FloatArray
from prunecast.patterns.tile_map import MaskArray
from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Op

UNHINDERED_STEPS = 2
"""Steps of a block whose copies do not compete for the port: those of the first arrive before anything is
multiplied, those of the next find the port idle."""


class Starts(NamedTuple):
    """Cycles around the k-steps of blocks and items, however many columns are kept."""

    wait: FloatArray
    """(items,): from an item's begin until its first stage is there; 0 where it comes behind another item."""
    multiply_step: float
    """One whole k-step of the warps that multiply, as in `Costs`."""
    ring: float
    """The steps that fill the ring of stages."""
    first_ring: float
    """Cycles by which a block's first ring is fetched sooner than a later one."""
    first_share: float
    """Share of a step's fetch time by which a step of the first ring is sooner."""
    first_reads: float
    """Cycles by which a block's first steps are multiplied sooner than those that copies run beside."""
    first_reads_share: float
    """Share of a step's multiply time by which one of the first steps is sooner."""
    turn: float
    """Cycles from one item of a block to its next, for warps that only fetch."""
    block: float
    """Start and end of a block."""
    leave: float
    """Cycles from a block's end until the next one takes its slot."""
    block_demand: float
    """Work of the SM's busiest pipe for a block's start and end."""
    quiet: float
    """Cycles at the end of a block in which it reads no more, at most."""
    store_drain: float
    """Cycles from the last instruction of the last block, `leave` aside, until L2 has its stores."""


def starts_of(case: Case) -> Starts:
    """Starts of a case. Where warps run ahead only a block's first item waits for its first stage; elsewhere
    all items do. That stage comes from DRAM: items that run together begin where none has read before.
    """
    chain, ahead = case.steady_chain, runs_ahead(case.context.programs)
    first_items, latency = _first_items(case), store_latency_cycles(case.context)
    drain = stores_behind_cycles(chain) + latency
    block = case.gpu.block_start_cycles + edge_cycles(chain, ("start", "finish"), "unsplit")
    levels = sm_level_cycles(case.amounts.step, case.rates)
    step = max(walk_block(chain).step, float(levels["l2 port"]))
    first = max(walk_pace(chain.of_first_ring()), float(levels["l2 port"]))
    sooner = max(step - first, 0.0) if ahead else 0.0
    multiply, hindered = _multiply_step(case, chain, levels) if ahead else (1.0, 0.0)
    # A block that the hardware starts takes its slot when L2 has the stores of the one before
    hardware = case.plan.schedule is Schedule.HARDWARE and case.context.places is None
    leave = drain if hardware else 0.0
    waits = first_items | (not ahead)
    wait = together = _waits(case, chain, waits, blocks=1)
    if case.context.co_resident and case.context.crowd > 1:
        together = _waits(case, chain, waits, blocks=case.context.crowd)
    demand = max(float(c) for c in sm_level_cycles(case.amounts.block, case.rates).values())
    return Starts(
        wait=wait,
        multiply_step=max(float(levels["tensor"]), float(levels["shared"])) if ahead else 0.0,
        ring=case.plan.resources.stages * step if ahead else 0.0,
        first_ring=case.plan.resources.stages * sooner,
        first_share=sooner / step if step > 0.0 else 0.0,
        first_reads=UNHINDERED_STEPS * hindered,
        first_reads_share=hindered / multiply if multiply > 0.0 else 0.0,
        turn=turn_cycles(chain),
        block=block,
        leave=leave,
        block_demand=demand + _begun_together(case, block + float(together.max(initial=0.0))),
        quiet=_quiet(case, chain, drain),
        store_drain=drain - leave,
    )


class _MultiplyStep(NamedTuple):
    """Cycles in which a whole step is multiplied, and those of them that copies cost it."""

    cycles: float
    hindered: float


def _multiply_step(case: Case, chain: Chain, levels: dict[str, FloatArray]) -> _MultiplyStep:
    """Multiply cycles of a block's first steps, whose copies have passed shared memory before."""
    least = max(float(levels["tensor"]), multiply_pace(chain))
    shared = float(levels["shared"])
    reads = shared - float(copied_cycles(case.amounts.step, case.rates))
    cycles = max(least, shared)
    return _MultiplyStep(cycles, cycles - max(least, reads))


def _quiet(case: Case, chain: Chain, drain: float) -> float:
    """Cycles at the end of a block in which it reads nothing, at most: its last step and its `end` if it is
    co-resident with others, or if it reads all in `begin`; else infinite.
    """
    reads_in_steps = any(program.fetches for program in case.context.programs)
    if reads_in_steps and not case.context.co_resident:
        return float("inf")
    return drain + edge_cycles(chain, ("end",), "unsplit") + walk_pace(chain)


def _begun_together(case: Case, until_data: float) -> float:
    """Cycles of the SM that a co-resident block's wait takes: all wait for the preceding launch at once."""
    return until_data / case.context.crowd if case.context.co_resident else 0.0


def _waits(case: Case, steady: Chain, waits: MaskArray, *, blocks: int) -> FloatArray:
    """(items,): until the first stage is there, of items that wait for it, `blocks` of them on an SM.

    Blocks whose prologue lies under the preceding launch have read items and indices by then.
    """
    cold = steady._replace(memory_latency=round(case.gpu.dram_latency_cycles))
    begin = edge_cycles(steady, ("begin",), "unsplit")
    lead = max(_lead_in(cold, steady, begin), _behind_weights(case, cold, steady, begin, blocks))
    wait = np.where(waits, lead, 0.0)
    if prologue_is_hidden(case.context):
        hardware = case.plan.schedule is Schedule.HARDWARE
        early = slice(case.blocks_in_flight) if hardware else slice(None)
        wait[early] = np.where(waits[early], _lead_in(cold.begun_early(), steady.begun_early(), begin), 0.0)
    return wait


def _behind_weights(case: Case, cold: Chain, steady: Chain, begin: float, blocks: int) -> float:
    """Cycles until the first stage is there where DRAM first serves the weight prefetch of the next launch,
    then that of the blocks themselves; 0 if B is in L2.

    Columns that a block waits for before its rows come behind the weights too, and all else behind them.
    """
    posted, own = posted_bytes(case.context), unposted_bytes(case.context, case.blocks_in_flight)
    if posted + own == 0.0 or case.context.b_in_l2 or not case.context.co_resident:
        return 0.0
    cycles = case.gpu.max_clock_hz / case.gpu.dram_bytes_per_s
    asked = case.gpu.block_start_cycles + edge_cycles(steady, ("start",), "unsplit")
    brought = max(posted * cycles, asked if own else 0.0) + own * cycles
    in_turns = max(begin, _begin_in_turns(case, steady, blocks))
    if any(i.op is Op.LOAD_INDEX for i in steady.programs[0].begin):
        # Columns come one after the other: the last warp to get them has nobody in its way
        before = _until_columns(cold)
        until = asked + _begin_in_turns(case, before, blocks)
        others = in_turns - begin
        if blocks > 1 and all(i.op is not Op.LOAD_B for i in before.programs[0].begin):
            others += _ring_in_turns(case, steady, blocks)
        return brought - until + _lead_in(cold, steady, begin) - others
    return max(0.0, brought + case.gpu.dram_latency_cycles - asked - in_turns)


def _ring_in_turns(case: Case, steady: Chain, blocks: int) -> float:
    """Cycles that the others of `blocks` on an SM cost a warp in the steps of its first ring.

    The order of configs of few tokens hangs on it.
    """
    levels = sm_level_cycles(case.amounts.step, case.rates)
    warps, partitions = steady.programs[0].warps, steady.sub_partitions
    alone = walk_pace(steady)
    together = in_turns_cycles(
        np.array(alone),
        levels["issue"] * partitions / warps,
        levels["shared"] / warps,
        warps=blocks * warps,
        partitions=partitions,
    )
    rings = 1 + max(i.ahead for i in steady.programs[0].begin)
    return rings * (float(together) - alone)


def _until_columns(chain: Chain) -> Chain:
    """The block with a `begin` that ends where it loads columns."""
    program = chain.programs[0]
    first = next(place for place, i in enumerate(program.begin) if i.op is Op.LOAD_INDEX)
    return chain._replace(programs=(replace(program, begin=program.begin[:first]),))


def _begin_in_turns(case: Case, steady: Chain, blocks: int) -> float:
    """What all warps of `blocks` on an SM take before their steps, where nothing holds them together."""
    if not each_for_itself(case):
        return 0.0
    phases = np.array(phases_before(steady))
    warps, partitions = blocks * steady.programs[0].warps, steady.sub_partitions
    return float(in_turns_cycles(*phases.T[:3], warps=warps, partitions=partitions).sum())


def _lead_in(first: Chain, steady: Chain, begin: float) -> float:
    """Cycles until the first stage is there, past the block's `start`; the item's `begin` runs meanwhile."""
    return max(0.0, walk_block(first).lead - edge_cycles(steady, ("start",), "unsplit") - begin)


def _first_items(case: Case) -> MaskArray:
    """(items,) bool: whether an item is the first one of its block."""
    place = np.arange(case.plan.item_count)
    start = case.plan.work.block_start
    is_first = np.zeros(place.size, np.bool_)
    is_first[start[:-1][start[1:] > start[:-1]]] = True
    return is_first
