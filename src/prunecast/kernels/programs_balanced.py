"""Warp programs of the balanced kernel: what its warps read, multiply and wait for, from its layout."""

from typing import NamedTuple

from prunecast.kernels.balanced_layout import BalancedLayout, VectorLayout
from prunecast.kernels.plan import DTYPE_BYTES
from prunecast.kernels.program import Code, Instruction, Op, WarpProgram

__all__ = ["matrix_programs", "vector_programs"]

WARPS = 16
READ_BYTES = 128
"""Shared memory moves this many bytes a clock."""
BLOCK_TOKENS = 64


class Clocks(NamedTuple):
    """Of an SM for 64 tokens, products included that nothing hides."""

    dense: float
    """A column for all 16 rows of a group."""
    rest: float
    """Four elements of the rest, one for each quarter of a warp."""


FP32 = Clocks(12.5, 9.5)
"""Words that shared memory hands out. Measured, less what else a step does: 11.7 and 8.3 to 9.4 (0006)."""
HALF = Clocks(13.7, 6.6)
"""Measured likewise, H200, 2026-11-20, 4096 x 4096: 13.7 at 50 %, 6.8 at 75 and 5.9 at 90 %. Half of the
words of B, 8.5 and 5.5 in all, but eight conversions for each: 46 and 20 instructions, four of which issue at
once.
"""

# Counted in code compiled for sm_90
STEP_ISSUE = 120
"""Instructions of a warp at the top of a step and for its record."""
COPY_ISSUE = 20
"""For 16 bytes of B a thread."""
PIECE_ISSUE = 25
"""For a piece of B that goes into the banks."""
CHUNK_ISSUE = 50
"""For four elements of a row of weights, those that load the next ones included."""
SHUFFLES = 5
"""Of a sum over 32 lanes; each waits as long as a read of shared memory."""
ROUND_LOADS = 4
"""Pieces of B that a warp of the kernel for one token reads before it waits for them."""


def matrix_programs(
    layout: BalancedLayout, splits: int, n: int, dtype: str, *, overlaps: bool = False
) -> tuple[WarpProgram, ...]:
    """Sixteen warps; a step is one window for each of the `splits`, of which a warp does one.

    Parameters
    ----------
    n : tokens in all; where a block has fewer than it could, zeros stand for the others
    overlaps : a launch begins while the one before it ends
    """
    per_k16 = 16 / (layout.window * splits)
    row_bytes = BLOCK_TOKENS * DTYPE_BYTES[dtype]
    dense, rest = float(layout.dense.mean()), 4 * layout.rest
    clocks = FP32 if dtype == "fp32" else HALF
    reads = round((clocks.dense * dense + clocks.rest * rest) * READ_BYTES * per_k16)
    others = round((6 * dense + 4 * rest) * per_k16)
    fma = round((32 * dense + 8 * rest) * per_k16)
    copies = _window_copies(layout, row_bytes, n, per_k16)
    ahead = tuple(instruction._replace(ahead=1) for instruction in copies)
    step = (
        Instruction(Op.WAIT_FULL),
        Instruction(Op.SYNC),
        *ahead,
        Instruction(Op.SHARED, max(reads, 1), max(others, 1), per_k16=True),
        Instruction(Op.FMA, issue=max(fma, 1), per_k16=True),
    )
    sums = BLOCK_TOKENS * 16 * 4
    end = (
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, 2 * sums, 16),
        Instruction(Op.SYNC),
        Instruction(Op.STORE_C, 16 * row_bytes // splits, 8),
    )
    worker = WarpProgram(
        role="worker",
        warps=WARPS,
        start=() if overlaps else (Instruction(Op.ISSUE, issue=40),),
        fill=copies,
        step=step,
        end=end,
    )
    return (worker,)


