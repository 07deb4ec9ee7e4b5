"""The warp-level forms of the tile kernel: 256 threads, eight equal warps copy and multiply.

They are those of `kernels/tile/cuda/mma`, whose source checks stages and shared memory.
"""

from collections.abc import Iterator
from typing import NamedTuple

from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig, weight_bytes
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape

__all__ = ["WarpTile", "mma_configs", "register_configs"]

THREADS = 256
"""Threads of a block. Kind: CUDA source, `mma_shape.cuh`."""
BESIDE_BYTES = 1024
"""Staged columns of four steps and records of 16 beside the ring, at least. Kind: CUDA source,
`mma_shape.cuh`."""
STEP_ROW_BYTES = 64
"""Bytes of a row of weights in a k-step. Kind: CUDA source, `mma_shape.cuh`."""
STEPS = ((STEP_ROW_BYTES, 4), (STEP_ROW_BYTES, 3))
"""Bytes of a row of weights in a step, before 2:4, and slots. Kind: choice, what the compile tests build."""
SPARSE_STEPS = ((2 * STEP_ROW_BYTES, 3), *STEPS)
"""With twice the columns a step has as many products as one of plain weights. Four such slots leave
some configs too few registers for their addresses. Kind: choice, on an H200 three and four slots of plain
weights are the same."""
LINE_BYTES = 128
"""Bytes of which weights of a stage fill a whole number, so that rows of tokens begin at one. Kind: CUDA
source, `mma_shape.cuh`."""


class WarpTile(NamedTuple):
    """A tile of C, and the part of it that one of eight warps owns."""

    block_m: int
    block_n: int
    part_m: int
    part_n: int


_MMA_FORMS = (
    WarpTile(128, 256, 64, 64),
    WarpTile(256, 128, 64, 64),
    WarpTile(128, 128, 64, 32),
    WarpTile(64, 256, 32, 64),
    WarpTile(64, 128, 32, 32),
    WarpTile(128, 64, 32, 32),
    WarpTile(64, 64, 16, 32),
    WarpTile(32, 256, 32, 32),
    WarpTile(32, 128, 16, 32),
    WarpTile(16, 256, 16, 32),
)
"""Tiles that are compiled. Kind: choice, those that the compile tests build without spills."""
_REGISTER_FORMS = tuple(form for form in _MMA_FORMS if form.block_m * form.block_n <= 128 * 128)
"""Shapes that leave registers for staged copies. Kind: choice, as `_MMA_FORMS`."""


def mma_configs(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileConfig]:
    """sm_80 and later; steps and slots that keep the most blocks on an SM, on a tie the first that do."""
    steps = SPARSE_STEPS if tensor.startswith("sparse-") else STEPS
    for form in _MMA_FORMS:
        choices = [_mma_config(form, dtype, tensor, row, stages) for row, stages in steps]
        yield max(choices, key=lambda v: occupancy(v.resources, gpu).blocks_per_sm)


def register_configs(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileConfig]:
    """sm_70, sm_75: two slots, and the next step's data wait in registers."""
    # Turing: m16n8k8. Volta: m8n8k4 is four instructions of 256 FMA (Jia et al., arXiv 1804.06826)
    fma = 1024 if gpu.compute_capability >= 75 else 256
    for form in _REGISTER_FORMS:
        shape = BlockShape(form.block_m, form.block_n, STEP_ROW_BYTES // DTYPE_BYTES[dtype])
        stage = _stage_bytes(shape, dtype, tensor)
        registers = _registers(form, staged=stage // THREADS // 4)
        resources = BlockResources(THREADS, registers, 2 * stage, 2)
        yield _config("registers", form, shape, dtype, tensor, fma, resources)


def _mma_config(form: WarpTile, dtype: str, tensor: str, step_row_bytes: int, stages: int) -> TileConfig:
    shape = BlockShape(form.block_m, form.block_n, step_row_bytes // DTYPE_BYTES[dtype])
    shared = _beside_bytes(shape) + stages * _stage_bytes(shape, dtype, tensor)
    resources = BlockResources(THREADS, _registers(form, staged=0), shared, stages)
    # m16n8k16, and m16n8k8 for TF32; the sparse forms do as many kept FMA (PTX ISA, mma and mma.sp)
    fma = 16 * 8 * 32 // DTYPE_BYTES[dtype]
    return _config("mma", form, shape, dtype, tensor, fma, resources)


def _config(
    tensor_path: str,
    form: WarpTile,
    shape: BlockShape,
    dtype: str,
    tensor: str,
    fma_per_instruction: int,
    resources: BlockResources,
) -> TileConfig:
    return TileConfig(
        tensor_path=tensor_path,
        tensor=tensor,
        dtype=dtype,
        shape=shape,
        part_m=form.part_m,
        part_n=form.part_n,
        fma_per_instruction=fma_per_instruction,
        resources=resources,
    )


def _registers(form: WarpTile, *, staged: int) -> int:
    """Sums, one k16 of fragments, staged copies and 40 for addresses, in units of eight.

    128 for a part of 64 x 32 and 200 for 64 x 64, in the range that kernels of this form have.
    """
    sums = form.part_m * form.part_n // 32
    fragments = form.part_m // 4 + form.part_n // 4
    return -(-(sums + fragments + staged + 40) // 8) * 8


def _beside_bytes(shape: BlockShape) -> int:
    """Four steps' columns of four bytes, and 16 records of 16."""
    return max(4 * 4 * shape.block_k + 16 * 16, BESIDE_BYTES)


def _stage_bytes(shape: BlockShape, dtype: str, tensor: str) -> int:
    element = DTYPE_BYTES[dtype]
    weights = weight_bytes(shape.block_m, shape.block_k, element, sparse=tensor.startswith("sparse-"))
    return -(-weights // LINE_BYTES) * LINE_BYTES + shape.block_n * shape.block_k * element
