"""Warp program of the kernel for few tokens: every warp copies, multiplies and never waits for another.

A step is one k16 for each warp. Copies run `depth` k16s ahead. They land in shared memory, but a warp waits
for its own alone, as it waits for loads: so they stand here as loads. What was asked for a step ago has to be
there, which is stricter than `depth` is where a step takes less than memory's latency.

A launch that overlaps has its first weights and columns before the launch before it ends: only rows of B are
left to be asked for and waited for. In turn it fetches the first weights of the next launch, which no warp of
its own waits for: the copies of `fill`.
"""

from prunecast.kernels.plan import DTYPE_BYTES
from prunecast.kernels.program import Code, Instruction, Op, WarpProgram
from prunecast.kernels.programs_end import copies
from prunecast.kernels.small_n_forms import SmallForm, copy_instructions, k16_instructions, row_slot_bytes

__all__ = ["small_programs"]

COLUMN_BYTES = 2
ROW_NUMBER_BYTES = 4
BANKS_LEFT_OUT = 4
"""Ratio; from the layout. A row of B comes as eight pieces of a lane each, four lanes apart: what passes the
port with it fills a quarter of the banks."""
PIECES = 2
"""Of a k16's reads and instructions, which take turns: whole, all warps would read and then all compute."""

WEIGHTS_ISSUE = 25
"""Of the instructions that ask for a k16, those for weights and columns, before the launch before has ended.
Counted in code compiled for sm_90a: 57 to 85 are left after it at 16 tokens and more, at one 152 to 175.
"""
LANDING = 1.4
"""Ratio, fitted: time of the port of shared memory for rows of B that land, over what the banks say. Times of
forms for 11008 x 4096 on an H200, 2026-11-21; 4096 x 4096 judges (0008).
"""


def small_programs(form: SmallForm, n: int, dtype: str, *, overlaps: bool = False) -> tuple[WarpProgram, ...]:
    """The program of all warps of a block.

    Parameters
    ----------
    n : tokens in all, on which the size of a copy depends
    overlaps : a launch begins while the one before it ends
    """
    element = DTYPE_BYTES[dtype]
    worker = WarpProgram(
        role="worker",
        warps=form.warps,
        start=() if overlaps else (Instruction(Op.ISSUE, issue=60),),
        begin=_first_rows(form, n, element) if overlaps else _first_copies(form, n, element),
        fill=(_weights(form, element)._replace(op=Op.COPY_A),) if overlaps else (),
        step=(
            Instruction(Op.WAIT_LOAD),
            *_copies(form, n, element, ahead=form.depth - 1),
            *_multiply(form, n),
        ),
        end=_end(form, element),
    )
    return (worker,)


def _first_rows(form: SmallForm, n: int, element: int) -> Code:
    """All that is left to do once the launch before has ended."""
    ask = (_asking(form, copy_instructions(form, n) - WEIGHTS_ISSUE), _rows(form, element))
    first = [instruction._replace(ahead=ahead) for ahead in range(form.depth - 1) for instruction in ask]
    return (*first, Instruction(Op.WAIT_LOAD))


def _first_copies(form: SmallForm, n: int, element: int) -> Code:
    """Columns, then what they name."""
    columns = Instruction(Op.LOAD_INDEX, form.depth * 16 * COLUMN_BYTES)
    first = [_copies(form, n, element, ahead=ahead) for ahead in range(form.depth - 1)]
    wait = Instruction(Op.WAIT_LOAD)
    return (columns, wait, *(instruction for code in first for instruction in code), wait)


def _copies(form: SmallForm, n: int, element: int, *, ahead: int) -> Code:
    """Weights with the columns of a later k16, and rows of B, of which most are the instructions."""
    own = (_asking(form, copy_instructions(form, n)), _weights(form, element), _rows(form, element))
    return tuple(instruction._replace(ahead=ahead) for instruction in own)


def _asking(form: SmallForm, instructions: int) -> Instruction:
    """Addresses, most of them of rows of B, which come behind the wait for the launch before."""
    return Instruction(Op.ISSUE, issue=_of_a_warp(form, instructions), per_k16=True)


def _weights(form: SmallForm, element: int) -> Instruction:
    bytes_of_k16 = 16 * (form.block_m * element + COLUMN_BYTES)
    return Instruction(Op.LOAD_A, bytes_of_k16 // form.warps, 0, per_k16=True)


def _rows(form: SmallForm, element: int) -> Instruction:
    return Instruction(Op.LOAD_B, form.block_n * element, 0, per_k16=True)


def _of_a_warp(form: SmallForm, instructions: int) -> int:
    """Of each warp for a k16, which one of them takes."""
    return max(round(instructions / form.warps), 1)


def _multiply(form: SmallForm, n: int) -> Code:
    """A k16 of this warp: it lands, is read and multiplied."""
    weights, rows = form.block_m * 32, 4 * row_slot_bytes(form, n)
    shared = (2 * weights + rows + LANDING * BANKS_LEFT_OUT * rows) / (PIECES * form.warps)
    issue = _of_a_warp(form, k16_instructions(form, n) - copy_instructions(form, n))
    pieces = [
        (
            Instruction(Op.SHARED, int(shared), 0, per_k16=True),
            Instruction(Op.ISSUE, issue=issue * (i + 1) // PIECES - issue * i // PIECES, per_k16=True),
        )
        for i in range(PIECES)
    ]
    fma = form.block_m * form.block_n * 16 // form.warps
    multiply = (Instruction(Op.MMA, fma, 0, per_k16=True), Instruction(Op.WAIT_MMA, 1))
    return (*(instruction for piece in pieces for instruction in piece), *multiply)


def _end(form: SmallForm, element: int) -> Code:
    """Sums of all warps through shared memory, each read once, half of the banks at a time, once a warp has
    read where its rows of C are.
    """
    sums, warps = form.block_m * form.block_n * 4, form.warps
    own = form.block_m * form.block_n * element // warps
    per_lane = form.block_m * form.block_n // 32
    return (
        Instruction(Op.WAIT_MMA, 0),
        Instruction(Op.SHARED, sums, copies(sums)),
        Instruction(Op.SYNC),
        Instruction(Op.LOAD_A, form.block_m * ROW_NUMBER_BYTES // warps),
        Instruction(Op.WAIT_LOAD),
        Instruction(Op.SHARED, 2 * sums, 2 * copies(sums)),
        Instruction(Op.ISSUE, issue=per_lane + 40),
        Instruction(Op.STORE_C, max(own, 1), copies(own)),
    )
