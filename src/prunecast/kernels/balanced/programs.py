"""Warp program of the balanced kernel for several tokens: what its warps read, multiply and wait for."""

from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.balanced.copies import (
    ALONE,
    BLOCK_TOKENS,
    FIRST_ISSUE,
    Sharers,
    TokenRow,
    step_copies,
)
from prunecast.kernels.balanced.layout import WARPS, BalancedLayout, busy_splits, dense_columns
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.plan.program import Code, Instruction, Op, WarpProgram

__all__ = ["READ_BYTES", "matrix_programs"]

PIECES = 4
"""Pieces of a step's reads and products, which alternate: in one piece the last warp would multiply alone."""
LONE_COLUMN_CYCLES = 80
"""Cycles in which a warp multiplies a dense column while others wait for it: 38 or 47 instructions, and two
dependent shared-memory reads for two columns."""
READ_BYTES = 128
"""Shared memory moves this many bytes a clock."""


class Work(NamedTuple):
    """Work of a warp for 64 tokens in a step, without the step's beginning and its copies."""

    port: float
    """Clocks of the port of shared memory."""
    issue: float
    """Cycles of its sub-partition."""


class Products(NamedTuple):
    """What a warp multiplies."""

    dense: Work
    """A column for all 16 rows of a group."""
    rest: Work
    """Four elements of the rest, one for each quarter."""


FP32 = Products(Work(12.5, 38.0), Work(9.5, 12.0))
"""Words that shared memory hands out. What 4096 x 4096 takes at 50 to 90 % leaves as much for them, within
4 % (H200, 2026-11-20, 0006)."""
HALF = Products(Work(0.0, 62.0), Work(0.0, 24.7))
"""46 and 20 instructions, conversions included, of which a sub-partition gets through 0.75 and 0.8 a cycle:
measured steps of a kernel that copies nothing (`gpu_balanced_parts`, 0006). Words of shared memory are 8.5
and 5.5 clocks of the 15 and 6 that an SM takes, and copies beside them cost only their instructions."""

# Counted in code compiled for sm_90
STEP_ISSUE, STEP_WAIT = 140, 50
"""At the top of a step and for its record, of a warp: 100 instructions, of which 70 are for the integer unit,
which takes one in two cycles; and what the first of them wait for one another."""
STORES_OF_SUMS, SUM_PASSES = 8, 4
"""Stores of 16 bytes a lane with which a warp hands its sums over, and passes of each. Every warp goes
through those of all splits; those that it leaves out pass the port once (2,530 and 1,550 cycles in all for
16 and 8 splits, clock stamps of 2026-11-21)."""
ADD_ISSUE, ADD_CYCLES = 41, 79
"""Instructions of a warp that adds the sums of one more split, and cycles from one to the next (540 to 560
for 8 splits)."""
LOOPED_SPLITS, ADD_IN_LOOP = 16, 100
"""From so many K splits on, partial sums are read and added two splits at a time (1,500 cycles)."""
STORE_ISSUE, STORE_WAIT = 112, 300
"""Issue slots of a warp that rounds and stores its sums, and stall cycles of a lone warp besides."""


def matrix_programs(
    layout: BalancedLayout,
    splits: int,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    *,
    sharers: Sharers = ALONE,
) -> tuple[WarpProgram, ...]:
    """Sixteen warps; a step is one window for each of the `splits`, of which a warp does one.

    Parameters
    ----------
    n : tokens in all; where a block has fewer than it could, zeros stand for the others
    sharers : of rows of B
    """
    products = FP32 if dtype == "fp32" else HALF
    row, fills_port = TokenRow(n, DTYPE_BYTES[dtype]), products.dense.port > 0.0
    copies = step_copies(layout, splits, row, gpu, sharers, fills_port=fills_port)
    rows, top = copies.rows, STEP_WAIT + 4 * STEP_ISSUE
    # Where a record lies is read first; blocks of a first wave do so while the launch before ends
    found = gpu.dram_latency_cycles * (sharers.waves - 1) // sharers.waves
    columns = dense_columns(layout, splits)
    uneven = round((columns.most - columns.mean) * LONE_COLUMN_CYCLES)
    step = (
        Instruction(Op.WAIT_FULL),
        Instruction(Op.SYNC),
        rows._replace(ahead=1, late=rows.late + top),
        Instruction(Op.ISSUE, STEP_WAIT),
        Instruction(Op.ISSUE, 0, STEP_ISSUE),
        copies.record._replace(ahead=1),
        copies.asking._replace(ahead=1),
        # No barrier of the kernel's, whose warps get on alike: all have asked before one multiplies
        Instruction(Op.SYNC),
        *copies.zeros,
        *_piece(layout, splits, products, gpu) * PIECES,
        Instruction(Op.ISSUE, uneven),
    )
    worker = WarpProgram(
        role="worker",
        warps=WARPS,
        start=(Instruction(Op.ISSUE, issue=40),),
        fill=(
            rows._replace(late=rows.late + 4 * FIRST_ISSUE),
            Instruction(Op.ISSUE, 0, FIRST_ISSUE),
            copies.record._replace(late=found),
            copies.asking,
        ),
        step=step,
        end=_end(splits, row.block_bytes),
    )
    return (worker,)


def _piece(layout: BalancedLayout, splits: int, products: Products, gpu: GpuSpec) -> Code:
    """Reads and products of a part of a step. Where the port of shared memory has room for them, reads are
    only what the first one waits.
    """
    dense, rest = dense_columns(layout, splits).mean, 4 * layout.rest
    busy = busy_splits(layout, splits)
    port = (products.dense.port * dense + products.rest.port * rest) * READ_BYTES * busy.share
    issue = (products.dense.issue * dense + products.rest.issue * rest) * busy.crowded
    reads = Instruction(Op.SHARED, max(round(port / PIECES), 1))
    if port == 0.0:
        reads = Instruction(Op.ISSUE, gpu.shared_latency_cycles)
    return (reads, Instruction(Op.FMA, issue=max(round(issue / PIECES), 1)))


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
