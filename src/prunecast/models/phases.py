"""What a warp does around its k-steps, phase by phase, where no barrier holds warps together in the steps.

Warps of a launch are let go together and do the same at the same time: all issue, all ask, all wait. A wait
for data or for the other warps ends a phase: behind it they set out together again. So the warps of an SM
stand in each other's way phase by phase, and in one that issues nobody passes the port for the others.
"""

from functools import lru_cache
from typing import NamedTuple

from prunecast.models.chain import Chain
from prunecast.models.walk import Ring, run, store_cycles, warp_of
from prunecast.plan.program import Code, Instruction, Op

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
    warp, ring, found, first, began = warp_of(chain.programs[0], chain), Ring(), [], 0, 0.0
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
