"""Warp program of the balanced kernel for one token: B is distributed over the banks of shared memory, and
weights are loaded into registers.

A *piece* of B is what a warp reads with one load: four elements of each of eight segments. A *chunk* is four
elements per lane of a row of weights.
"""

from typing import NamedTuple

from prunecast.hardware.spec import SECTOR_BYTES
from prunecast.kernels.balanced.layout import WARPS, VectorLayout
from prunecast.kernels.balanced.programs import READ_BYTES
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.plan.program import Charge, Code, Instruction, Op, WarpProgram

MOST_REGISTERS = 96
"""Maximum registers per thread, as in the plan. Kind: CUDA source, `vector.cu`, launch bounds."""


FEWEST_REGISTERS = 40
"""Registers per thread in fp16 with one row per warp and segments of 64 columns, so that three blocks fit on
an SM; bf16 has 44. Kind: as-compiled, sm_90."""


def vector_registers(rows: int, segment: int, index_bytes: int, dtype: str) -> int:
    """Return the registers per thread of the kernel for one token, as compiled for sm_90.

    Parameters
    ----------
    rows : rows of a warp, 1 to 4
    segment : columns of a segment
    index_bytes : bytes of an index, 1 or 2
    """
    if dtype == "fp32":
        return _FP32[index_bytes][rows - 1]
    if rows > 1:
        return _HALF[index_bytes][rows - 2]
    if index_bytes == 1 and segment == 64 and dtype == "fp16":
        return FEWEST_REGISTERS
    return 48 if index_bytes == 1 else 52


_FP32 = {1: (54, 70, 85, 80), 2: (56, 75, 75, 92)}
"""Bytes of an index -> registers per thread of fp32 for one to four rows per warp.

Kind: as-compiled, sm_90.
"""
_HALF = {1: (56, 79, 64), 2: (64, 64, 72)}
"""Bytes of an index -> registers per thread of fp16 and bf16 for two to four rows per warp, correct within
three for any segment.

Kind: as-compiled, sm_90.
"""


SEGMENTS_AT_ONCE = 8
"""Number of segments in a piece of B, the data that a warp reads with one load. Kind: CUDA source,
`vector.cu`."""
ELEMENTS_AT_ONCE = 4
"""Elements of each segment in a piece of B (the data that a warp reads with one load). They are part of one
L2 sector, the rest of which other warps request. Kind: CUDA source, `vector.cu`."""
SAME_BANK = 4
"""Number of lanes that write to the same bank (bank conflict): one for each of the elements that a warp's
load of B reads of a segment. Kind: CUDA source, `vector.cu`."""
PAIR = 2
"""Number of consecutive loads of B of a warp that read neighbouring sectors, since DRAM delivers two sectors
at a time. Kind: CUDA source, `vector.cu`."""
ROUND_LOADS = 4
"""Loads of B that a warp issues before it waits for them (a round). Kind: CUDA source, `vector.cu`."""
SHUFFLES = 5
"""Shuffles to reduce a sum over 32 lanes; each has the latency of a shared-memory read. Kind: CUDA source,
`vector.cu`."""
ASK_ISSUE, PIECE_ISSUE = 11, 10
"""Instructions of a warp per load of B, before and after the data have arrived. Kind: as-compiled, sm_90."""


class _Chained(NamedTuple):
    """Group of dependent instructions. During its latency, a warp issues the instructions for its other
    rows.
    """

    issue: int
    """Issue slots of the group, in cycles of a sub-partition."""
    wait: str
    """Cost entry: dependency latency of the group in cycles, excluding issue slots, for a single resident
    warp."""


SET_UP = _Chained(80, "set_up_wait")
"""Instructions between the wait for the preceding launch and the first piece of B: 55 instructions, 40 of
which are integer instructions, of which a sub-partition accepts one every two cycles. Kind: as-compiled,
sm_90."""
ROUND = _Chained(0, "round_wait")
"""Start of a round of up to `ROUND_LOADS` loads of B: two dependent loads of constants for the strides of B.
Kind: as-compiled, sm_90."""
CHUNK = _Chained(34, "chunk_wait")
"""Multiplication of one chunk (four elements per lane) of a row of weights by B: 34 issue slots and a
dependency latency. Kind: as-compiled, sm_90."""
ASK = _Chained(17, "ask_wait")
"""Load of the next chunk (four elements per lane) of a row of weights: 17 issue slots and a dependency
latency. Kind: as-compiled, sm_90."""
ASK_MOVED = _Chained(17, "moved_ask_wait")
"""Like `ASK`, for the load at the start of a round of chunks (see `_chunks`): the warp first reads the
position of the chunk from constant memory. Kind: as-compiled, sm_90."""


