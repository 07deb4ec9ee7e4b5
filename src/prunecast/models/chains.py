"""How long a block takes when nobody is in its way: the chain of waits along its warp programs.

The roofline says how fast the pipes could go; this file says how fast the program lets one block go. One
warp stands for each role. It is walked (`walk.py`) through the prologue and enough k-steps for the ring of
stages to settle.

Where no barrier holds warps together in the k-steps, what a warp does around them counts phase by phase.
Warps of a launch are let go together and do the same at the same time: all issue, all ask, all wait. A wait
for data or for the other warps ends a phase: behind it they set out together again. So the warps of an SM
stand in each other's way phase by phase, and in one that issues nobody passes the port for the others.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from prunecast.models.chain import Chain, runs_ahead
from prunecast.models.walk import KINDS, Ring, Warp, run, run_steps, store_cycles
from prunecast.plan.program import Code, Instruction, Op, WarpProgram


class _Pace(NamedTuple):
    """How a block goes that has its SM alone, in cycles."""

    lead: float
    """Cycles from its first instruction until the warps that multiply have the first k-step's data."""
    step: float
    """Cycles from one k-step to the next, once the ring has settled."""


@lru_cache(maxsize=256)
def walk_block(chain: Chain) -> _Pace:
    """Walk one block through its prologue and some k-steps."""
    settle, count = 2 * max(chain.stages, 2), max(chain.stages, 2)
    ring = Ring()
    # Warps that fetch first: those that multiply wait for what they bring.
    programs = sorted(chain.programs, key=lambda program: program.multiplies)
    warps = [Warp(program, chain) for program in programs]
    before, marks = run_steps(warps, chain, ring, settle + count)
    lead = ring.first_full if ring.first_full >= 0.0 else before
    return _Pace(lead=lead, step=float(marks[-1] - marks[-1 - count]) / count)


def walk_pace(chain: Chain) -> float:
    """Cycles from one k-step of the chain to the next."""
    return walk_block(chain).step


@lru_cache(maxsize=256)
def multiply_pace(chain: Chain) -> float:
    """Cycles from one k-step to the next of the warps that multiply, if all data are there already."""
    programs = tuple(program for program in chain.programs if program.multiplies)
    return walk_block(chain._replace(programs=programs).with_data_there()).step


@lru_cache(maxsize=256)
def edge_cycles(chain: Chain, sections: tuple[str, ...], kind: str) -> float:
    """Cycles of the slowest multiplying warp for sections around the steps (`begin`, `end`, ...) of an item.

    kind : `unsplit`, `owner` or `part`
    """
    return max((warp.now for warp in _walk_edges(chain, sections, kind)), default=0.0)


@lru_cache(maxsize=256)
def stores_behind_cycles(chain: Chain) -> float:
    """Cycles from the end of an item's last warp until the store port has taken what it posted."""
    warps = _walk_edges(chain, ("end",), "unsplit")
    return max(0.0, max((warp.stores_free - warp.now for warp in warps), default=0.0))


@lru_cache(maxsize=256)
def turn_cycles(chain: Chain) -> float:
    """Cycles from the last copy of an item to the first of the next one, of warps that only fetch."""
    fetching = (p for p in chain.programs if p.fetches and not p.multiplies)
    return max((_begin_cycles(program, chain) for program in fetching), default=0.0)


def _begin_cycles(program: WarpProgram, chain: Chain) -> float:
    """What is loaded before an item comes half a gather's latency later, as behind gathers under way."""
    warp, ring = Warp(program, chain), Ring(gather_free=chain.gather_latency / 2)
    warp.now = float(chain.gather_latency)
    run(warp, program.begin, chain, ring, 0)
    return warp.now - chain.gather_latency


@lru_cache(maxsize=256)
def after_parts_cycles(chain: Chain) -> float:
    """What an owner's end takes once the signals of the other parts are there, their sums' bytes aside."""
    programs = []
    for program in chain.programs:
        ops = [instruction.op for instruction in program.end]
        first = ops.index(Op.WAIT_PARTS) if Op.WAIT_PARTS in ops else len(ops)
        programs.append(replace(program, end=program.end[first:]))
    return edge_cycles(chain._replace(programs=tuple(programs)), ("end",), "owner")


