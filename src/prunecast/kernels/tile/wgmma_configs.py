"""The wgmma forms of the tile kernel: 384 threads, one warpgroup copies and two multiply.

Source of 168 registers, 48-KB stages and the bytes beside the ring: a kernel of this form, compiled for
sm_90a and measured on an H200 (2026-11-20).
"""

from collections.abc import Iterator
from typing import NamedTuple

from prunecast.hardware.occupancy import BlockResources
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig, WgmmaUse, weight_bytes, wgmma_use
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape

THREADS, REGISTERS_AT_ENTRY = 384, 168
"""Threads of a block, and registers of each when it starts. Kind: as-compiled, sm_90a."""
BARRIER_BYTES = 1024
"""Barriers and alignment beside the ring. Kind: CUDA source, `tile_shape.cuh`."""
STAGING_BYTES = (32 * 1024, 16 * 1024)
"""Bytes that C leaves through: the most that half of the tile of C fills; that half itself where it is less.
Kind: CUDA source, `tile_shape.cuh`."""
COLUMN_BYTES = 2 * 64 * 4
"""Bytes of the columns of a stage and of the next one in its slot. Kind: CUDA source, `tile_shape.cuh`."""
SPARSE_STAGING_BYTES = 16 * 1024
"""Bytes that C of the 2:4 kernel leaves through: 16 rows of 64 tokens for each of eight warps. Kind: CUDA
source, `sparse_shape.cuh`."""
MOST_STAGES = 8
"""Slots of a ring. Kind: choice, no config has shared memory for more in which it pays."""
STEP_ROW_BYTES = 128
"""Bytes of a row of weights in a k-step, the widest swizzle. Kind: CUDA source, `tile_shape.cuh`."""

_WGMMA_SHAPES = (
    (128, 256),
    (256, 128),
    (128, 192),
    (128, 128),
    (64, 256),
    (64, 128),
    (128, 64),
    (64, 64),
    (32, 256),
)
"""block_m x block_n; a tile twice as large has more sums than a thread has registers. Kind: choice, sizes
that wgmma multiplies in halves."""
_SPARSE_SHAPES = ((256, 128), (128, 256), (256, 64), (128, 128), (128, 64))
"""Shapes of the 2:4 kernel, whose consumer warpgroups have 64 or 128 rows and all tokens. Kind: choice, what
the compile tests build without spills."""


def wgmma_configs(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileConfig]:
    """sm_90: each consumer warpgroup owns half of the tile of C and multiplies by wgmma."""
    for block_m, block_n in _SPARSE_SHAPES if tensor.startswith("sparse-") else _WGMMA_SHAPES:
        shape = BlockShape(block_m, block_n, STEP_ROW_BYTES // DTYPE_BYTES[dtype])
        part = _part(shape, DTYPE_BYTES[dtype], sparse=tensor.startswith("sparse-"))
        resources = _resources(gpu, shape, dtype, tensor)
        if part is None or resources.stages < 2:
            continue
        yield TileConfig(
            tensor_path="wgmma",
            tensor=tensor,
            dtype=dtype,
            shape=shape,
            part_m=part.rows,
            part_n=part.tokens,
            # m64nNk16, m64nNk8 for TF32; the sparse forms do as many kept FMA (PTX ISA, wgmma)
            fma_per_instruction=64 * part.use.instruction_rows * 32 // DTYPE_BYTES[dtype],
            resources=resources,
        )


class _Part(NamedTuple):
    rows: int
    tokens: int
    use: WgmmaUse


def _part(shape: BlockShape, element_bytes: int, *, sparse: bool) -> _Part | None:
    """Half of the rows or half of the tokens, whichever reads less shared memory; None if neither can be."""
    halves = ((shape.block_m // 2, shape.block_n), (shape.block_m, shape.block_n // 2))
    uses = [(m, n, wgmma_use(m, n, element_bytes, sparse=sparse)) for m, n in halves]
    parts = [_Part(m, n, use) for m, n, use in uses if use is not None]
    return min(parts, key=lambda part: part.use.operand_bytes, default=None)


def _resources(gpu: GpuSpec, shape: BlockShape, dtype: str, tensor: str) -> BlockResources:
    """As many stages as shared memory holds."""
    element = DTYPE_BYTES[dtype]
    weights = weight_bytes(shape.block_m, shape.block_k, element, sparse=tensor.startswith("sparse-"))
    stage = weights + shape.block_n * shape.block_k * element + COLUMN_BYTES
    staging = SPARSE_STAGING_BYTES if tensor.startswith("sparse-") else staging_bytes(shape, element)
    other = BARRIER_BYTES + staging
    stages = max(min((gpu.shared_bytes_per_block - other) // stage, MOST_STAGES), 0)
    return BlockResources(THREADS, REGISTERS_AT_ENTRY, other + stages * stage, stages)


def staging_bytes(shape: BlockShape, element_bytes: int) -> int:
    """Bytes of the staging buffer through which a block of the tile kernel stores C."""
    half_tile = shape.block_m * shape.block_n * element_bytes // 2
    return next((staging for staging in STAGING_BYTES if staging <= half_tile), half_tile)
