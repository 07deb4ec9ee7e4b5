"""The vendor's dense product on sm_90 where rows of A, B or C do not begin at multiples of 16 bytes.

Names in captured graphs (cuBLAS 13.1, H200, 60 sizes of 2 to 1025 tokens, 2026-11-21) read
`cutlass_80_tensorop_f16_s16816gemm_f16_64x128_64x3_nn_align2`: kernels for sm_80, in tiles of 128 rows and
64, 128 or 256 tokens, cut along K until every SM has one, whose threads copy 4 bytes at a time; with an odd
number of tokens 2 bytes, `cutlass_75_..._align1`. 2048 x 2048 takes 5.7 us with 16 tokens, 8.8 with 12 or 20.
"""

from dataclasses import replace
from math import gcd

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import DTYPE_BYTES
from prunecast.kernels.program import Instruction, Op, WarpProgram

__all__ = ["copy_lane_bytes", "is_aligned", "taken_parts", "taken_tile", "with_narrow_copies"]

ALIGNED_BYTES = 16
COPY_LANE_BYTES = 4
TILE_ROWS = 128
TILE_TOKENS = (64, 128, 256)
FEWEST_STEPS = 4
STEP_COLUMNS = 64
LANES = 32
COPY_CYCLES, SHARED_BYTES_PER_CLK = 5, 128
"""Of the path to shared memory for a copy instruction of a warp, whatever its lanes copy. Fitted to 40 sizes
of even tokens: steps of 128 x 64 take 1,430 cycles, 510 of which are reads, and 192 such copies."""


def is_aligned(k: int, n: int, dtype: str) -> bool:
    """One token may lie along the rows of C, where it is aligned."""
    elements = ALIGNED_BYTES // DTYPE_BYTES[dtype]
    return k % elements == 0 and (n == 1 or n % elements == 0)


def copy_lane_bytes(k: int, n: int, dtype: str) -> int:
    """Bytes of a lane of a copy: the library has no kernels between 4 and 16."""
    return min(gcd(gcd(k, n) * DTYPE_BYTES[dtype], COPY_LANE_BYTES), COPY_LANE_BYTES)


def taken_tile(n: int) -> tuple[int, int]:
    """Rows and tokens."""
    return TILE_ROWS, next((tokens for tokens in TILE_TOKENS if n <= tokens), TILE_TOKENS[-1])


def taken_parts(m: int, k: int, n: int, gpu: GpuSpec) -> int:
    """Into which K is cut: as many as find an SM of their own."""
    rows, tokens = taken_tile(n)
    tiles = -(-m // rows) * -(-n // tokens)
    return max(1, min(gpu.sm_count // tiles, k // STEP_COLUMNS // FEWEST_STEPS))


def with_narrow_copies(program: WarpProgram, lane_bytes: int) -> WarpProgram:
    """What copies of few bytes a lane take of the path to shared memory besides their bytes."""
    return replace(
        program,
        fill=tuple(_narrow(i, program.warps, lane_bytes) for i in program.fill),
        step=tuple(_narrow(i, program.warps, lane_bytes) for i in program.step),
    )


def _narrow(instruction: Instruction, warps: int, lane_bytes: int) -> Instruction:
    if instruction.op not in (Op.COPY_A, Op.GATHER_B):
        return instruction
    # COPY_A says what a warp copies for 16 columns, GATHER_B what all copy for one
    size = instruction.amount if instruction.op is Op.COPY_A else 16 * instruction.amount // warps
    taken = size / (LANES * lane_bytes) * COPY_CYCLES * SHARED_BYTES_PER_CLK
    return instruction._replace(operand_bytes=max(round(taken) - size, 0))
