"""Configs of the tile kernel on a GPU.

A block computes one tile of C. Kept columns are processed in k-steps with multistage pipelining in shared
memory. There are three paths:

    wgmma      sm_90: one warpgroup copies, two warpgroups multiply
    mma        sm_80 and later: eight warps copy (cp.async) and multiply (mma.sync)
    registers  sm_70, sm_75: eight warps; copies go through registers, two stages

fp32 uses `mma` or `registers` with FMA instructions on CUDA cores. tf32 uses `mma`: its wgmma reads only
K-contiguous operands, and rows of B are token-contiguous.

The project's kernels use wgmma only on sm_90; later GPUs do not have it and use `mma`.
"""

from collections.abc import Iterator
from functools import lru_cache

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import RUN, TILE_FORMS, TileConfig, TileForm, weight_bytes, wgmma_configs
from prunecast.kernels.tile.tile_plan import check_tokens, height_of
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape
from prunecast.plan.tensor_rate import check_own_dtype, fma_per_clk
from prunecast.plan.tile_rows import keeps_runs

THREADS = 256
"""Threads of a block. Kind: CUDA source, `mma_shape.cuh`."""
BESIDE_BYTES = 1024
"""Minimum bytes of shared memory outside the pipeline stages, for the column indices of four k-steps and 16
step records. Kind: CUDA source, `mma_shape.cuh`."""
STEP_ROW_BYTES = 64
"""Bytes of a row of weights in a k-step. Kind: CUDA source, `mma_shape.cuh`."""
STEPS = ((STEP_ROW_BYTES, 4), (STEP_ROW_BYTES, 3))
"""Pairs: bytes of a row of weights in a k-step (before 2:4 compression), and number of stages. Kind: choice,
the compile tests build both."""
SPARSE_STEPS = ((2 * STEP_ROW_BYTES, 3), *STEPS)
"""`STEPS` for 2:4 weights. The first pair has twice the columns, so that a k-step has as many FMA as with
dense weights. With four stages of this size, some configs have too few registers for their addresses. Kind:
choice, on an H200 three and four stages of dense weights are equally fast."""
LINE_BYTES = 128
"""The weights of a stage are padded to a multiple of this number of bytes, so that the rows of tokens after
them begin at a 128-byte line. Kind: CUDA source, `mma_shape.cuh`."""
_CORE_REGISTERS = {32 * 64: 128, 32 * 32: 128, 16 * 32: 80}
"""Rows x tokens of a warp's part of C -> registers per thread of the fp32 kernel. Kind: as-compiled, sm_75 to
sm_90."""
_PAIRED_REGISTERS = {**_CORE_REGISTERS, 32 * 64: 160}
"""`_CORE_REGISTERS` for packed fp32x2 FMA, which use register pairs. Kind: as-compiled, sm_100 and sm_120."""
_REGISTER_STEPS = ((STEP_ROW_BYTES, 2),)
"""`STEPS` without cp.async: registers hold the data of the next k-step. Kind: CUDA source,
`mma_shape.cuh`."""


