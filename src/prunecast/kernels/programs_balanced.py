"""Warp programs of the balanced kernel: what its warps read, multiply and wait for, from its layout."""

from prunecast.kernels.balanced_layout import DENSE_CLOCKS, REST_CLOCKS, BalancedLayout, VectorLayout
from prunecast.kernels.plan import DTYPE_BYTES
from prunecast.kernels.program import Instruction, Op, WarpProgram

__all__ = ["matrix_programs", "vector_programs"]

WARPS = 16
READ_BYTES = 128
"""Shared memory moves this many bytes a clock."""


def matrix_programs(layout: BalancedLayout, splits: int, row_bytes: int) -> tuple[WarpProgram, ...]:
    """Sixteen warps; a step is one window for each of the `splits`, of which a warp does one.

    Parameters
    ----------
    row_bytes : of a row of B in a block
    """
    per_k16 = 16 / (layout.window * splits)
    dense, rest = float(layout.dense.mean()), 4 * layout.rest
    reads = round((DENSE_CLOCKS * dense + REST_CLOCKS * rest) * READ_BYTES * per_k16)
    others = round((6 * dense + 4 * rest) * per_k16)
    fma = round((32 * dense + 8 * rest) * per_k16)
    record = max(round(16 * float(layout.words.mean()) * per_k16), 1)
    copies = (
        Instruction(Op.ISSUE, issue=4, per_k16=True),
        Instruction(Op.COPY_A, record, 1, per_k16=True),
        Instruction(Op.COPY_B, row_bytes, 1, per_k16=True, leader=True),
    )
    ahead = tuple(instruction._replace(ahead=1) for instruction in copies)
    step = (
        Instruction(Op.WAIT_FULL),
        Instruction(Op.SYNC),
        *ahead,
        Instruction(Op.SHARED, max(reads, 1), max(others, 1), per_k16=True),
        Instruction(Op.FMA, issue=max(fma, 1), per_k16=True),
    )
    sums = 64 * 16 * 4
    end = (
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, 2 * sums, 16),
        Instruction(Op.SYNC),
        Instruction(Op.STORE_C, 16 * row_bytes // splits, 8),
    )
    worker = WarpProgram(
        role="worker",
        warps=WARPS,
        start=(Instruction(Op.ISSUE, issue=40),),
        fill=copies,
        step=step,
        end=end,
    )
    return (worker,)


def vector_programs(layout: VectorLayout, k: int, rows: int, dtype: str) -> tuple[WarpProgram, ...]:
    """Sixteen warps of `rows` rows each; B is spread over the banks once, weights come straight to registers.

    A step is 128 columns of A, of which the rows of a warp keep their share. A warp waits for two or three
    chunks of weights at a time; all these waits stand before the first step.
    """
    element, index = DTYPE_BYTES[dtype], 1 if layout.places < 256 else 2
    steps = max(-(-k // 128), 1)
    per_step = 4 * rows * layout.chunks / steps  # elements of a lane
    weights = 32 * 4 * rows * layout.chunks * (element + index)
    rounds = max(-(-layout.chunks // _chunks_ahead(rows, index)), 1)
    worker = WarpProgram(
        role="worker",
        warps=WARPS,
        start=(Instruction(Op.ISSUE, issue=20),),
        begin=(
            Instruction(Op.LOAD_B, element, leader=True),
            Instruction(Op.WAIT_LOAD),
            Instruction(Op.SHARED, max(4 * k // WARPS, 1), -(-k // (32 * WARPS))),
            Instruction(Op.SYNC),
            *((Instruction(Op.LOAD_A, max(weights // rounds, 1), 2), Instruction(Op.WAIT_LOAD)) * rounds),
        ),
        step=(
            Instruction(Op.SHARED, max(round(128 * per_step), 1), max(round(3 * per_step), 1)),
            Instruction(Op.FMA, issue=max(round(per_step), 1)),
        ),
        end=(Instruction(Op.ISSUE, issue=40), Instruction(Op.STORE_C, rows * element, 1)),
    )
    return (worker,)


def _chunks_ahead(rows: int, index_bytes: int) -> int:
    """As `AHEAD` of `kernels/cuda/balanced/vector.cu`."""
    return 2 if rows * (3 + index_bytes) > 14 else 3
