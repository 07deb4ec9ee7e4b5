"""The vendor's dense product on sm_90 where rows of A, B or C do not begin at multiples of 16 bytes.

Bulk copies cannot fetch or store such rows. Names in captured graphs (cuBLAS 13.1, H200, 9,000 sizes of 2 to
8,190 tokens, fp16 and bf16, 2026-11-22) read `cutlass_80_tensorop_f16_s16816gemm_f16_64x128_64x3_nn_align2`:
kernels for sm_80 whose threads copy 4 bytes at a time; with an odd number of tokens 2 bytes,
`cutlass_75_..._align1`. 2048 x 2048 takes 5.7 us with 16 tokens, 8.8 with 12 or 20.
"""

from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from prunecast.hardware.occupancy import BlockResources
from prunecast.kernels.tile.config import TileConfig
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape
from prunecast.plan.program import Instruction, Op, WarpProgram

__all__ = [
    "LANES",
    "UnalignedKernel",
    "copy_lane_bytes",
    "is_aligned",
    "unaligned_kernels",
    "with_narrow_copies",
]

ALIGNED_BYTES = 16
COPY_LANE_BYTES = 4
LANES = 32
SHARED_BYTES_PER_CLK = 128
COPY_CYCLES = 6.3
"""Of the path to shared memory for a copy instruction of a warp, whatever its lanes copy: fitted to 178 sizes
of even tokens, in the tiles that ran. Steps of 256 x 128 take 3,634 cycles, 1,024 of which are reads."""
FRAGMENTS_FMA = 16 * 8 * 32


class UnalignedKernel(NamedTuple):
    """One kernel: its form, and what an instruction that copies takes of the path to shared memory."""

    form: TileConfig
    copy_cycles: float
    believed_cycles: float
    """That the library's choice goes by. It takes Turing's 128 x 256 as if its copies took twice as long."""
    small: bool
    """Of 32 x 32, by `wmma` instructions."""


_AMPERE = (
    # rows, tokens, of a warp both, columns (2 bytes each), stages, registers, shared bytes
    (256, 128, 64, 64, 64, 3, 232, 147_456),
    (128, 256, 64, 64, 64, 3, 230, 147_456),
    (256, 64, 64, 64, 64, 4, 234, 163_840),
    (64, 256, 64, 64, 64, 3, 230, 122_880),
    (128, 128, 64, 64, 64, 3, 240, 98_304),
    (128, 64, 64, 32, 64, 3, 156, 73_728),
    (64, 128, 32, 64, 64, 3, 156, 73_728),
    (64, 64, 32, 32, 32, 6, 88, 49_152),
    (32, 32, 16, 16, 128, 2, 80, 33_792),
)
"""Tiles, stages, registers and shared memory as captured graphs say; a warp's part by their threads."""
_TURING = (
    ((128, 256, 64, 64, 32, 4, 232, 49_152), 8.0, 10.5),
    ((128, 128, 64, 64, 32, 4, 252, 32_768), 8.0, 8.0),
    ((64, 64, 32, 32, 32, 4, 96, 16_384), 8.0, 7.0),
    ((32, 32, 16, 16, 64, 4, 128, 9_728), 4.2, 3.7),
)
"""Their copies are a load and a store: cycles fitted to 85 sizes of odd tokens, a number for each kernel,
since how much of the load is waited for differs with warps and registers; believed ones to 350 names."""


def is_aligned(k: int, n: int, dtype: str) -> bool:
    """One token may lie along the rows of C, where it is aligned."""
    elements = ALIGNED_BYTES // DTYPE_BYTES[dtype]
    return k % elements == 0 and (n == 1 or n % elements == 0)


def copy_lane_bytes(k: int, n: int, dtype: str) -> int:
    """Bytes of a lane of a copy: the library has no kernels between 4 and 16."""
    return min(gcd(gcd(k, n) * DTYPE_BYTES[dtype], COPY_LANE_BYTES), COPY_LANE_BYTES)


@lru_cache(maxsize=8)
def unaligned_kernels(dtype: str, lane_bytes: int) -> tuple[UnalignedKernel, ...]:
    """What the library has for rows of such alignment. `wmma` kernels of Turing's are fp16's."""
    if lane_bytes == COPY_LANE_BYTES:
        return tuple(UnalignedKernel(_form(dtype, *k), COPY_CYCLES, COPY_CYCLES, k[0] == 32) for k in _AMPERE)
    found = (UnalignedKernel(_form(dtype, *k), c, b, k[0] == 32) for k, c, b in _TURING)
    return tuple(kernel for kernel in found if dtype == "fp16" or not kernel.small)


def _form(
    dtype: str,
    rows: int,
    tokens: int,
    part_m: int,
    part_n: int,
    columns: int,
    stages: int,
    registers: int,
    shared_bytes: int,
) -> TileConfig:
    element = DTYPE_BYTES[dtype]
    warps = rows // part_m * (tokens // part_n)
    return TileConfig(
        tensor_path="mma",
        tensor="mma",
        dtype=dtype,
        shape=BlockShape(rows, tokens, columns * 2 // element),
        part_m=part_m,
        part_n=part_n,
        fma_per_instruction=FRAGMENTS_FMA // element,
        resources=BlockResources(LANES * warps, registers, shared_bytes, stages),
    )


def with_narrow_copies(program: WarpProgram, copy_cycles: float, lane_bytes: int) -> WarpProgram:
    """What copies of few bytes a lane take of the path to shared memory besides their bytes."""
    bytes_of_path = copy_cycles * SHARED_BYTES_PER_CLK / (LANES * lane_bytes)
    return replace(
        program,
        fill=tuple(_narrow(i, program.warps, bytes_of_path) for i in program.fill),
        step=tuple(_narrow(i, program.warps, bytes_of_path) for i in program.step),
    )


def _narrow(instruction: Instruction, warps: int, bytes_of_path: float) -> Instruction:
    if instruction.op not in (Op.COPY_A, Op.GATHER_B):
        return instruction
    # COPY_A says what a warp copies for 16 columns, GATHER_B what all copy for one
    size = instruction.amount if instruction.op is Op.COPY_A else 16 * instruction.amount // warps
    return instruction._replace(operand_bytes=max(round(size * bytes_of_path) - size, 0))
