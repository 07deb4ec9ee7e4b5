"""What the tile kernel looks like on each architecture: block shapes, warps, registers, shared memory.

One tile of C per block, kept columns in k-steps through a ring of slots in shared memory. Three styles:

    wgmma      sm_90: one producer warpgroup copies, two consumer warpgroups multiply (asynchronous)
    mma        sm_80 and later: eight warps copy (cp.async) and multiply (mma.sync)
    registers  sm_70, sm_75: eight warps; copies go through registers, two slots

Later architectures than sm_90 run our own kernels as `mma`; the vendor's dense product on sm_100 is modelled
as `wgmma`, which stands for "native tensor rate, asynchronous".
"""

from collections.abc import Iterator
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import DTYPE_BYTES, BlockShape
from prunecast.kernels.tensor_rate import tensor_fma_per_clk
from prunecast.kernels.tile_variant import TileVariant, WgmmaUse, weight_bytes, wgmma_use

__all__ = ["dense_variants", "sparse_variants", "tile_variants"]

BARRIER_BYTES = 1024
"""Barriers and alignment in front of the ring."""
STORE_STAGING_BYTES = 32 * 1024
"""Most shared memory that a wgmma kernel keeps for its stores of C."""
MOST_WGMMA_STAGES = 8

# block_m x block_n. A wgmma part of 128 x 256 would need more registers than a thread has.
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
# block_m x block_n -> the part of it that one of eight warps owns
_MMA_SHAPES = {
    (128, 256): (64, 64),
    (256, 128): (64, 64),
    (128, 128): (64, 32),
    (64, 256): (32, 64),
    (64, 128): (32, 32),
    (128, 64): (32, 32),
    (64, 64): (16, 32),
    (32, 256): (32, 32),
    (32, 128): (16, 32),
    (16, 256): (16, 32),
}
# Larger tiles of C leave no registers for the staged copies
_REGISTER_SHAPES = {shape: part for shape, part in _MMA_SHAPES.items() if shape[0] * shape[1] <= 128 * 128}


class _Part(NamedTuple):
    rows: int
    tokens: int
    use: WgmmaUse


def tile_variants(gpu: GpuSpec, dtype: str, height: int) -> tuple[TileVariant, ...]:
    """Variants of our own tile kernel on `gpu` for tiles of up to `height` rows, none taller than they need.

    TF32 wgmma reads only K-contiguous operands, and rows of B are token-contiguous: fp32 uses mma.sync.

    Raises
    ------
    BadInput : unknown dtype, or the GPU has no tensor cores for it
    """
    return _of_height(_variants(gpu, dtype, native=gpu.has_wgmma and dtype != "fp32"), height)


def dense_variants(gpu: GpuSpec, dtype: str, height: int) -> tuple[TileVariant, ...]:
    """The same for the vendor's dense product, which uses the native tensor instructions."""
    return _of_height(_variants(gpu, dtype, native=_has_native(gpu)), height)


def sparse_variants(gpu: GpuSpec, dtype: str, height: int) -> tuple[TileVariant, ...]:
    """The same for 2:4 weights on sparse tensor cores. BadInput where the GPU has none."""
    native = gpu.has_wgmma and dtype != "fp32"
    return _of_height(_variants(gpu, dtype, native=native, sparse=True), height)


def _has_native(gpu: GpuSpec) -> bool:
    # 10.0 and 10.3 have tcgen05; 12.0 has warp-level tensor instructions only
    return 90 <= gpu.compute_capability < 120


def _of_height(variants: tuple[TileVariant, ...], height: int) -> tuple[TileVariant, ...]:
    if height <= 0:
        raise BadInput(f"tile height must be at least 1, got {height}")
    heights = [v.shape.block_m for v in variants]
    tallest = min((h for h in heights if h >= height), default=max(heights, default=0))
    return tuple(v for v in variants if v.shape.block_m <= tallest)


def _variants(gpu: GpuSpec, dtype: str, *, native: bool, sparse: bool = False) -> tuple[TileVariant, ...]:
    tensor = ("sparse-" if sparse else "") + ("wgmma" if native else "mma")
    tensor_fma_per_clk(gpu, dtype, tensor)  # refuses what the GPU cannot run
    if native:
        found = _wgmma_variants(gpu, dtype, tensor)
    elif gpu.has_async_copy:
        found = _mma_variants(gpu, dtype, tensor)
    else:
        found = _register_variants(gpu, dtype, tensor)
    return tuple(v for v in found if occupancy(v.resources, gpu).blocks_per_sm > 0)


