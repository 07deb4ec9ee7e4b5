"""The record of `small-n`."""

import sys
from collections.abc import Iterator

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import Entry, Kernel, Sources
from prunecast.kernels.small_n.configs import SmallConfig
from prunecast.kernels.small_n.launch import small_n_traits
from prunecast.kernels.small_n.planner import MOST_N, choose_small_n, plan_small_n
from prunecast.patterns.tile_map import TileMap

__all__ = ["SMALL_N"]


def _configs(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> Iterator[SmallConfig]:
    return (candidate.config for candidate in choose_small_n(tiles, n, dtype, gpu))


SMALL_N = Kernel(
    name="small-n",
    meaning=f"the same tiles for at most {MOST_N} tokens, where reading the weights is all the time there is",
    takes=TileMap,
    natural_pattern="tile-wise:128",
    keeps=("tiles",),
    most_tokens=MOST_N,
    plan=plan_small_n,
    configs=_configs,
    compilers={"mma": Entry("prunecast.kernels.small_n.cuda.operator", "compile_small")},
    sources=Sources("small", ("device", "small_n/cuda")),
    writes_all_rows=True,
    unaligned_tokens=sys.maxsize,
    traits=small_n_traits,
)