def vector_programs(
    layout: VectorLayout,
    k: int,
    rows: int,
    dtype: str,
    *,
    blocks: int = 1,
) -> tuple[WarpProgram, ...]:
    """Return the program of the sixteen warps of a block, which first distribute B over the banks of shared
    memory.

    Weights are loaded directly into registers. A k-step has `VectorLayout.step_columns` columns of A, of
    which each row of a warp keeps a fraction. All waits are before the first step: first for B, then for the
    weights that are not prefetched at the beginning.

    Parameters
    ----------
    k : columns of A
    rows : rows of a warp, 1 to 4
    blocks : number of blocks of the launch, which all read the same B at once
    """
    element, index = DTYPE_BYTES[dtype], layout.index_bytes
    steps = max(-(-k // layout.step_columns(k)), 1)
    chunk = 32 * 4 * rows * (element + index)
    # Chunks of a round that are prefetched: `AHEAD` of `kernels/balanced/cuda/vector.cu`
    ahead = min(2 if rows * (3 + index) > 14 else 3, layout.chunks)
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
    """Return the instructions that distribute B over the banks. A warp loads `ROUND_LOADS` pieces (the data
    of one load instruction) at a time and waits for them. If the number of pieces is no multiple of
    `ROUND_LOADS`, the remainder is loaded first, one piece at a time.

    If a matrix has fewer columns than the lanes can hold, some lanes read nothing. All blocks read the same
    lines at once, and L2 delivers one sector of a line per cycle.
    """
    pieces = -(-layout.places // WARPS)
    sizes = [1] * (pieces % ROUND_LOADS) + [ROUND_LOADS] * (pieces // ROUND_LOADS)
    reading = k / (32 * layout.places)
    lines = READ_BYTES * reading * _lines(layout.segment, element)
    landing = round(reading * SEGMENTS_AT_ONCE * SECTOR_BYTES)
    code: list[Instruction] = [_issue(SET_UP)]
    first = 0
    for size in sizes:
        pairs = range(first // PAIR, -(-(first + size) // PAIR))
        # k-steps whose rows of B this round requests: all steps are divided evenly among the pairs of loads
        part = range(*(steps * pair // -(-pieces // PAIR) for pair in (pairs.start, pairs.stop)))
        code += [
            _issue(ROUND),
            # Requests: the port looks up every line that they touch
            Instruction(Op.SHARED, issue=ASK_ISSUE * size, charges=(Charge("asking_share", lines * size),)),
            *(Instruction(Op.LOAD_B, SECTOR_BYTES // ELEMENTS_AT_ONCE, 1, ahead=step) for step in part),
            Instruction(Op.WAIT_LOAD),
            # L2 serves the same line to one block after the other
            Instruction(Op.ISSUE, size * blocks, 0),
            # Arrival through the port, and the stores to shared memory with their bank conflicts
            Instruction(Op.SHARED, (landing + READ_BYTES * SAME_BANK) * size, PIECE_ISSUE * size),
        ]
        first += size
    return (*code, Instruction(Op.SYNC))


def _lines(segment: int, element: int) -> int:
    """Return the number of 128-byte lines that one load of B by a warp touches. Each line needs one pass."""
    return min(max(SEGMENTS_AT_ONCE * segment * element // 128, 1), SEGMENTS_AT_ONCE)


def _chunks(layout: VectorLayout, rows: int, chunk: int, ahead: int, moved: int, steps: int) -> Code:
    """Return the loads and products of all chunks of weights, in rounds of `ahead` prefetched chunks.

    A round begins when all its chunks have arrived. For the first `moved` chunks i of a round, the warp
    requests chunk i + `ahead`, multiplies chunk i, and waits until all requested chunks have arrived. For
    the other chunks of the round, it first multiplies chunk i, then requests chunk i + `ahead`, and does not
    wait. Each chunk is modelled as the weights of a separate k-step, because no chunk is in L2 before its
    load.
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


def _issue(chained: _Chained, rows: int = 1) -> Instruction:
    """Return the instruction that issues a group of dependent instructions for `rows` rows. With four rows
    per warp, issue needs more cycles than there are instructions.
    """
    wait, issue = Charge(chained.wait), chained.issue * rows
    if rows < 4 or not issue:
        return Instruction(Op.ISSUE, issue=issue, charges=(wait,))
    return Instruction(Op.ISSUE, issue=0, charges=(wait, Charge("four_rows_cycles", issue, "issue")))


def _chunks_moved(rows: int, index_bytes: int, dtype: str) -> int:
    """Return the number of chunks of each round that are prefetched into temporary registers, as compiled for
    sm_90.

    A chunk is four elements per lane of a row of weights; a round is the chunks in flight at once
    (`_chunks`). The compiled code requests such a chunk while its final registers still hold the chunk that
    is multiplied next, and moves the data after that multiplication.
    """
    if rows == 1:
        return 1 if index_bytes == 1 else 3 * int(dtype == "fp32")
    return 3 * int(rows == 3 and index_bytes == 1 and dtype != "fp32")
