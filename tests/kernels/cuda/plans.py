"""Plans of the tile kernel with a given form, for tests of its images."""

import numpy as np

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, WorkList
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.patterns import TileMap
from prunecast.plan.assignment import Assigned, assign_hardware, assign_stream_k

GPU = load_gpu("h200-sxm")
KEPT = (0, 1, 15, 16, 17, 63, 64, 65, 300)


def ragged_map(block_m: int, k: int = 300, seed: int = 0, *, shuffled: bool = True) -> TileMap:
    """A tile for every count of `KEPT`, rows shuffled or not, the last one shorter, three rows in no tile."""
    rng = np.random.default_rng(seed)
    heights = np.full(len(KEPT), block_m)
    heights[-1] = block_m // 2 + 3
    m = int(heights.sum()) + 3
    columns = [np.sort(rng.choice(k, min(kept, k), replace=False)) for kept in KEPT]
    return TileMap(
        m=m,
        k=k,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=(rng.permutation(m) if shuffled else np.arange(m))[: m - 3],
        column_start=np.concatenate(([0], np.cumsum([c.size for c in columns]))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{block_m}",
    )


def plan_of(
    tiles: TileMap,
    n: int,
    block_m: int,
    block_n: int,
    *,
    dtype: str = "fp16",
    blocks: int = 0,
    owners_first: bool = False,
) -> KernelPlan:
    """One item per block, or equal shares of all k-steps for a persistent grid of `blocks` blocks.

    Owners of split tiles come last in a block's list, or before the whole tiles.
    """
    configs = wgmma_configs(GPU, dtype, "wgmma")
    config = next(v for v in configs if v.shape[:2] == (block_m, block_n))
    items = items_of(tiles, config, n, GPU)
    assigned: Assigned = assign_stream_k(items, blocks, 64) if blocks else assign_hardware(items)
    if owners_first:
        assigned = assigned._replace(work=_owners_first(assigned.work))
    return tile_plan("stspmm", tiles, n, config, assigned, GPU, b_access="gather")


def _owners_first(work: WorkList) -> WorkList:
    kind = np.where(work.parts == 1, 2, work.owner)
    block = np.repeat(np.arange(work.block_start.size - 1), np.diff(work.block_start))
    order = np.lexsort((kind, block))
    return WorkList(work.block_start, *(column[order] for column in work[1:]))
