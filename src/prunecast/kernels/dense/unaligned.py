"""The vendor's dense product on sm_90 where rows of A, B or C do not begin at multiples of 16 bytes.

Names in captured graphs (cuBLAS 13.1, H200, 158 sizes of 2 to 1025 tokens, fp16 and bf16, 2026-11-22) read
`cutlass_80_tensorop_f16_s16816gemm_f16_64x128_64x3_nn_align2`: kernels for sm_80, cut along K until SMs have
a part, whose threads copy 4 bytes at a time; with an odd number of tokens 2 bytes, `cutlass_75_..._align1`.
Tiles go down to 64 x 64 and 32 x 32 where larger ones leave half of the SMs without work. 2048 x 2048 takes
5.7 us with 16 tokens, 8.8 with 12 or 20.
"""

from dataclasses import replace
from math import gcd
from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import DTYPE_BYTES
from prunecast.kernels.program import Instruction, Op, WarpProgram

__all__ = ["Taken", "copy_lane_bytes", "is_aligned", "taken_form", "with_narrow_copies"]

ALIGNED_BYTES = 16
COPY_LANE_BYTES = 4
FEW_TILES = ((128, 64), (64, 64), (32, 64))
"""Rows and tokens, the largest first. The last one stands for the library's 32 x 32."""
SOME_TILES = ((128, 128), (64, 128), (64, 64), (32, 64))
MANY_TILES = ((128, 128), (64, 128), (64, 64))
FEW_TOKENS, SOME_TOKENS = 64, 128
FEWEST_STEPS, STEP_COLUMNS = 2, 64
LEAST_CUT = 512
"""Columns; 1536 x 384 is never cut by the kernels for sm_80."""
REGISTER_BLOCKS = 2
"""Of the kernels that copy through registers, 128 threads with 252 each, on an SM."""
LANES = 32
COPY_CYCLES, REGISTER_COPY_CYCLES, SHARED_BYTES_PER_CLK = 5, 6.5, 128
"""Of the path to shared memory for a copy instruction of a warp, whatever its lanes copy. Fitted to 40 sizes
of even tokens: steps of 128 x 64 take 1,430 cycles, 510 of which are reads, and 192 such copies. More where
it is a load and a store: fitted to 40 products by Turing's kernels, which are 10 % too fast without it."""


class Taken(NamedTuple):
    """What the library runs."""

    rows: int
    tokens: int
    parts: int
    """Into which K is cut."""


def is_aligned(k: int, n: int, dtype: str) -> bool:
    """One token may lie along the rows of C, where it is aligned."""
    elements = ALIGNED_BYTES // DTYPE_BYTES[dtype]
    return k % elements == 0 and (n == 1 or n % elements == 0)


def copy_lane_bytes(k: int, n: int, dtype: str) -> int:
    """Bytes of a lane of a copy: the library has no kernels between 4 and 16."""
    return min(gcd(gcd(k, n) * DTYPE_BYTES[dtype], COPY_LANE_BYTES), COPY_LANE_BYTES)


def taken_form(m: int, k: int, n: int, dtype: str, gpu: GpuSpec) -> Taken:
    """The largest tile whose parts give over half of the SMs work, else the smallest."""
    most = max(k // STEP_COLUMNS // FEWEST_STEPS, 1)
    if _through_registers(k, n, dtype):
        return _taken_through_registers(m, n, most, gpu)
    if k < LEAST_CUT:
        most = 1
    forms = [
        Taken(rows, tokens, max(min(gpu.sm_count // _tiles(rows, tokens, m, n), most), 1))
        for rows, tokens in _tiles_for(n)
    ]
    busy = [form for form in forms if 2 * form.parts * _tiles(form.rows, form.tokens, m, n) >= gpu.sm_count]
    return (busy or forms[-1:])[0]


def _taken_through_registers(m: int, n: int, most: int, gpu: GpuSpec) -> Taken:
    """One round of blocks, two where there are more tiles than a third of a round."""
    rows, tokens = (64, 64) if n <= FEW_TOKENS else (128, 128)
    tiles, places = _tiles(rows, tokens, m, n), REGISTER_BLOCKS * gpu.sm_count
    rounds = 1 if 3 * tiles <= places else 2
    return Taken(rows, tokens, max(min(max(rounds * places // tiles, rounds), most), 1))


def with_narrow_copies(program: WarpProgram, k: int, n: int, dtype: str) -> WarpProgram:
    """What copies of few bytes a lane take of the path to shared memory besides their bytes."""
    cycles = REGISTER_COPY_CYCLES if _through_registers(k, n, dtype) else COPY_CYCLES
    bytes_of_path = cycles * SHARED_BYTES_PER_CLK / (LANES * copy_lane_bytes(k, n, dtype))
    return replace(
        program,
        fill=tuple(_narrow(i, program.warps, bytes_of_path) for i in program.fill),
        step=tuple(_narrow(i, program.warps, bytes_of_path) for i in program.step),
    )


def _through_registers(k: int, n: int, dtype: str) -> bool:
    """Turing's kernels have no asynchronous copies; for few tokens in fp16 they are `wmma` ones as fast as
    those that have.
    """
    return copy_lane_bytes(k, n, dtype) < COPY_LANE_BYTES and (dtype == "bf16" or n > FEW_TOKENS)


def _tiles_for(n: int) -> tuple[tuple[int, int], ...]:
    """Of more than 128 tokens 256 are taken together where that pads no more, else 256 rows."""
    if n <= SOME_TOKENS:
        return FEW_TILES if n <= FEW_TOKENS else SOME_TILES
    wide = -(-n // 256) * 256 <= -(-n // 128) * 128
    return ((128, 256) if wide else (256, 128), *MANY_TILES)


def _tiles(rows: int, tokens: int, m: int, n: int) -> int:
    return -(-m // rows) * -(-n // tokens)


def _narrow(instruction: Instruction, warps: int, bytes_of_path: float) -> Instruction:
    if instruction.op not in (Op.COPY_A, Op.GATHER_B):
        return instruction
    # COPY_A says what a warp copies for 16 columns, GATHER_B what all copy for one
    size = instruction.amount if instruction.op is Op.COPY_A else 16 * instruction.amount // warps
    return instruction._replace(operand_bytes=max(round(size * bytes_of_path) - size, 0))
