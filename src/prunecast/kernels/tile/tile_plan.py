"""Create work items from tiles, and plans from assigned work items, for all tile kernels."""

import math

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import LaunchTraits
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.programs.warp_programs import warp_programs
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.assignment import Assigned, assign_hardware
from prunecast.plan.kernel_plan import KernelPlan, Schedule, WorkList
from prunecast.plan.misaligned import row_bytes_of, with_row_starts
from prunecast.plan.tile_rows import columns_of_any, cut_rows, rows_are_scattered
from prunecast.plan.work_items import ranges_together, raster_items

RANGES_ON_CORES = 4
"""Token ranges of a group in `items_of` for blocks on CUDA cores that the hardware schedules. More ranges
balance the load better and read rows of B more often.
Kind: choice, not measured. Predicted times of 44 random layers on a GTX 1080 Ti, whose order would otherwise
depend on the size of L2, change by -3.5 to +1.0 % (closed form, mean -0.3 %); with all ranges by up to +12 %
(2026-11-29)."""


def check_tokens(n: int) -> None:
    """Raise BadInput unless there is at least one token."""
    if n <= 0:
        raise BadInput(f"n (tokens) must be at least 1, got {n}")


def height_of(tiles: TileMap) -> int:
    """Return the number of rows of the tallest tile, at least 1."""
    return int(tiles.rows_per_tile.max(initial=1))


