"""`tile-wise`: all tiles in one batched launch, one block per tile and token range, no balancing."""

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.choose import Candidate, best
from prunecast.kernels.tile.choose_tiles import tile_candidates
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.configs import tile_configs
from prunecast.kernels.tile.tile_plan import check_tokens, height_of, items_of, tile_plan
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.order import assign_hardware
from prunecast.plan.tile_rows import cut_rows

__all__ = ["choose_tile_wise", "plan_tile_wise"]


def plan_tile_wise(
    tiles: TileMap, n: int, dtype: str, gpu: GpuSpec, *, config: TileConfig | None = None
) -> KernelPlan:
    """Plan the product of a tile map with `n` tokens; heavy tiles simply run longer.

    Tiles taller than the chosen block are cut along their rows.

    Parameters
    ----------
    config : one of `choose_tile_wise`, or None for the first of them

    Raises
    ------
    BadInput : n below 1, or a dtype that the GPU has no tensor cores for
    PlanDoesNotFit : no form of the kernel fits
    """
    config = config or best(choose_tile_wise(tiles, n, dtype, gpu), "tile-wise", gpu).config
    tiles = cut_rows(tiles, config.shape.block_m)
    assigned = assign_hardware(items_of(tiles, config, n, gpu))
    return tile_plan("tile-wise", tiles, n, config, assigned, gpu, b_access="gather")


def choose_tile_wise(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> list[Candidate]:
    """All forms that fit, fastest first; errors as `plan_tile_wise`."""
    check_tokens(n)
    return tile_candidates(tile_configs(gpu, dtype, height_of(tiles)), tiles, n, gpu)
