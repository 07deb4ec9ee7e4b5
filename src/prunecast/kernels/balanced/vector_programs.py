"""Warp program of the balanced kernel for one token: B goes into the banks, weights straight to registers."""

from typing import NamedTuple

from prunecast.hardware.l2_lines import SECTOR_BYTES
from prunecast.kernels.balanced.layout import WARPS, VectorLayout
from prunecast.kernels.balanced.programs import READ_BYTES
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.plan.program import Code, Instruction, Op, WarpProgram

__all__ = ["vector_programs"]

SEGMENTS_AT_ONCE = 8
"""Segments of which a warp reads four elements of B each; from the source."""
ELEMENTS_AT_ONCE = 4
"""Elements that a warp reads of an L2 sector at once; the warps that read the others request it too."""
SAME_BANK = 4
"""Lanes that write to one bank, which they do in turn: the elements of a segment."""
ASKING_SHARE = 0.75
"""Share of the passes in which a warp requests lines that others' shared-memory writes do not hide. A second
round of pieces takes 850 to 1,080 cycles of a block alone, 1,330 with all passes serial; fitted to products
marked fit."""
PAIR = 2
"""Pieces of a warp that follow one another read neighbouring sectors: DRAM hands out two."""
ROUND_LOADS = 4
"""Pieces of B that a warp reads before it waits for them."""
SHUFFLES = 5
"""Shuffles of a sum over 32 lanes; each waits as long as a read of shared memory."""


class Chained(NamedTuple):
    """Instructions of which one waits for another."""

    issue: int
    wait: int
    """Cycles that a lone warp takes beside their issue: their stalls, and 30 for each read of a constant or
    of shared memory that the next one needs."""


# As compiled for sm_90. What other rows of a warp add is issued meanwhile
ASK_ISSUE, PIECE_ISSUE = 11, 10
"""For a piece of B that goes into the banks, before and after it has come."""
SET_UP = Chained(80, 60)
"""Once before B is spread, behind the wait for the launch before: 55 instructions, 40 of them integer ones,
of which a sub-partition takes one in two cycles."""
ROUND = Chained(0, 150)
"""Stall cycles of a round of pieces: strides of B are read from constants, twice in a row."""
CHUNK = Chained(34, 45)
"""For four elements of a row of weights."""
ASK = Chained(17, 36)
"""For the next four."""
FOUR_ROWS = 1.22
"""Cycles of an instruction of a chunk where a warp has four rows: of 190, asking included, 101 are for the
integer unit, which takes one in two cycles. Two blocks of 8192 x 2048 at 50 % on an SM take 250 cycles for a
chunk of a warp (8.1 us for all, clock stamps and `gpu_balanced_parts`)."""
ASK_MOVED = Chained(17, 110)
"""Where a round begins with them, which reads where they lie from constants."""


