"""`tile-wise`: all tiles in one batched launch, one block per tile and token range, no balancing."""

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.tile_plan import check_tokens, items_of, tile_plan
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.order import assign_hardware
from prunecast.plan.tile_rows import cut_rows


def plan_tile_wise(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec, config: TileConfig) -> KernelPlan:
    """Plan the product of a tile map with `n` tokens; heavy tiles simply run longer.

    Tiles taller than the config's block are cut along their rows.

    Parameters
    ----------
    config : one of `tile_map_configs`

    Raises
    ------
    BadInput : n below 1
    """
    check_tokens(n)
    tiles = cut_rows(tiles, config.shape.block_m)
    assigned = assign_hardware(items_of(tiles, config, n, gpu))
    return tile_plan("tile-wise", tiles, n, config, assigned, gpu, b_access="gather")
