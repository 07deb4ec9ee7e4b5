"""Which kernels the vendor's dense library (cuBLAS) is taken to have on a GPU.

Its kernels are known by the names that profilers print. On sm_90, CUDA 12.8 to 13.1, they read
`nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT`: a tile of C of 256 x 128, k-steps of 64 in 4 stages, clusters
of two. 64x8, 64x88, 168x128, 192x192, 320x128 and 512x64 have been seen; the short side may be any multiple
of 8. They launch one block of 384 threads with 168 registers on each SM.

On sm_80 and sm_86 they read `ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn`: a few tiles,
k-steps of 64 or 32, one block for each tile of C.
"""

from collections.abc import Iterator
from functools import lru_cache

from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import CONSUMER_WARPGROUPS, MMA_WARPS, TileConfig, wgmma_use
from prunecast.kernels.tile.mma_configs import WarpTile, register_configs
from prunecast.kernels.tile.wgmma_configs import pair_configs
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape
from prunecast.plan.tensor_rate import tensor_fma_per_clk

__all__ = ["dense_forms", "warpgroup_form"]

THREADS, REGISTERS_AT_ENTRY = 384, 168
BARRIER_BYTES = 1024
MOST_STAGING_BYTES = 32 * 1024
"""For the stores of C."""
MOST_STAGES = 16
STEP_ROW_BYTES = 128
LONG_SIDES = (64, 128, 192, 256, 320)
"""One side of the tile of C is one of these, the other a short side or a multiple of `SIDE_STEP`. The library
has all multiples of 8, but choosing among them all errs more (own H200 records, H100 table)."""
SIDE_STEP = 32
MOST_SIDE = 256
SHORT_SIDES = (8, 16, 24)
MOST_TILE_ALONE = 176 * 128
"""Elements of C that a warpgroup has to itself while the other one has the next tile: the largest kernel
without `coop` in its name (133 products captured on an H200)."""
SHARED_TILES = {(192, 128), (256, 128), (320, 128), (192, 192)}
"""Larger tiles are shared by two warpgroups, `coopA` and `coopB`; these are all that were seen where tokens
are a multiple of 64."""
EVEN_TOKENS = 64
EVEN_SIDES, MOST_SIDE_THAT_FITS, MOST_SHARED_TILE = (64, 128, 192, 256), 320, 320 * 128
FEWEST_SHARED_TOKENS, MOST_DEALT_OUT = 96, 64
"""Other tokens are dealt out evenly: 200 to two tiles of 104, 336 to two of 168, 1576 to eight of 200 or nine
of 176, beside 64 to 256 rows (137 products of such tokens, captured on an H200, 2026-11-22)."""
_WARP_TILES = (
    WarpTile(256, 128, 64, 64),
    WarpTile(128, 256, 64, 64),
    WarpTile(128, 128, 64, 32),
    WarpTile(64, 256, 32, 64),
    WarpTile(256, 64, 64, 32),
    WarpTile(64, 128, 32, 32),
    WarpTile(128, 64, 32, 32),
    WarpTile(64, 64, 16, 32),
    WarpTile(32, 64, 16, 16),
    WarpTile(32, 128, 16, 32),
)
WARP_ROW_BYTES = (128, 64)
"""One row of weights in a k-step; the shorter where fewer than three of the longer fit."""
FEWEST_WARP_STAGES, MOST_WARP_STAGES = 3, 5


def dense_forms(gpu: GpuSpec, dtype: str, *, tokens: int = EVEN_TOKENS) -> tuple[TileConfig, ...]:
    """Forms of which a block fits on an SM of `gpu`, where rows of A, B and C are aligned (see `unaligned`).

    Parameters
    ----------
    tokens : of the product; some tiles are there for their number alone

    Raises
    ------
    BadInput : unknown dtype, or the GPU has no tensor cores for it
    """
    # 9.0 has wgmma, 10.0 and 10.3 have tcgen05; 12.0 has warp-level tensor instructions only
    tensor = "wgmma" if 90 <= gpu.compute_capability < 120 else "mma"
    tensor_fma_per_clk(gpu, dtype, tensor)  # refuses what the GPU cannot run
    fitting = _sides_that_fit(tokens) if gpu.has_wgmma and tensor == "wgmma" else ()
    return _fitting(gpu, dtype, tensor, fitting)


