"""`Kernel` records of the three tile kernels. They launch the same CUDA kernels with different planners."""

from functools import partial
from typing import Any

from prunecast.kernels.kernel import Entry, Kernel, Sources
from prunecast.kernels.tile.configs import block_sparse_configs, tile_map_configs
from prunecast.kernels.tile.item_cost import item_times
from prunecast.kernels.tile.stspmm import other_splits, plan_stspmm
from prunecast.kernels.tile.tile_plan import plan_block_sparse, plan_tile_wise, tile_traits
from prunecast.patterns.tile_map import TileMap

_COMMON: dict[str, Any] = {
    "takes": TileMap,
    "compilers": {
        "wgmma": Entry(
            "prunecast.kernels.tile.cuda.operator", "TileOperator", dtypes=("fp16", "bf16", "fp8")
        ),
        "mma": Entry("prunecast.kernels.tile.cuda.mma.operator", "MmaOperator", 75),
        "none": Entry("prunecast.kernels.tile.cuda.ffma.operator", "FfmaOperator", 70, ("fp32",)),
    },
    "sources": Sources("tile", ("device", "tile/cuda")),
    "costs": "prunecast.kernels.tile",
    "traits": tile_traits,
}
"""Attributes common to the tile kernels. Kind: definition, minimum compute capability for which the code of
each tensor instruction compiles."""

TILE_WISE = Kernel(
    name="tile-wise",
    meaning="weights in tiles of rows that share their kept columns; one block does one tile",
    natural_pattern="tile-wise:128",
    keeps=("tiles",),
    not_families=("dense", "block"),
    plan=plan_tile_wise,
    times=partial(item_times, persistent=False),
    configs=tile_map_configs,
    **_COMMON,
)

STSPMM = Kernel(
    name="stspmm",
    in_torch=True,
    meaning="the same tiles; heavy ones are split and spread over the SMs",
    natural_pattern="tile-wise:128",
    keeps=("tiles",),
    groups=True,
    splits=True,
    plan=plan_stspmm,
    configs=tile_map_configs,
    other_plans=other_splits,
    times=partial(item_times, persistent=True, splits=True),
    **_COMMON,
)

BLOCK_SPARSE = Kernel(
    name="block-sparse",
    meaning="weights kept or removed in small dense rectangles",
    natural_pattern="block:64x64",
    families=("block",),
    plan=plan_block_sparse,
    times=partial(item_times, persistent=False),
    configs=block_sparse_configs,
    **_COMMON,
)
