"""Warp program of the balanced kernel for several tokens: what its warps read, multiply and wait for."""

from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.balanced.layout import WARPS, BalancedLayout, dense_columns
from prunecast.kernels.plan import DTYPE_BYTES
from prunecast.kernels.program import Code, Instruction, Op, WarpProgram

__all__ = ["READ_BYTES", "matrix_programs"]

PIECES = 4
"""Of a step's reads and products, which take turns: whole, the last warp would multiply alone."""
COPY_PASSES = 2
"""Through the port, of an asynchronous copy of 16 bytes a lane: its addresses, those of four lines, then
what lands. Steps of fp32 with 64 more of them take 8.6 clocks more for each (0006)."""
LONE_COLUMN_CYCLES = 80
"""Of a warp that multiplies a dense column while others wait for it: its 38 or 47 instructions, and two
reads of shared memory for two columns, of which the second needs the first."""
REST_COLUMN = 12 / 38
"""Of a dense column, what a warp issues for an element of the rest for each quarter."""
READ_BYTES = 128
"""Shared memory moves this many bytes a clock."""
BLOCK_TOKENS = 64


class Clocks(NamedTuple):
    """Of an SM for 64 tokens, the step's beginning and its copies left out."""

    dense: float
    """A column for all 16 rows of a group."""
    rest: float
    """Four elements of the rest, one for each quarter of a warp."""


FP32 = Clocks(12.5, 9.5)
"""Words that shared memory hands out. What 4096 x 4096 takes at 50 to 90 % leaves as much for them, within
4 % (H200, 2026-11-20, 0006)."""
HALF = Clocks(14.9, 6.3)
"""Measured: 14.9 where records come from L2, 15.9 where from DRAM, and 6.2 to 6.8 (6.25 of the steps that
2048 x 2048 x 256 takes at 75 %). Half of the words of B,
8.5 and 5.5 in all, but eight conversions for each: 47 and 20 instructions, four of which issue at once."""

# Counted in code compiled for sm_90
STEP_ISSUE = 120
"""Instructions of a warp at the top of a step and for its record."""
FIRST_ISSUE = 30
"""Before the first copies of B, behind the wait for the launch before; records are asked for before it. Four
and eight copies a thread are asked for 430 and 750 to 910 cycles behind that wait (clock stamps)."""
SAME_ROWS_COUNT = 512
"""Rows for which `GpuSpec.l2_same_row_cycles` says how long L2 takes."""
COPY_ISSUE = 20
"""For 16 bytes of B a thread."""


STORES_OF_SUMS, SUM_PASSES = 8, 4
"""Stores of 16 bytes a lane with which a warp hands its sums over, and passes of each. Every warp goes
through those of all splits; those that it leaves out pass the port once (2,530 and 1,550 cycles in all for
16 and 8 splits, clock stamps of 2026-11-21)."""
ADD_ISSUE, ADD_CYCLES = 41, 79
"""Instructions of a warp that adds the sums of one more split, and cycles from one to the next (540 to 560
for 8 splits)."""
LOOPED_SPLITS, ADD_IN_LOOP = 16, 100
"""Of so many splits two at a time are read and added before the next two are read (1,500 cycles)."""
STORE_ISSUE, STORE_WAIT = 112, 300
"""Of a warp that rounds and stores its sums, and cycles that a lone warp takes beside."""