def vector_programs(
    layout: VectorLayout,
    k: int,
    rows: int,
    dtype: str,
    *,
    blocks: int = 1,
) -> tuple[WarpProgram, ...]:
    """Sixteen warps of `rows` rows each; B is spread over the banks once, weights come straight to registers.

    A step is 128 columns of A, of which the rows of a warp keep their share. All waits stand before the first
    step: B, then weights beyond those that are on their way from the beginning.

    Parameters
    ----------
    blocks : of the launch, all of which read the same B at once
    """
    element, index = DTYPE_BYTES[dtype], 1 if layout.places < 256 else 2
    steps = max(-(-k // 128), 1)
    chunk = 32 * 4 * rows * (element + index)
    ahead = min(_chunks_ahead(rows, index), layout.chunks)
    first = tuple(Instruction(Op.LOAD_A, chunk, 2 * rows, ahead=min(i, steps - 1)) for i in range(ahead))
    moved = _chunks_moved(rows, index, dtype)
    fma = max(round(4 * rows * layout.chunks / steps), 1)
    worker = WarpProgram(
        role="worker",
        warps=WARPS,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(
            *first,
            *_spread(layout, k, steps, element, blocks),
            *_chunks(layout, rows, chunk, ahead, moved, steps),
        ),
        step=(Instruction(Op.FMA, issue=fma),),
        end=(
            *(Instruction(Op.SHARED, 0, 2 * rows),) * SHUFFLES,
            Instruction(Op.ISSUE, issue=40),
            Instruction(Op.STORE_C, rows * element, 1),
        ),
    )
    return (worker,)


def _spread(layout: VectorLayout, k: int, steps: int, element: int, blocks: int) -> Code:
    """B into the banks: a warp reads four pieces and waits, those that are no four one by one.

    Of a matrix with fewer columns than the lanes have room for, some lanes read nothing. All blocks read the
    same lines at once, of which L2 hands out a sector a cycle.
    """
    pieces = -(-layout.places // WARPS)
    sizes = [1] * (pieces % ROUND_LOADS) + [ROUND_LOADS] * (pieces // ROUND_LOADS)
    reading = k / (32 * layout.places)
    lines = ASKING_SHARE * reading * _lines(layout.segment, element)
    landing = round(reading * SEGMENTS_AT_ONCE * SECTOR_BYTES)
    code: list[Instruction] = [_issue(SET_UP)]
    first = 0
    for size in sizes:
        pairs = range(first // PAIR, -(-(first + size) // PAIR))
        part = range(*(steps * pair // -(-pieces // PAIR) for pair in (pairs.start, pairs.stop)))
        code += [
            _issue(ROUND),
            Instruction(Op.SHARED, round(READ_BYTES * lines * size), ASK_ISSUE * size),
            *(Instruction(Op.LOAD_B, SECTOR_BYTES // ELEMENTS_AT_ONCE, 1, ahead=step) for step in part),
            Instruction(Op.WAIT_LOAD),
            Instruction(Op.ISSUE, size * blocks, 0),
            Instruction(Op.SHARED, (landing + READ_BYTES * SAME_BANK) * size, PIECE_ISSUE * size),
        ]
        first += size
    return (*code, Instruction(Op.SYNC))


def _lines(segment: int, element: int) -> int:
    """Lines of 128 bytes that a warp's read of eight neighbouring segments touches: each is a pass."""
    return min(max(SEGMENTS_AT_ONCE * segment * element // 128, 1), SEGMENTS_AT_ONCE)


def _chunks(layout: VectorLayout, rows: int, chunk: int, ahead: int, moved: int, steps: int) -> Code:
    """A round of `ahead` chunks begins when all that was asked for has come. One is asked for when another
    has been used up or, of the first `moved` of a round, just before that, and then waited for just behind
    it. Each is the weights of a step of its own: L2 has none of them.
    """
    multiply = (Instruction(Op.SHARED, READ_BYTES * 4 * rows, 0), _issue(CHUNK, rows))
    code: list[Instruction] = []
    for i in range(layout.chunks):
        if i % ahead == 0:
            code.append(Instruction(Op.WAIT_LOAD))
        asks = i + ahead < layout.chunks
        load = Instruction(Op.LOAD_A, chunk, 2 * rows, ahead=min(i + ahead, steps - 1))
        if asks and i % ahead < moved:
            asking = _issue(ASK if i % ahead else ASK_MOVED, rows)
            code += [asking, load, *multiply, Instruction(Op.WAIT_LOAD)]
        else:
            code += [*multiply, *((_issue(ASK, rows), load) if asks else ())]
    return tuple(code)


def _issue(chained: Chained, rows: int = 1) -> Instruction:
    factor = FOUR_ROWS if rows == 4 else 1.0
    return Instruction(Op.ISSUE, chained.wait, round(factor * chained.issue * rows))


def _chunks_ahead(rows: int, index_bytes: int) -> int:
    """As `AHEAD` of `kernels/balanced/cuda/vector.cu`."""
    return 2 if rows * (3 + index_bytes) > 14 else 3


def _chunks_moved(rows: int, index_bytes: int, dtype: str) -> int:
    """Chunks of a round that are loaded into other registers and moved over, as compiled for sm_90."""
    if rows == 1:
        return 1 if index_bytes == 1 else 3 * int(dtype == "fp32")
    return 3 * int(rows == 3 and index_bytes == 1 and dtype != "fp32")