def items_of(
    tiles: TileMap, config: TileConfig, n: int, gpu: GpuSpec, *, cluster: int = 1, heavy_first: bool = False
) -> WorkList:
    """Return one unsplit work item per tile and token range: all tiles of a group of token ranges, then the
    next group (`plan.work_items.raster`).

    With a cluster above 1, an item has the tokens of all blocks of a cluster; `stspmm.spread_over_clusters`
    divides them among the blocks. With `heavy_first`, the tiles of a group are in the order of their kept
    columns, most first. Raises BadInput for n below 1.
    """
    check_tokens(n)
    k16 = -(-tiles.kept_per_tile.astype(np.int64) // 16)
    packed = int(k16.sum()) * config.weight_bytes_per_k16
    block_n = config.shape.block_n * cluster
    ranges, together = -(-n // block_n), 1
    if 2 * packed > gpu.l2_usable_bytes:  # L2 may evict weights before their reuse
        round_bytes = packed + _round_bytes(tiles, config, n, gpu, cluster)
        together = ranges_together(packed, round_bytes, config.shape.block_m, ranges, gpu)
    if heavy_first and config.tensor == "none":
        together = RANGES_ON_CORES
    by_columns = np.argsort(-tiles.kept_per_tile, kind="stable").astype(np.int32) if heavy_first else None
    return raster_items(tiles.kept_per_tile, n=n, block_n=block_n, together=together, tiles=by_columns)


def _round_bytes(tiles: TileMap, config: TileConfig, n: int, gpu: GpuSpec, cluster: int) -> float:
    """Return the bytes of B and C that pass through L2 in a round: while all tiles process a token range.

    If a wave has enough blocks for several token ranges, these are processed concurrently in one round.
    """
    block_n, count = config.shape.block_n * cluster, max(tiles.tile_count, 1)
    blocks = resident_blocks(config, gpu, count * -(-n // block_n), cluster=cluster)
    abreast = max(blocks / count, 1.0)
    b_bytes = columns_of_any(tiles) * min(math.ceil(abreast) * block_n, n) * config.element_bytes
    return b_bytes + tiles.m * min(abreast * block_n, n) * config.element_bytes


def resident_blocks(config: TileConfig, gpu: GpuSpec, items: int, *, cluster: int = 1) -> int:
    """Return the number of blocks, or clusters, of a persistent grid: as many as are resident at once, at
    most one per item.
    """
    fit = gpu.sm_count * occupancy(config.resources, gpu).blocks_per_sm // cluster
    return max(min(fit, items), 1)


def tile_plan(
    kernel: str,
    tiles: TileMap,
    n: int,
    config: TileConfig,
    assigned: Assigned,
    gpu: GpuSpec,
    *,
    b_access: str,
    cluster: int = 1,
    experts: int = 1,
    inner: ElementMap | None = None,
) -> KernelPlan:
    """Return the plan of a tile kernel.

    Parameters
    ----------
    kernel : name of the kernel
    assigned : work list, schedule and number of blocks
    b_access : `gather` or `dense_tile`, as `KernelPlan.b_access`
    cluster : number of blocks that share weights by multicast in a `gather` kernel; the work list must
        contain the items of each block already
    experts : number of experts whose matrices are stacked along M in `tiles`
    inner : elements kept inside the tiles (2:4), or None
    """
    # True for the wgmma kernel that gathers rows of B, `kernels/tile/cuda/tile_sm90.cu`
    own = config.tensor_path == "wgmma" and b_access == "gather"
    programs = warp_programs(
        config,
        b_access,
        multicast=cluster,
        item_in_memory=assigned.schedule is Schedule.HARDWARE,
        scattered=own and rows_are_scattered(tiles),
    )
    if own and config.dtype != "fp8":  # rows of fp8 B are tokens
        programs = with_row_starts(programs, row_bytes_of(n, config.element_bytes), gpu)
    return KernelPlan(
        kernel=kernel,
        n=n,
        dtype=config.dtype,
        tiles=tiles,
        inner=inner,
        **assigned._asdict(),
        shape=config.shape,
        resources=config.resources,
        programs=programs,
        tensor=config.tensor,
        b_access=b_access,
        cluster=cluster,
        experts=experts,
        fewest_steps=2 if own else 0,
        pdl=own,
        config=config,
    )


def _plan_of_blocks(
    kernel: str, tiles: TileMap, n: int, config: TileConfig, gpu: GpuSpec, b_access: str
) -> KernelPlan:
    """Return the plan of a tile kernel with one block per tile and token range, started by the hardware.

    Heavy tiles come first, so that a launch ends with short blocks: in the order of tiles, one of the last
    blocks can be a long one, and a faster GPU can be slower because another SM gets it. Configs with wgmma
    keep the order of tiles, with which all of them were measured.
    """
    items = items_of(tiles, config, n, gpu, heavy_first=config.tensor_path != "wgmma")
    return tile_plan(kernel, tiles, n, config, assign_hardware(items), gpu, b_access=b_access)


def tile_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """Return the launch traits of a tile kernel: those of `kernels/tile/cuda/tile_sm90.cu`, or none."""
    own = plan.b_access == "gather" and plan.tensor.endswith("wgmma")
    return LaunchTraits(prefetches_weights=own, aligns_rows=own)


def plan_block_sparse(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec, config: TileConfig) -> KernelPlan:
    """Return the plan of a block-sparse product with `n` tokens: one thread block per tile and token range.

    Rows of B are gathered by index if the kept rectangles are narrower than a k-step or not aligned to it;
    else B is read in contiguous slabs. Configs with wgmma always gather.

    Parameters
    ----------
    config : one of `tile_map_configs`

    Raises
    ------
    BadInput : n below 1
    """
    tiles = cut_rows(tiles, config.shape.block_m)
    boxes = config.tensor_path != "wgmma" and _steps_are_slabs(tiles, config.shape.block_k)
    return _plan_of_blocks("block-sparse", tiles, n, config, gpu, "dense_tile" if boxes else "gather")


def _steps_are_slabs(tiles: TileMap, block_k: int) -> bool:
    """Return True if the columns of every k-step are contiguous and start at a multiple of `block_k`."""
    kept = tiles.kept_per_tile
    place = np.arange(tiles.column_index.size) - np.repeat(tiles.column_start[:-1], kept)
    slab, inside = np.divmod(tiles.column_index, block_k)
    first_of_step = np.arange(place.size) - place % block_k
    return bool(np.all(inside == place % block_k) and np.all(slab == slab[first_of_step]))


def plan_tile_wise(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec, config: TileConfig) -> KernelPlan:
    """Return the plan of a product of a tile map with `n` tokens: one thread block per tile and token range.

    No tile is split along K, so blocks with heavy tiles run longer. Tiles taller than the config's block are
    cut along their rows.

    Parameters
    ----------
    config : one of `tile_map_configs`

    Raises
    ------
    BadInput : n below 1
    """
    return _plan_of_blocks("tile-wise", cut_rows(tiles, config.shape.block_m), n, config, gpu, "gather")
