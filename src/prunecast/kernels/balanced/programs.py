"""Warp program of the balanced kernel for several tokens: what its warps read, multiply and wait for."""

from typing import NamedTuple

from prunecast.hardware.costs import Costs
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.balanced.copies import (
    ALONE,
    BLOCK_TOKENS,
    FIRST_ISSUE,
    Sharers,
    TokenRow,
    balanced_costs,
    step_copies,
)
from prunecast.kernels.balanced.layout import WARPS, BalancedLayout, busy_splits, dense_columns
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.plan.program import Code, Instruction, Op, WarpProgram

PIECES = 4
"""Parts of a step's reads and products, which take turns: whole, the last warp would multiply alone. Kind:
choice, how finely the model interleaves them."""
READ_BYTES = 128
"""Bytes of shared memory a clock. Kind: datasheet, CUDA C++ Programming Guide, 32 banks of four bytes."""
STEP_ISSUE = 140
"""Cycles that issue takes at the top of a step and for its record, of a warp: 100 instructions, of which 70
are for the integer unit, which takes one in two cycles. Kind: as-compiled, sm_90."""
STORES_OF_SUMS, SUM_PASSES = 8, 4
"""Stores of 16 bytes a lane with which a warp hands its sums over, and passes of each. Every warp goes
through those of all splits; those that it leaves out pass the port once. Kind: CUDA source, `matrix.cu`."""
ADD_ISSUE, STORE_ISSUE = 41, 112
"""Instructions of a warp that adds the sums of one more split, and of one that rounds and stores its sums.
Kind: as-compiled, sm_90."""
LOOPED_SPLITS = 16
"""Splits of which two at a time are read and added before the next two are read. Kind: CUDA source,
`matrix.cu`."""


class Work(NamedTuple):
    """Work of a warp for 64 tokens in a step, without the step's beginning and its copies."""

    port: float
    """Clocks of the port of shared memory."""
    issue: float
    """Cycles of its sub-partition."""


class _Products(NamedTuple):
    """What a warp multiplies."""

    dense: Work
    """A column for all 16 rows of a group."""
    rest: Work
    """Four elements of the rest, one for each quarter."""


def _products(dtype: str, costs: Costs) -> _Products:
    """fp32 waits for the words that shared memory hands out, the others for issue, conversions included."""
    if dtype == "fp32":
        dense = Work(costs["fp32_dense_port"], costs["fp32_dense_issue"])
        return _Products(dense, Work(costs["fp32_rest_port"], costs["fp32_rest_issue"]))
    return _Products(Work(0.0, costs["half_dense_issue"]), Work(0.0, costs["half_rest_issue"]))


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
    costs = balanced_costs(gpu)
    products = _products(dtype, costs)
    row, fills_port = TokenRow(n, DTYPE_BYTES[dtype]), products.dense.port > 0.0
    copies = step_copies(layout, splits, row, gpu, sharers, fills_port=fills_port)
    rows, top = copies.rows, costs.whole("step_wait") + 4 * STEP_ISSUE
    # Where a record lies is read first; blocks of a first wave do so while the launch before ends
    found = gpu.dram_latency_cycles * (sharers.waves - 1) // sharers.waves
    columns = dense_columns(layout, splits)
    uneven = round((columns.most - columns.mean) * costs["lone_column_cycles"])
    step = (
        Instruction(Op.WAIT_FULL),
        Instruction(Op.SYNC),
        rows._replace(ahead=1, late=rows.late + top),
        Instruction(Op.ISSUE, costs.whole("step_wait")),
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
        end=_end(splits, row.block_bytes, costs),
    )
    return (worker,)


def _piece(layout: BalancedLayout, splits: int, products: _Products, gpu: GpuSpec) -> Code:
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


def _end(splits: int, row_bytes: int, costs: Costs) -> Code:
    """Sums of the other splits go to the first one's warps through shared memory; these add them and
    store C.
    """
    others = splits - 1
    handed = BLOCK_TOKENS * 16 * 4 * others // splits
    asked = READ_BYTES * STORES_OF_SUMS * others
    passed = asked + handed * (SUM_PASSES - 1) // SUM_PASSES
    added = ADD_ISSUE * others // splits
    alone = costs.whole("looped_add_cycles" if splits == LOOPED_SPLITS else "add_cycles") * others
    waits = alone - WARPS * handed // READ_BYTES - added
    return (
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, passed, max(STORES_OF_SUMS * others, 1)),
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, handed, 0),
        Instruction(Op.ISSUE, max(waits, 0), max(added, 1)),
        Instruction(Op.ISSUE, costs.whole("store_wait"), STORE_ISSUE),
        Instruction(Op.STORE_C, 16 * row_bytes // splits, 8),
    )
