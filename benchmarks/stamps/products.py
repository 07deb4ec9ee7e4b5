"""Plans of made-up tiles, in lists of whole items or one item a block, as the stamped commands want them."""

import numpy as np

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.kernels.tile.wgmma_configs import wgmma_configs
from prunecast.patterns import ElementMap, TileMap, element_map_from_mask
from prunecast.plan.order import assign_hardware, assign_longest_first
from prunecast.plan.tile_rows import cut_rows

__all__ = ["GPU", "made_up_tiles", "whole_items"]

GPU = load_gpu("h200-sxm")


def made_up_tiles(
    height: int, kept: np.ndarray, k: int, rng: np.random.Generator, rows: np.ndarray | None = None
) -> TileMap:
    """Tiles of equal height that keep `kept` (tiles,) random columns.

    Parameters
    ----------
    rows : rows of A in the order of the tiles; one after the other unless told
    """
    m = height * kept.size
    return TileMap(
        m=m,
        k=k,
        row_start=np.arange(kept.size + 1) * height,
        row_index=np.arange(m) if rows is None else rows,
        column_start=np.concatenate(([0], np.cumsum(kept))),
        column_index=np.concatenate([np.sort(rng.permutation(k)[:c]) for c in kept]),
        pattern=f"tile-wise:{height}",
    )


def whole_items(
    kernel: str,
    form: tuple[int, int],
    tiles: TileMap,
    ranges: int,
    *,
    blocks: int,
    hardware: bool = False,
    cluster: int = 1,
) -> KernelPlan:
    """Lists of whole items, longest first, or a block for every item.

    Parameters
    ----------
    kernel : `tile`, or `sparse`: the first two of every four columns of a tile are kept in each row
    ranges : of as many tokens as the form has
    """
    tensor = "sparse-wgmma" if kernel == "sparse" else "wgmma"
    variant = next(v for v in wgmma_configs(GPU, "fp16", tensor) if v.shape[:2] == form)
    n = form[1] * ranges
    tiles = cut_rows(tiles, form[0])
    items = items_of(tiles, variant, n, GPU)
    cost = items.k_stop.astype(np.int64) + 64
    lists = assign_longest_first(items, cost, min(blocks, items.tile.size))
    assigned = assign_hardware(items) if hardware else lists
    if kernel == "sparse":
        return tile_plan("2:4", tiles, n, variant, assigned, GPU, k_order="gather", inner=_two_of_four(tiles))
    return tile_plan("stspmm", tiles, n, variant, assigned, GPU, k_order="gather", cluster=cluster)


def _two_of_four(tiles: TileMap) -> ElementMap:
    """The first two of every four neighbours in the list of a tile."""
    mask = np.zeros((tiles.m, tiles.k), np.bool_)
    for t in range(tiles.tile_count):
        rows = tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]
        columns = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        mask[np.ix_(rows, columns[np.arange(columns.size) % 4 < 2])] = True
    return element_map_from_mask(mask, tiles.pattern)
