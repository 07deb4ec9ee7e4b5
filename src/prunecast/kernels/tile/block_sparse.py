"""`block-sparse`: tiles whose kept columns come in runs, so that rows of B are read in slabs."""

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.tile_plan import check_tokens, items_of, tile_plan
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.order import assign_hardware
from prunecast.plan.tile_rows import cut_rows


def plan_block_sparse(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec, config: TileConfig) -> KernelPlan:
    """Plan a block-sparse product with `n` tokens: one block per tile and token range, no balancing.

    Where sparse blocks are narrower than a k-step, or lie askew to it, rows of B are gathered one by one; on
    sm_90 always, by the project's own kernel.

    Parameters
    ----------
    config : one of `tile_map_configs`

    Raises
    ------
    BadInput : n below 1
    """
    check_tokens(n)
    tiles = cut_rows(tiles, config.shape.block_m)
    boxes = config.tensor_path != "wgmma" and steps_are_slabs(tiles, config.shape.block_k)
    assigned = assign_hardware(items_of(tiles, config, n, gpu))
    return tile_plan(
        "block-sparse", tiles, n, config, assigned, gpu, b_access="dense_tile" if boxes else "gather"
    )


def steps_are_slabs(tiles: TileMap, block_k: int) -> bool:
    """Whether the columns of every k-step are neighbours that start at a multiple of `block_k`."""
    kept = tiles.kept_per_tile
    place = np.arange(tiles.column_index.size) - np.repeat(tiles.column_start[:-1], kept)
    slab, inside = np.divmod(tiles.column_index, block_k)
    first_of_step = np.arange(place.size) - place % block_k
    return bool(np.all(inside == place % block_k) and np.all(slab == slab[first_of_step]))
