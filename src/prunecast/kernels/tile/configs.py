"""Configs of the tile kernel on a GPU.

One tile of C per block, kept columns in k-steps through a ring of slots in shared memory. Three paths:

    wgmma      sm_90: a warpgroup copies, two warpgroups multiply
    mma        sm_80 and later: eight warps copy (cp.async) and multiply (mma.sync)
    registers  sm_70, sm_75: eight warps; copies go through registers, two slots

fp32 takes `mma` or `registers`, with products of CUDA cores. tf32 takes `mma`: its wgmma reads only
K-contiguous operands, and rows of B are token-contiguous.

Our own kernels have wgmma on sm_90 alone; later GPUs dropped it and run them as `mma`.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig, weight_bytes, wgmma_configs
from prunecast.kernels.tile.tile_plan import check_tokens, height_of
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape
from prunecast.plan.tensor_rate import check_own_dtype, fma_per_clk

OWN_WGMMA_SHAPES = ((128, 256), (128, 192), (128, 128), (128, 64), (64, 256), (64, 128), (256, 128))
"""block_m x block_n of compiled kernels. Kind: choice, those that the compile tests build without spills."""
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
"""Steps of 2:4 weights: of twice the columns, with as many products as a plain step. Four such slots leave
some configs too few registers for their addresses. Kind: choice, on an H200 three and four slots of plain
weights are the same."""
LINE_BYTES = 128
"""Bytes of which weights of a stage fill a whole number, so that rows of tokens begin at one. Kind: CUDA
source, `mma_shape.cuh`."""


class _WarpTile(NamedTuple):
    """A tile of C, and the part of it that one of eight warps owns."""

    block_m: int
    block_n: int
    part_m: int
    part_n: int


_MMA_FORMS = (
    _WarpTile(128, 256, 64, 64),
    _WarpTile(256, 128, 64, 64),
    _WarpTile(128, 128, 64, 32),
    _WarpTile(64, 256, 32, 64),
    _WarpTile(64, 128, 32, 32),
    _WarpTile(128, 64, 32, 32),
    _WarpTile(64, 64, 16, 32),
    _WarpTile(32, 256, 32, 32),
    _WarpTile(32, 128, 16, 32),
    _WarpTile(16, 256, 16, 32),
)
"""Tiles that are compiled. Kind: choice, those that the compile tests build without spills."""
_CORE_FORMS = (
    _WarpTile(128, 128, 32, 64),
    _WarpTile(64, 128, 32, 32),
    _WarpTile(128, 64, 32, 32),
    _WarpTile(64, 64, 16, 32),
    _WarpTile(32, 128, 16, 32),
)
"""Tiles of the fp32 kernel. Kind: choice, those that the compile tests build without spills."""
_CORE_REGISTERS = {32 * 64: 128, 32 * 32: 128, 16 * 32: 80}
"""Rows x tokens of a warp's part -> registers of a thread. Kind: as-compiled, sm_75 to sm_90."""
_PAIRED_REGISTERS = {**_CORE_REGISTERS, 32 * 64: 160}
"""`_CORE_REGISTERS` where products come in pairs of registers. Kind: as-compiled, sm_100 and sm_120."""
_CORE_STAGES = {True: (4, 3), False: (2,)}
"""Whether there is cp.async -> slots of the fp32 kernel. Kind: choice, what the compile tests build."""
_REGISTER_FORMS = tuple(form for form in _MMA_FORMS if form.block_m * form.block_n <= 128 * 128)
"""Shapes that leave registers for staged copies. Kind: choice, as `_MMA_FORMS`."""