def _sides_that_fit(tokens: int) -> tuple[int, ...]:
    """Multiples of 8 that deal the tokens out evenly."""
    if tokens % EVEN_TOKENS == 0:
        return ()
    counts = range(-(-tokens // MOST_SIDE_THAT_FITS), -(-tokens // 8) + 1)
    sides = {8 * -(-tokens // (8 * count)) for count in counts if count <= MOST_DEALT_OUT}
    return tuple(sorted(side for side in sides if side <= MOST_SIDE_THAT_FITS))


@lru_cache(maxsize=32)
def _fitting(gpu: GpuSpec, dtype: str, tensor: str, sides: tuple[int, ...]) -> tuple[TileConfig, ...]:
    return tuple(v for v in _all(gpu, dtype, tensor, sides) if occupancy(v.resources, gpu).blocks_per_sm > 0)


def _all(gpu: GpuSpec, dtype: str, tensor: str, sides: tuple[int, ...]) -> Iterator[TileConfig]:
    if gpu.has_wgmma and tensor == "wgmma":
        return _warpgroup_forms(gpu, dtype, sides)
    if tensor == "wgmma":
        return pair_configs(gpu, dtype, tensor)
    if gpu.has_async_copy:
        return _warp_forms(gpu, dtype)
    return register_configs(gpu, dtype, tensor)


def _warpgroup_forms(gpu: GpuSpec, dtype: str, sides: tuple[int, ...]) -> Iterator[TileConfig]:
    for block_m, block_n in sorted(_tiles() | _tiles_that_fit(sides)):
        form = warpgroup_form(gpu, dtype, block_m, block_n)
        if form is not None:
            yield form


def _tiles() -> set[tuple[int, int]]:
    sides = (*SHORT_SIDES, *range(SIDE_STEP, MOST_SIDE + 1, SIDE_STEP))
    pairs = {(long, side) for long in LONG_SIDES for side in sides if long * side <= MOST_TILE_ALONE}
    pairs |= SHARED_TILES
    return pairs | {(n, m) for m, n in pairs}


def _tiles_that_fit(sides: tuple[int, ...]) -> set[tuple[int, int]]:
    """Rows and tokens; those with all of a warpgroup, and those that two share."""
    pairs = {(rows, side) for rows in EVEN_SIDES for side in sides}
    alone = {(rows, side) for rows, side in pairs if rows * side <= MOST_TILE_ALONE}
    shared = {(rows, side) for rows, side in pairs if rows > EVEN_SIDES[0] and side >= FEWEST_SHARED_TOKENS}
    return alone | {(rows, side) for rows, side in shared if rows * side <= MOST_SHARED_TILE}


def warpgroup_form(gpu: GpuSpec, dtype: str, block_m: int, block_n: int) -> TileConfig | None:
    """Two warpgroups share rows or tokens of the tile, whichever reads less; where neither can be one has all
    of it; None if not even that.
    """
    element = DTYPE_BYTES[dtype]
    halves = ((block_m // CONSUMER_WARPGROUPS, block_n), (block_m, block_n // CONSUMER_WARPGROUPS))
    found = _uses(halves, element) or _uses(((block_m, block_n),), element)
    if not found:
        return None
    _, part_m, part_n, instruction_rows = min(found)
    shape = BlockShape(block_m, block_n, STEP_ROW_BYTES // element)
    resources = _resources(gpu, shape, element)
    if resources.stages < 2:
        return None
    return TileConfig(
        tensor_path="wgmma",
        tensor="wgmma",
        dtype=dtype,
        shape=shape,
        part_m=part_m,
        part_n=part_n,
        fma_per_instruction=64 * instruction_rows * 32 // element,
        resources=resources,
    )


def _uses(parts: tuple[tuple[int, int], ...], element: int) -> list[tuple[int, int, int, int]]:
    """Bytes that a warpgroup reads, its part of the tile, and N of its instruction, of parts that can be."""
    uses = [(m, n, wgmma_use(m, n, element, sparse=False)) for m, n in parts if m % 8 == n % 8 == 0]
    return [(use.operand_bytes, m, n, use.instruction_rows) for m, n, use in uses if use is not None]


def _resources(gpu: GpuSpec, shape: BlockShape, element: int) -> BlockResources:
    """As many stages as shared memory holds."""
    stage = (shape.block_m + shape.block_n) * STEP_ROW_BYTES
    other = BARRIER_BYTES + min(shape.block_m * shape.block_n * element // 2, MOST_STAGING_BYTES)
    stages = max(min((gpu.shared_bytes_per_block - other) // stage, MOST_STAGES), 0)
    return BlockResources(THREADS, REGISTERS_AT_ENTRY, other + stages * stage, stages)


def _warp_forms(gpu: GpuSpec, dtype: str) -> Iterator[TileConfig]:
    for tile in _WARP_TILES:
        forms = (_warp_form(gpu, dtype, tile, row_bytes) for row_bytes in WARP_ROW_BYTES)
        yield from [form for form in forms if form.resources.stages >= FEWEST_WARP_STAGES][:1]


def _warp_form(gpu: GpuSpec, dtype: str, tile: WarpTile, row_bytes: int) -> TileConfig:
    element = DTYPE_BYTES[dtype]
    stage = (tile.block_m + tile.block_n) * row_bytes
    stages = max(min((gpu.shared_bytes_per_block - BARRIER_BYTES) // stage, MOST_WARP_STAGES), 0)
    # sums, two sets of fragments of 16 columns, and 40 for addresses
    registers = tile.part_m * tile.part_n // 32 + (tile.part_m + tile.part_n) // 4 + 40
    return TileConfig(
        tensor_path="mma",
        tensor="mma",
        dtype=dtype,
        shape=BlockShape(tile.block_m, tile.block_n, row_bytes // element),
        part_m=tile.part_m,
        part_n=tile.part_n,
        fma_per_instruction=16 * 8 * 32 // element,
        resources=BlockResources(
            32 * MMA_WARPS, -(-registers // 8) * 8, BARRIER_BYTES + stages * stage, stages
        ),
    )