def _wgmma_variants(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileVariant]:
    """384 threads with 168 registers at entry: a warpgroup that copies, two that multiply."""
    for block_m, block_n in _WGMMA_SHAPES:
        shape = BlockShape(block_m, block_n, 128 // DTYPE_BYTES[dtype])
        part = _wgmma_part(shape, DTYPE_BYTES[dtype], sparse=tensor.startswith("sparse-"))
        stage = _stage_bytes(shape, dtype, tensor)
        other = BARRIER_BYTES + min(block_m * block_n * DTYPE_BYTES[dtype] // 2, STORE_STAGING_BYTES)
        stages = min((gpu.shared_bytes_per_block - other) // stage, MOST_WGMMA_STAGES)
        if part is None or stages < 2:
            continue
        yield TileVariant(
            style="wgmma",
            tensor=tensor,
            dtype=dtype,
            shape=shape,
            part_m=part.rows,
            part_n=part.tokens,
            # m64nNk16, m64nNk8 for TF32; the sparse forms do as many kept FMA (PTX ISA, wgmma)
            fma_per_instruction=64 * part.use.instruction_rows * 32 // DTYPE_BYTES[dtype],
            resources=BlockResources(384, 168, other + stages * stage, stages),
        )


def _wgmma_part(shape: BlockShape, element_bytes: int, *, sparse: bool) -> _Part | None:
    """Half of the rows or half of the tokens, whichever reads less shared memory; None if neither can be."""
    halves = ((shape.block_m // 2, shape.block_n), (shape.block_m, shape.block_n // 2))
    uses = [(m, n, wgmma_use(m, n, element_bytes, sparse=sparse)) for m, n in halves]
    parts = [_Part(m, n, use) for m, n, use in uses if use is not None]
    return min(parts, key=lambda part: part.use.operand_bytes, default=None)


def _mma_variants(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileVariant]:
    """256 threads; three or four slots, whichever keeps more blocks on an SM, the deeper ring on a tie."""
    for (block_m, block_n), part in _MMA_SHAPES.items():
        shape = BlockShape(block_m, block_n, 64 // DTYPE_BYTES[dtype])
        choices = [_mma_variant(shape, part, dtype, tensor, stages) for stages in (4, 3)]
        yield max(choices, key=lambda v: occupancy(v.resources, gpu).blocks_per_sm)


def _mma_variant(
    shape: BlockShape, part: tuple[int, int], dtype: str, tensor: str, stages: int
) -> TileVariant:
    shared = BARRIER_BYTES + stages * _stage_bytes(shape, dtype, tensor)
    return TileVariant(
        style="mma",
        tensor=tensor,
        dtype=dtype,
        shape=shape,
        part_m=part[0],
        part_n=part[1],
        # m16n8k16, and m16n8k8 for TF32; the sparse forms do as many kept FMA (PTX ISA, mma and mma.sp)
        fma_per_instruction=16 * 8 * 32 // DTYPE_BYTES[dtype],
        resources=BlockResources(256, _registers(*part, staged=0), shared, stages),
    )


def _register_variants(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileVariant]:
    """256 threads, two slots; the next step's data wait in registers."""
    for (block_m, block_n), part in _REGISTER_SHAPES.items():
        shape = BlockShape(block_m, block_n, 32)
        stage = _stage_bytes(shape, dtype, tensor)
        yield TileVariant(
            style="registers",
            tensor=tensor,
            dtype=dtype,
            shape=shape,
            part_m=part[0],
            part_n=part[1],
            # Turing: m16n8k8. Volta: m8n8k4 is four instructions of 256 FMA (Jia et al., arXiv 1804.06826)
            fma_per_instruction=1024 if gpu.compute_capability >= 75 else 256,
            resources=BlockResources(256, _registers(*part, staged=stage // 1024), 2 * stage, 2),
        )


def _registers(part_m: int, part_n: int, *, staged: int) -> int:
    """Sums, one k16 of fragments, staged copies and 40 for addresses, in units of eight.

    128 for a part of 64 x 32 and 200 for 64 x 64, in the range that kernels of this form have.
    """
    sums = part_m * part_n // 32
    fragments = part_m // 4 + part_n // 4
    return -(-(sums + fragments + staged + 40) // 8) * 8


def _stage_bytes(shape: BlockShape, dtype: str, tensor: str) -> int:
    element = DTYPE_BYTES[dtype]
    weights = weight_bytes(shape.block_m, shape.block_k, element, sparse=tensor.startswith("sparse-"))
    return weights + shape.block_n * shape.block_k * element