def _window_copies(layout: BalancedLayout, row_bytes: int, n: int, per_k16: float) -> Code:
    """Records, each by its warp, and windows of B, zeros included where tokens are missing."""
    record = max(round(16 * float(layout.words.mean()) * per_k16), 1)
    zeros = 16 * row_bytes * max(BLOCK_TOKENS - n, 0) // (BLOCK_TOKENS * WARPS)
    issue = COPY_ISSUE * 16 * row_bytes // (16 * 32 * WARPS)
    return (
        Instruction(Op.ISSUE, issue=STEP_ISSUE),
        Instruction(Op.ISSUE, issue=issue, per_k16=True),
        Instruction(Op.COPY_A, record, 1, per_k16=True),
        Instruction(Op.COPY_B, row_bytes, 1, per_k16=True, leader=True),
        *((Instruction(Op.SHARED, zeros, 0, per_k16=True),) if zeros else ()),
    )


def vector_programs(
    layout: VectorLayout, k: int, rows: int, dtype: str, *, overlaps: bool = False
) -> tuple[WarpProgram, ...]:
    """Sixteen warps of `rows` rows each; B is spread over the banks once, weights come straight to registers.

    A step is 128 columns of A, of which the rows of a warp keep their share. All waits stand before the first
    step: B, then weights beyond those that are on their way from the beginning.

    Parameters
    ----------
    overlaps : a launch begins while the one before it ends: its first weights are there by then, and in turn
        it fetches those of the next
    """
    element, index = DTYPE_BYTES[dtype], 1 if layout.places < 256 else 2
    steps = max(-(-k // 128), 1)
    chunk = 32 * 4 * rows * (element + index)
    ahead = min(_chunks_ahead(rows, index), layout.chunks)
    first = (Instruction(Op.LOAD_A, ahead * chunk, 2),)
    fma = max(round(4 * rows * layout.chunks / steps), 1)
    worker = WarpProgram(
        role="worker",
        warps=WARPS,
        start=() if overlaps else (Instruction(Op.ISSUE, issue=20),),
        begin=(
            *(() if overlaps else first),
            *_spread(layout, steps, element),
            *_later_chunks(layout, rows, chunk, ahead),
            *(first if overlaps else ()),
        ),
        step=(Instruction(Op.FMA, issue=fma),),
        end=(
            *(Instruction(Op.SHARED, 0, 2 * rows),) * SHUFFLES,
            Instruction(Op.ISSUE, issue=40),
            Instruction(Op.STORE_C, rows * element, 1),
        ),
    )
    return (worker,)


def _spread(layout: VectorLayout, steps: int, element: int) -> Code:
    """B into the banks: a warp reads four pieces and waits, those that are no four one by one."""
    pieces = -(-layout.places // WARPS)
    rounds = pieces // ROUND_LOADS + pieces % ROUND_LOADS
    spread = Instruction(Op.SHARED, READ_BYTES * pieces // rounds, PIECE_ISSUE * pieces // rounds)
    code: list[Instruction] = []
    for i in range(rounds):
        part = range(steps * i // rounds, steps * (i + 1) // rounds)
        code += [Instruction(Op.LOAD_B, element, 1, ahead=step) for step in part]
        code += [Instruction(Op.WAIT_LOAD), spread]
    return (*code, Instruction(Op.SYNC))


def _later_chunks(layout: VectorLayout, rows: int, chunk: int, ahead: int) -> Code:
    """Weights are asked for as others are used up, `ahead` at a time, and waited for once (sm_90, 0006)."""
    multiply = Instruction(Op.SHARED, READ_BYTES * 4 * rows, (CHUNK_ISSUE - 4) * rows)
    code: list[Instruction] = []
    for begin in range(0, layout.chunks, ahead):
        later = min(layout.chunks - begin - ahead, ahead)
        if later > 0:
            code += [Instruction(Op.LOAD_A, later * chunk, 2 * later), Instruction(Op.WAIT_LOAD)]
        code += [multiply] * min(ahead, layout.chunks - begin)
    return tuple(code)


def _chunks_ahead(rows: int, index_bytes: int) -> int:
    """As `AHEAD` of `kernels/cuda/balanced/vector.cu`."""
    return 2 if rows * (3 + index_bytes) > 14 else 3
