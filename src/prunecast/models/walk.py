"""One warp on its walk through the sections of its program, under the rules of `plan.program`.

Copies land after the latency of memory, a slot is filled again only when it has been released, loads, tensor
work, shared memory and barriers cost their latency. The rules are jitted, in `walk_loops.py`.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from prunecast.models import walk_loops as loops
from prunecast.models.chain import Chain
from prunecast.plan.program import WHOLE_LINES, Code, Instruction, Op, WarpProgram, When

KINDS = {
    "unsplit": (When.ALWAYS, When.FINAL),
    "owner": (When.ALWAYS, When.FINAL, When.OWNER),
    "part": (When.ALWAYS, When.PARTIAL),
}
PLACES = 64
"""Room for so many steps at first; `_make_room` adds what a walk asks for."""
FloatArray = npt.NDArray[np.float64]


class Warp:
    """A warp that stands for the role of a program: its vector, and when loads have come, by their step."""

    def __init__(self, program: WarpProgram, chain: Chain) -> None:
        self.program = program
        together = any(instruction.op is Op.SYNC for instruction in program.step)
        abreast = -(-program.warps // chain.sub_partitions) if together else 1
        self.vector = np.zeros(12)
        self.vector[loops.WARPS], self.vector[loops.ABREAST] = program.warps, abreast
        self.arrived = np.zeros(PLACES)

    @property
    def now(self) -> float:
        """Cycle at which its next instruction may issue."""
        return float(self.vector[loops.NOW])

    @now.setter
    def now(self, cycle: float) -> None:
        self.vector[loops.NOW] = cycle

    @property
    def stores_free(self) -> float:
        """Cycle at which the port has taken the posted stores of the whole role."""
        return float(self.vector[loops.STORES_FREE])

    def forget_loads(self) -> None:
        """All that was asked for is there."""
        self.vector[loops.LOADED] = 0.0
        self.arrived[:] = 0.0

    def multiplies_until(self, cycle: float) -> None:
        """Products are under way when the walk begins."""
        self.vector[loops.TENSOR_DONE] = cycle

    def alone(self) -> None:
        """Nobody of its role passes the ports."""
        self.vector[loops.OTHERS_SHARED] = self.vector[loops.OTHERS_STORES] = 0.0

    def let_others_pass(self) -> None:
        """The ports work side by side, and while this sub-partition issues for others."""
        vector = self.vector
        waited = max(
            vector[loops.OTHERS_SHARED] - vector[loops.ISSUED_MEANWHILE], vector[loops.OTHERS_STORES], 0.0
        )
        vector[loops.NOW] += waited
        vector[[loops.OTHERS_SHARED, loops.OTHERS_STORES, loops.ISSUED_MEANWHILE]] = 0.0


class Ring:
    """What the warps of the block share: ports, and when slots were filled and released, by step."""

    def __init__(self, *, gather_free: float = 0.0) -> None:
        self.vector = np.array([0.0, gather_free, -1.0, 0.0])
        self.landed, self.released = np.zeros(PLACES), np.zeros(PLACES)

    @property
    def first_full(self) -> float:
        """Cycle at which the first stage was there; -1 if nobody has waited for it."""
        return float(self.vector[loops.FIRST_FULL])


def run(
    warp: Warp, code: Code, chain: Chain, ring: Ring, step: int, kinds: tuple[When, ...] = KINDS["unsplit"]
) -> None:
    """Move the warp through a section; `ring` and `warp` are changed."""
    if code:
        _make_room([warp], ring, code, step)
        loops.run_section(
            _matrix(code), warp.vector, warp.arrived, ring.vector, ring.landed, ring.released,
            _vector(chain), step, _bits(kinds, chain),
        )  # fmt: skip


def _make_room(warps: list[Warp], ring: Ring, code: Code, last_step: int) -> None:
    """Vectors by step reach the furthest step that is asked for ahead; jitted code checks no bounds."""
    places = loops.PLACE_OF_STEP_0 + last_step + max((i.ahead for i in code), default=0) + 1
    for warp in warps:
        warp.arrived = _reaching(warp.arrived, places)
    ring.landed, ring.released = _reaching(ring.landed, places), _reaching(ring.released, places)


def _reaching(times: FloatArray, places: int) -> FloatArray:
    """`times`, with zeros behind them up to so many places."""
    more = places - times.size
    return np.concatenate((times, np.zeros(more))) if more > 0 else times


def run_steps(warps: list[Warp], chain: Chain, ring: Ring, steps: int) -> tuple[float, FloatArray]:
    """Walk all warps side by side through start, begin, fills and `steps` steps.

    Returns when the slowest has done its fills, and (steps,) when the last warp has done each step.
    """
    codes = [
        part
        for warp in warps
        for part in (warp.program.start, warp.program.begin, warp.program.fill, warp.program.step)
    ]
    _make_room(warps, ring, sum(codes, ()), max(steps, chain.stages))
    parts = [_matrix(code) for code in codes]
    ends = np.cumsum([0, *(len(part) for part in parts)])
    sections = np.array([ends[4 * i : 4 * i + 5] for i in range(len(warps))])
    vectors, arrived = np.array([w.vector for w in warps]), np.array([w.arrived for w in warps])
    marks = np.zeros(steps)
    before = loops.walk_block_steps(
        np.concatenate(parts), sections, vectors, arrived, ring.vector, ring.landed, ring.released,
        _vector(chain), _bits(KINDS["unsplit"], chain), marks,
    )  # fmt: skip
    return before, marks


def _bits(kinds: tuple[When, ...], chain: Chain) -> int:
    own = (*kinds, When.EDGE) if chain.lacks_tokens else kinds
    return sum(1 << kind for kind in own)


@lru_cache(maxsize=4096)
def _matrix(code: Code) -> FloatArray:
    rows = [
        (i.op, i.amount, i.issue, i.per_k16, i.ahead, i.when, i.leader, i.operand_bytes, i.posted,
         i.piece_cost, i.late) for i in code
    ]  # fmt: skip
    return np.array(rows, np.float64).reshape(-1, 11)


@lru_cache(maxsize=4096)
def _vector(chain: Chain) -> FloatArray:
    c = chain
    return np.array([
        -(-c.shape.block_k // 16), c.shape.block_k, c.stages, c.tensor_fma_per_clk, c.fp32_cycles,
        c.shared_bytes_per_clk, c.port_bytes_per_clk, c.gather_bytes_per_clk, c.store_bytes_per_clk,
        c.port_store_bytes_per_clk, c.tokens_share, c.store_share, c.tensor_latency, c.shared_latency,
        c.barrier_latency, c.sync_latency, c.perform_latency, c.memory_latency,
        c.gather_latency, c.b_latency, c.first_weights_late,
    ], np.float64)  # fmt: skip


def store_cycles(instruction: Instruction, chain: Chain) -> float:
    """Cycles of the store port for what one warp stores; 0 for other instructions."""
    if instruction.op not in (Op.STORE_C, Op.STORE_PARTIAL):
        return 0.0
    rate = chain.store_bytes_per_clk if instruction.op is Op.STORE_C else chain.port_store_bytes_per_clk
    return instruction.amount * chain.store_share * instruction.piece_cost / WHOLE_LINES / rate
