"""Plans of the mma tile kernel with a given form, on ragged maps, plain and with 2:4 inside."""

import numpy as np

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.configs import mma_configs
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.patterns import TileMap
from prunecast.plan.assignment import Assigned, assign_hardware, assign_stream_k
from tests.kernels.cuda.sparse.layouts import elements_in

__all__ = ["KEPT", "plan_of", "ragged_map", "variants_of"]

KEPT = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 700)


def ragged_map(block_m: int, k: int = 701, seed: int = 0) -> TileMap:
    """A tile for every count of `KEPT`, rows shuffled, the last tile shorter, five rows in no tile.

    No tile keeps column 0.
    """
    rng = np.random.default_rng(seed)
    heights = np.full(len(KEPT), block_m)
    heights[-1] = block_m // 2 + 3
    m = int(heights.sum()) + 5
    columns = [1 + np.sort(rng.choice(k - 1, kept, replace=False)) for kept in KEPT]
    return TileMap(
        m=m,
        k=k,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=rng.permutation(m)[: m - 5],
        column_start=np.concatenate(([0], np.cumsum([c.size for c in columns]))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{block_m}",
    )


def variants_of(gpu: str, dtype: str = "fp16", tensor: str = "mma") -> list[TileConfig]:
    """All forms of a GPU, those that do not fit it too."""
    spec = load_gpu(gpu)
    return list(mma_configs(spec, dtype, "none" if dtype == "fp32" else tensor))


def plan_of(
    tiles: TileMap,
    n: int,
    form: tuple[int, int],
    *,
    dtype: str = "fp16",
    blocks: int = 0,
    gpu: str = "a100-sxm4-80gb",
    sparse: bool = False,
) -> KernelPlan:
    """One item per block, or equal shares of all k-steps for a persistent grid of `blocks` blocks.

    `sparse`: with two, one or none of every four neighbours kept.
    """
    tensor = "sparse-mma" if sparse else "mma"
    config = next(v for v in variants_of(gpu, dtype, tensor) if v.shape[:2] == form)
    items = items_of(tiles, config, n, load_gpu(gpu))
    step = config.shape.block_k
    assigned: Assigned = assign_stream_k(items, blocks, step) if blocks else assign_hardware(items)
    inner = elements_in(tiles) if sparse else None
    kernel = "2:4" if sparse else "stspmm"
    return tile_plan(kernel, tiles, n, config, assigned, load_gpu(gpu), b_access="gather", inner=inner)
