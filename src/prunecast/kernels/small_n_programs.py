"""Warp program of the kernel for few tokens: every warp copies, multiplies and never waits for another.

A step is one k16 for each warp. Copies run `depth` k16s ahead: those of the next step but `depth` are asked
for as soon as a step has been multiplied, which is before the next one is waited for. What a launch that
overlaps has done before the launch before it ends, the wait for its first columns, is no part of the program.
"""

from prunecast.kernels.plan import DTYPE_BYTES
from prunecast.kernels.program import Code, Instruction, Op, WarpProgram
from prunecast.kernels.programs_end import copies
from prunecast.kernels.small_n_forms import SmallForm, k16_instructions, row_slot_bytes

__all__ = ["small_programs"]

COLUMN_BYTES = 2
BANKS_LEFT_OUT = 4
"""Ratio; from the layout. A row of B comes as eight pieces of a lane each, four lanes apart: what passes the
port with it fills a quarter of the banks."""

# Fitted to times of forms for 11008 x 4096 on an H200, 2026-11-21; 4096 x 4096 judges (0008)
ISSUED = 1.1
"""Ratio, fitted: instructions of a k16 over `k16_instructions`, which is right within a tenth."""
LANDING = 1.4
"""Ratio, fitted: time of the port of shared memory for rows of B that land, over what the banks say."""
PAUSES = 16
"""Count, fitted: dependent reads of shared memory that take as long as a warp waits for its own instructions
in a k16, times warps of a block. The more warps, the more the simulator has them wait for one another's
copies, which they do not do.
"""


def small_programs(form: SmallForm, n: int, dtype: str, *, overlaps: bool = False) -> tuple[WarpProgram, ...]:
    """The program of all warps of a block.

    Parameters
    ----------
    n : tokens in all, on which the size of a copy depends
    overlaps : a launch begins while the one before it ends
    """
    columns = Instruction(Op.LOAD_INDEX, form.depth * 16 * COLUMN_BYTES)
    element = DTYPE_BYTES[dtype]
    worker = WarpProgram(
        role="worker",
        warps=form.warps,
        start=(Instruction(Op.ISSUE, issue=60),),
        begin=(columns,) if overlaps else (columns, Instruction(Op.WAIT_LOAD)),
        fill=_copies(form, element, ahead=0),
        step=(*_copies(form, element, ahead=form.depth - 1), Instruction(Op.WAIT_FULL), *_multiply(form, n)),
        end=_end(form, element),
    )
    return (worker,)


def _copies(form: SmallForm, element: int, *, ahead: int) -> Code:
    """Weights with the columns of a later k16, and rows of B; `_multiply` counts the instructions."""
    weights = 16 * (form.block_m * element + COLUMN_BYTES) // form.warps
    return (
        Instruction(Op.COPY_A, weights, 0, per_k16=True, ahead=ahead),
        Instruction(Op.GATHER_B, form.block_n * element, 0, per_k16=True, ahead=ahead),
    )


def _multiply(form: SmallForm, n: int) -> Code:
    """A k16 of this warp out of its ring, all of its instructions, and the tensor pipe."""
    landed = 4 * row_slot_bytes(form, n)
    # The copies themselves charge what they bring
    beside = LANDING * (BANKS_LEFT_OUT * landed - 32 * min(n, form.block_n))
    shared = form.block_m * 32 + landed + beside
    issue = max(round(ISSUED * k16_instructions(form, n) / form.warps), 1)
    return (
        Instruction(Op.SHARED, int(shared / form.warps), 0, per_k16=True),
        Instruction(Op.ISSUE, issue=issue, per_k16=True),
        *(Instruction(Op.SHARED, 0),) * round(PAUSES / form.warps),
        Instruction(Op.MMA_SYNC, form.block_m * form.block_n * 16 // form.warps, 0, per_k16=True),
    )


def _end(form: SmallForm, element: int) -> Code:
    """Sums of all warps through shared memory, each read once, half of the banks at a time."""
    sums, warps = form.block_m * form.block_n * 4, form.warps
    own = form.block_m * form.block_n * element // warps
    per_lane = form.block_m * form.block_n // 32
    return (
        Instruction(Op.WAIT_MMA, 0),
        Instruction(Op.SHARED, sums, copies(sums)),
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, 2 * sums, 2 * copies(sums)),
        Instruction(Op.ISSUE, issue=per_lane + 40),
        Instruction(Op.STORE_C, max(own, 1), copies(own)),
    )