def tile_map_configs(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> tuple[TileConfig, ...]:
    """Return the configs for a tile map and `n` tokens.

    Raises
    ------
    BadInput : n below 1; fp8 tiles that do not keep columns in runs of `RUN`; and in the same cases as
        `tile_configs`
    """
    check_tokens(n)
    if dtype == "fp8" and not keeps_runs(tiles, RUN):
        raise BadInput(f"fp8 tiles keep columns in runs of {RUN}, these do not: prune with block:256x{RUN}")
    return tile_configs(gpu, dtype, height_of(tiles))


def block_sparse_configs(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> tuple[TileConfig, ...]:
    """Return the configs of `tile_map_configs`, then those configs with blocks of twice the height that have
    fewer tokens per block than all of the former.

    On sm_90 the lowest blocks have 64 rows and at least 128 tokens. With fewer tokens, copies of B need
    bounds checks: 64 tokens would be up to 13 % slower than 128. Blocks of 128 x 64 need no bounds checks.
    Other kernels do not use such blocks for tiles of 64 rows, since the packed weights, padded to the rows of
    a block, would need twice the memory.

    Raises
    ------
    BadInput : in the same cases as `tile_map_configs`
    """
    found = tile_map_configs(tiles, n, dtype, gpu)
    if not found:
        return found
    next_height = 2 * max(config.shape.block_m for config in found)
    fewest_tokens = min(config.shape.block_n for config in found)
    taller = (v for v in tile_configs(gpu, dtype, next_height) if v.shape.block_n < fewest_tokens)
    return (*found, *taller)


def tile_configs(gpu: GpuSpec, dtype: str, height: int) -> tuple[TileConfig, ...]:
    """Return the configs of the project's tile kernel on `gpu` for tiles of up to `height` rows.

    Configs whose blocks are taller than the smallest one that holds such a tile are left out.

    Raises
    ------
    BadInput : unknown dtype, height below 1, or the GPU has no tensor cores for the dtype
    """
    if dtype == "fp32":
        return _fitting(gpu, dtype, "none", height)
    if gpu.has_wgmma and dtype != "tf32":
        return _fitting(gpu, dtype, "wgmma", height)
    if dtype == "fp8":
        raise BadInput(f"fp8 tiles need wgmma, {gpu.name} has none")
    return _fitting(gpu, dtype, "mma", height)


def sparse_configs(gpu: GpuSpec, dtype: str, height: int) -> tuple[TileConfig, ...]:
    """Return the configs for 2:4 weights on sparse tensor cores. Raise BadInput if the GPU has no sparse
    tensor cores for the dtype.
    """
    native = gpu.has_wgmma and dtype != "tf32"
    return _fitting(gpu, dtype, "sparse-wgmma" if native else "sparse-mma", height)


@lru_cache(maxsize=256)
def _fitting(gpu: GpuSpec, dtype: str, tensor: str, height: int) -> tuple[TileConfig, ...]:
    """Return the configs that fit on an SM, up to the smallest block height that holds a tile of `height`
    rows.
    """
    if height <= 0:
        raise BadInput(f"tile height must be at least 1, got {height}")
    if dtype != "fp8" or tensor != "wgmma":
        check_own_dtype(dtype)
    fma_per_clk(gpu, dtype, tensor)  # raises BadInput if the GPU cannot run it
    configs = wgmma_configs if tensor.endswith("wgmma") else mma_configs
    found = [v for v in configs(gpu, dtype, tensor) if occupancy(v.resources, gpu).blocks_per_sm > 0]
    heights = [v.shape.block_m for v in found]
    tallest = min((h for h in heights if h >= height), default=max(heights, default=0))
    return tuple(v for v in found if v.shape.block_m <= tallest)


def mma_configs(gpu: GpuSpec, dtype: str, tensor: str) -> Iterator[TileConfig]:
    """Yield the configs of kernels whose warps copy and multiply, on tensor cores or, if `tensor` is `none`,
    on CUDA cores. Each has the pair of k-step and number of stages with the highest occupancy.
    """
    steps = SPARSE_STEPS if tensor.startswith("sparse-") else STEPS if gpu.has_async_copy else _REGISTER_STEPS
    for form in TILE_FORMS[tensor]:
        if not gpu.has_async_copy and form.block_m * form.block_n > 128 * 128:
            continue  # larger tiles leave no registers for copies
        choices = [_mma_config(form, gpu, dtype, tensor, row, stages) for row, stages in steps]
        yield max(choices, key=lambda v: occupancy(v.resources, gpu).blocks_per_sm)


def _mma_config(
    form: TileForm, gpu: GpuSpec, dtype: str, tensor: str, step_row_bytes: int, stages: int
) -> TileConfig:
    """Return the config of a form of tile on mma.sync, or on CUDA cores if `tensor` is `none`.

    A stage contains the weights of a k-step, in whole lines, and its rows of B; `step_row_bytes` are the
    bytes of a row of A in a k-step.
    """
    element = DTYPE_BYTES[dtype]
    shape = BlockShape(form.block_m, form.block_n, step_row_bytes // element)
    weights = weight_bytes(shape.block_m, shape.block_k, element, sparse=tensor.startswith("sparse-"))
    stage = -(-weights // LINE_BYTES) * LINE_BYTES + shape.block_n * shape.block_k * element
    # m16n8k16, and m16n8k8 for TF32; the sparse forms do as many kept FMA (PTX ISA, mma and mma.sp)
    registers, fma = _registers(form, staged=0), 16 * 8 * 32 // element
    # In addition to the stages: 4-byte column indices of four steps, and 16 records of 16 bytes
    beside = max(4 * 4 * shape.block_k + 16 * 16, BESIDE_BYTES)
    if not gpu.has_async_copy:
        # Turing: m16n8k8. Volta: m8n8k4 is four instructions of 256 FMA (Jia et al., arXiv 1804.06826)
        fma = 1024 if gpu.compute_capability >= 75 else 256
        registers, beside = _registers(form, staged=stage // THREADS // 4), 0
    if tensor == "none":  # one FMA per lane and instruction
        known = _CORE_REGISTERS if gpu.compute_capability < 100 else _PAIRED_REGISTERS
        registers, fma = known[form.part_m * form.part_n], 32
    return TileConfig(
        tensor_path="mma" if gpu.has_async_copy else "registers",
        tensor=tensor,
        dtype=dtype,
        shape=shape,
        part_m=form.part_m,
        part_n=form.part_n,
        fma_per_instruction=fma,
        resources=BlockResources(THREADS, registers, beside + stages * stage, stages),
        two_sets=form.two_sets,
    )


def _registers(form: TileForm, *, staged: int) -> int:
    """Return the registers for accumulators, operand fragments of 16 columns, staged copies and 40 for
    addresses.

    The sum is rounded up to a multiple of eight. A part of 64 x 32 has 128 registers and one of 64 x 64 has
    200, within the range of compiled kernels of this form.
    """
    sums = form.part_m * form.part_n // 32
    fragments = form.part_m // 4 + form.part_n // 4
    return -(-(sums + fragments + staged + 40) // 8) * 8