def matrix_programs(
    layout: BalancedLayout,
    splits: int,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    *,
    blocks: int = 1,
    overlaps: bool = False,
) -> tuple[WarpProgram, ...]:
    """Sixteen warps; a step is one window for each of the `splits`, of which a warp does one.

    Parameters
    ----------
    n : tokens in all; where a block has fewer than it could, zeros stand for the others
    blocks : that read the same rows of B at once
    overlaps : a launch begins while the one before it ends
    """
    per_k16 = 16 / (layout.window * splits)
    row_bytes = BLOCK_TOKENS * DTYPE_BYTES[dtype]
    columns = dense_columns(layout, splits)
    dense, rest = columns.mean, 4 * layout.rest
    clocks = FP32 if dtype == "fp32" else HALF
    reads = round((clocks.dense * dense + clocks.rest * rest) * READ_BYTES * per_k16 / PIECES)
    others = round((6 * dense + 4 * rest) * per_k16 / PIECES)
    fma = round((32 * dense + 8 * rest) * per_k16 / PIECES)
    copies = _window_copies(layout, row_bytes, n, per_k16)
    top = Instruction(Op.ISSUE, issue=STEP_ISSUE)
    ahead = tuple(instruction._replace(ahead=1) for instruction in copies)
    piece = (
        Instruction(Op.SHARED, max(reads, 1), max(others, 1), per_k16=True),
        Instruction(Op.FMA, issue=max(fma, 1), per_k16=True),
    )
    uneven = round((columns.most - columns.mean) * LONE_COLUMN_CYCLES)
    step = (
        Instruction(Op.WAIT_FULL),
        Instruction(Op.SYNC),
        top,
        *ahead,
        *piece * PIECES,
        Instruction(Op.ISSUE, uneven),
    )
    worker = WarpProgram(
        role="worker",
        warps=WARPS,
        start=() if overlaps else (Instruction(Op.ISSUE, issue=40),),
        fill=(
            Instruction(Op.ISSUE, _behind_others(layout, splits, n, dtype, gpu, blocks), FIRST_ISSUE),
            *copies,
        ),
        step=step,
        end=(Instruction(Op.ISSUE, _last_windows(layout, splits)), *_end(splits, row_bytes)),
    )
    return (worker,)


def _behind_others(layout: BalancedLayout, splits: int, n: int, dtype: str, gpu: GpuSpec, blocks: int) -> int:
    """Cycles by which the first rows of B come later because all blocks ask for the same lines at once; what
    lies under a block's own asking is none.
    """
    columns, element = layout.window * splits, DTYPE_BYTES[dtype]
    row_bytes = min(n, BLOCK_TOKENS) * element
    of_each = float(np.interp(row_bytes, gpu.l2_same_row_bytes, gpu.l2_same_row_cycles))
    cycles = of_each * blocks * columns / SAME_ROWS_COUNT
    asking = 4 * (FIRST_ISSUE + COPY_ISSUE * BLOCK_TOKENS * element * columns // (16 * 32 * WARPS))
    return max(round(cycles) - asking, 0)


def _last_windows(layout: BalancedLayout, splits: int) -> int:
    """Cycles for which warps with a window of a last step that has fewer windows than splits work alone. The
    step shares its columns out evenly, as if all warps had a part.
    """
    windows = int(layout.dense.shape[1]) % splits
    if windows == 0:
        return 0
    columns = float(layout.dense.mean()) + REST_COLUMN * 4 * layout.rest
    return round((1.0 - windows / splits) * columns * LONE_COLUMN_CYCLES)


def _end(splits: int, row_bytes: int) -> Code:
    """Sums of the other splits go to the first one's warps through shared memory; these add them and
    store C.
    """
    others = splits - 1
    handed = BLOCK_TOKENS * 16 * 4 * others // splits
    asked = READ_BYTES * STORES_OF_SUMS * others
    passed = asked + handed * (SUM_PASSES - 1) // SUM_PASSES
    added = ADD_ISSUE * others // splits
    alone = (ADD_IN_LOOP if splits == LOOPED_SPLITS else ADD_CYCLES) * others
    waits = alone - WARPS * handed // READ_BYTES - added
    return (
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, passed, max(STORES_OF_SUMS * others, 1)),
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, handed, 0),
        Instruction(Op.ISSUE, max(waits, 0), max(added, 1)),
        Instruction(Op.ISSUE, STORE_WAIT, STORE_ISSUE),
        Instruction(Op.STORE_C, 16 * row_bytes // splits, 8),
    )


def _window_copies(layout: BalancedLayout, row_bytes: int, n: int, per_k16: float) -> Code:
    """Records, each by its warp, and windows of B, zeros included where tokens are missing."""
    record = max(round(16 * float(layout.words.mean()) * per_k16), 1)
    again = (COPY_PASSES - 1) * record
    zeros = 16 * row_bytes * max(BLOCK_TOKENS - n, 0) // (BLOCK_TOKENS * WARPS)
    passes = COPY_PASSES * zeros + (COPY_PASSES - 1) * (16 * row_bytes // WARPS - zeros)
    issue = round(COPY_ISSUE * 16 * row_bytes / (16 * 32 * WARPS * per_k16))
    return (
        # Columns that are not there are asked for as the others are
        Instruction(Op.COPY_A, 0, issue),
        Instruction(Op.COPY_A, record, 1, per_k16=True, operand_bytes=again),
        Instruction(Op.COPY_B, row_bytes, 1, per_k16=True, leader=True, operand_bytes=WARPS * passes),
    )