def _walk_edges(chain: Chain, sections: tuple[str, ...], kind: str) -> list[Warp]:
    """The multiplying warps after these sections."""
    walked = []
    for program in chain.programs:
        if program.multiplies or not runs_ahead(chain.programs):
            warp = Warp(program, chain)
            # The last step's products are still on their way when the sections after it begin.
            warp.multiplies_until(chain.tensor_latency)
            for section in sections:
                if section == "begin" and any(i.op is Op.GATHER_B for p in chain.programs for i in p.step):
                    warp.now += _begin_cycles(program, chain)
                    continue
                run(warp, getattr(program, section), chain, Ring(), 0, KINDS[kind])
                if section == "begin":
                    # The steps lie between; what was asked for before them is there after them.
                    warp.forget_loads()
            warp.let_others_pass()
            walked.append(warp)
    return walked


_ENDS_PHASE = (Op.WAIT_LOAD, Op.SYNC)


class _Phase(NamedTuple):
    """One phase of a warp, in cycles: what it does between two waits or barriers."""

    alone: float
    """Cycles of the phase if the warp had the SM to itself."""
    issue: float
    """Cycles of the phase in which the warp issues."""
    shared: float
    """Cycles of the phase in which the warp uses the port of shared memory."""
    behind_others: float
    """Cycles that the last warp of a block waits where all come at once, behind a barrier; else 0."""


@lru_cache(maxsize=256)
def phases_around(chain: Chain) -> tuple[_Phase, ...]:
    """Phases of `begin`, then of `end`, of the one program that such a block has."""
    return (*phases_before(chain), *_phases_of_code(chain.programs[0].end, chain))


@lru_cache(maxsize=256)
def phases_before(chain: Chain) -> tuple[_Phase, ...]:
    """Phases of `begin`."""
    begin = chain.programs[0].begin
    joined = any(instruction.op is Op.SYNC for instruction in begin)
    return tuple(_phases_of_code(begin, chain if joined else chain.of_lone_warps()))


def _phases_of_code(code: Code, chain: Chain) -> list[_Phase]:
    """Phases of a part of the one program that such a block has."""
    warp, ring, found, first, began = Warp(chain.programs[0], chain), Ring(), [], 0, 0.0
    # The last step's products are still on their way when the sections after it begin
    warp.multiplies_until(chain.tensor_latency)
    for place, instruction in enumerate(code, 1):
        run(warp, (instruction,), chain, ring, 0)
        # How others pass the ports is not for a warp that is alone to say
        warp.alone()
        if instruction.op in _ENDS_PHASE or place == len(code) or _only_waits(code[:place]):
            warp.let_others_pass()
            together = first > 0 and code[first - 1].op is Op.SYNC
            found.append(_phase(code[first:place], chain, warp.now - began, together=together))
            first, began = place, warp.now
    return found


def _only_waits(code: Code) -> bool:
    """Whether nothing but a wait stands before this place: all warps wait at once."""
    return code[-1].op is Op.ISSUE and code[-1].amount > 0 and all(i.issue <= 1 for i in code)


def _phase(code: Code, chain: Chain, alone: float, *, together: bool) -> _Phase:
    issue = [float(max(_times(i, chain) * i.issue, 1)) for i in code]
    shared = [_times(i, chain) * i.amount / chain.shared_bytes_per_clk * (i.op is Op.SHARED) for i in code]
    warps, stored = chain.programs[0].warps, sum(store_cycles(i, chain) for i in code)
    behind = max((warps / chain.sub_partitions - 1.0) * max(issue), (warps - 1.0) * max(*shared, stored))
    return _Phase(alone, sum(issue), sum(shared), behind if together else 0.0)


def _times(instruction: Instruction, chain: Chain) -> int:
    return -(-chain.shape.block_k // 16) if instruction.per_k16 else 1