def tile_map_configs(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> tuple[TileConfig, ...]:
    """Configs for a tile map and `n` tokens. BadInput: n below 1; else as `tile_configs`."""
    check_tokens(n)
    return tile_configs(gpu, dtype, height_of(tiles))


def tile_configs(gpu: GpuSpec, dtype: str, height: int) -> tuple[TileConfig, ...]:
    """Configs of our own tile kernel on `gpu` for tiles of up to `height` rows, none taller than they need.

    Raises
    ------
    BadInput : unknown dtype, or the GPU has no tensor cores for it
    """
    if dtype == "fp32":
        return _fitting(gpu, dtype, "none", height)
    if gpu.has_wgmma and dtype != "tf32":
        return _fitting(gpu, dtype, "wgmma", height, OWN_WGMMA_SHAPES)
    return _fitting(gpu, dtype, "mma", height)


def sparse_configs(gpu: GpuSpec, dtype: str, height: int) -> tuple[TileConfig, ...]:
    """Configs for 2:4 weights on sparse tensor cores. BadInput where the GPU has none."""
    native = gpu.has_wgmma and dtype != "tf32"
    return _fitting(gpu, dtype, "sparse-wgmma" if native else "sparse-mma", height)


@lru_cache(maxsize=256)
def _fitting(
    gpu: GpuSpec, dtype: str, tensor: str, height: int, shapes: tuple[tuple[int, int], ...] | None = None
) -> tuple[TileConfig, ...]:
    """Configs of which a block fits on an SM, up to the lowest that takes a tile of `height` rows whole."""
    if height <= 0:
        raise BadInput(f"tile height must be at least 1, got {height}")
    check_own_dtype(dtype)
    fma_per_clk(gpu, dtype, tensor)  # refuses what the GPU cannot run
    offered = [v for v in _all(gpu, dtype, tensor) if shapes is None or v.shape[:2] in shapes]
    found = [v for v in offered if occupancy(v.resources, gpu).blocks_per_sm > 0]
    heights = [v.shape.block_m for v in found]
    tallest = min((h for h in heights if h >= height), default=max(heights, default=0))
    return tuple(v for v in found if v.shape.block_m <= tallest)


def _all(gpu: GpuSpec, dtype: str, tensor: str) -> list[TileConfig]:
    if tensor.endswith("wgmma"):
        return list(wgmma_configs(gpu, dtype, tensor))
    if tensor == "none":
        return list(_core_configs(gpu))
    if gpu.has_async_copy:
        return list(mma_configs(gpu, dtype, tensor))
    return list(_register_configs(gpu, dtype, tensor))


def mma_configs(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileConfig]:
    """sm_80 and later; steps and slots that keep the most blocks on an SM, on a tie the first that do."""
    steps = SPARSE_STEPS if tensor.startswith("sparse-") else STEPS
    for form in _MMA_FORMS:
        choices = [_mma_config(form, dtype, tensor, row, stages) for row, stages in steps]
        yield max(choices, key=lambda v: occupancy(v.resources, gpu).blocks_per_sm)


def _register_configs(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileConfig]:
    """sm_70, sm_75: two slots, and the next step's data wait in registers."""
    # Turing: m16n8k8. Volta: m8n8k4 is four instructions of 256 FMA (Jia et al., arXiv 1804.06826)
    fma = 1024 if gpu.compute_capability >= 75 else 256
    for form in _REGISTER_FORMS:
        shape = BlockShape(form.block_m, form.block_n, STEP_ROW_BYTES // DTYPE_BYTES[dtype])
        stage = _stage_bytes(shape, dtype, tensor)
        registers = _registers(form, staged=stage // THREADS // 4)
        resources = BlockResources(THREADS, registers, 2 * stage, 2)
        yield _config("registers", form, shape, dtype, tensor, fma, resources)


def _core_configs(gpu: GpuSpec) -> Iterator[TileConfig]:
    """fp32 on CUDA cores, whose instructions have one FMA for each lane; slots as `mma_configs` chooses."""
    for form in _CORE_FORMS:
        registers = _CORE_REGISTERS if gpu.compute_capability < 100 else _PAIRED_REGISTERS
        of_part = registers[form.part_m * form.part_n]
        choices = [_core_config(form, of_part, stages) for stages in _CORE_STAGES[gpu.has_async_copy]]
        yield max(choices, key=lambda v: occupancy(v.resources, gpu).blocks_per_sm)


def _core_config(form: _WarpTile, registers: int, stages: int) -> TileConfig:
    shape = BlockShape(form.block_m, form.block_n, STEP_ROW_BYTES // DTYPE_BYTES["fp32"])
    is_async = stages > _CORE_STAGES[False][0]
    shared = stages * (form.block_m + form.block_n) * STEP_ROW_BYTES + is_async * BESIDE_BYTES
    resources = BlockResources(THREADS, registers, shared, stages)
    return _config("mma" if is_async else "registers", form, shape, "fp32", "none", 32, resources)


def _mma_config(form: _WarpTile, dtype: str, tensor: str, step_row_bytes: int, stages: int) -> TileConfig:
    shape = BlockShape(form.block_m, form.block_n, step_row_bytes // DTYPE_BYTES[dtype])
    # Besides the stages: four steps' columns of four bytes, and 16 records of 16
    beside = max(4 * 4 * shape.block_k + 16 * 16, BESIDE_BYTES)
    shared = beside + stages * _stage_bytes(shape, dtype, tensor)
    resources = BlockResources(THREADS, _registers(form, staged=0), shared, stages)
    # m16n8k16, and m16n8k8 for TF32; the sparse forms do as many kept FMA (PTX ISA, mma and mma.sp)
    fma = 16 * 8 * 32 // DTYPE_BYTES[dtype]
    return _config("mma", form, shape, dtype, tensor, fma, resources)


def _config(
    tensor_path: str,
    form: _WarpTile,
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


def _registers(form: _WarpTile, *, staged: int) -> int:
    """Sums, one k16 of fragments, staged copies and 40 for addresses, in units of eight.

    128 for a part of 64 x 32 and 200 for 64 x 64, in the range that kernels of this form have.
    """
    sums = form.part_m * form.part_n // 32
    fragments = form.part_m // 4 + form.part_n // 4
    return -(-(sums + fragments + staged + 40) // 8) * 8


def _stage_bytes(shape: BlockShape, dtype: str, tensor: str) -> int:
    element = DTYPE_BYTES[dtype]
    weights = weight_bytes(shape.block_m, shape.block_k, element, sparse=tensor.startswith("sparse-"))
    return -(-weights // LINE_BYTES) * LINE_BYTES + shape.block_n * shape.block_k * element
