"""Warp program of the kernel for few tokens: every warp copies, multiplies and never waits for another.

A step is one k16 for each warp. Copies run `depth` k16s ahead: those of the next step but `depth` are asked
for as soon as a step has been multiplied, which is before the next one is waited for.
"""

from prunecast.kernels.plan import DTYPE_BYTES
from prunecast.kernels.program import Code, Instruction, Op, WarpProgram
from prunecast.kernels.programs_end import copies
from prunecast.kernels.small_n_forms import SmallForm, copies_per_row

__all__ = ["small_programs"]

COLUMN_BYTES = 2
FMA = 16 * 8 * 16
"""Of one mma.m16n8k16."""
ISSUE_PER_STEP = 48
"""Addresses, loop and permutes of a k16 beside its copies, reads and products: the loop of a 64 x 16 block
has about 100 instructions (compiled for sm_90a)."""


def small_programs(form: SmallForm, n: int, dtype: str) -> tuple[WarpProgram, ...]:
    """The program of all warps of a block.

    Parameters
    ----------
    n : tokens in all, on which the size of a copy depends
    """
    warps, element = form.warps, DTYPE_BYTES[dtype]
    weights = form.block_m * 16 * element // warps
    operands = (form.block_m + form.block_n) * 16 * element // warps
    products = form.block_m * form.block_n * 16 // warps
    step = (
        *_copies(form, n, weights, form.block_n * element, ahead=form.depth - 1),
        Instruction(Op.WAIT_FULL),
        Instruction(Op.SHARED, operands, 1, per_k16=True),
        Instruction(Op.MMA_SYNC, products, max(products // FMA, 1), per_k16=True),
        Instruction(Op.ISSUE, issue=ISSUE_PER_STEP),
    )
    columns = max(form.depth * 16 * COLUMN_BYTES, 1)
    worker = WarpProgram(
        role="worker",
        warps=warps,
        start=(Instruction(Op.ISSUE, issue=60),),
        begin=(Instruction(Op.LOAD_INDEX, columns), Instruction(Op.WAIT_LOAD)),
        fill=_copies(form, n, weights, form.block_n * element, ahead=0),
        step=step,
        end=_end(form, element),
    )
    return (worker,)


def _copies(form: SmallForm, n: int, weights: int, row_bytes: int, *, ahead: int) -> Code:
    rows = max(4 * copies_per_row(form, n) // form.warps, 1)
    return (
        Instruction(Op.COPY_A, weights, max(form.block_m // 16 // form.warps, 1), per_k16=True, ahead=ahead),
        Instruction(Op.GATHER_B, row_bytes, rows, per_k16=True, ahead=ahead),
    )


def _end(form: SmallForm, element: int) -> Code:
    """Sums of all warps through shared memory, each read once; the rows are shared evenly."""
    sums, warps = form.block_m * form.block_n * 4, form.warps
    own = form.block_m * form.block_n * element // warps
    per_lane = form.block_m * form.block_n // 32
    return (
        Instruction(Op.WAIT_MMA, 0),
        Instruction(Op.SHARED, sums, copies(sums)),
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, sums, 2 * copies(sums)),
        Instruction(Op.ISSUE, issue=per_lane + 40),
        Instruction(Op.STORE_C, max(own, 1), copies(own)),
    )
