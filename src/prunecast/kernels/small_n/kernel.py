"""The record of `small-n`."""

import sys

from prunecast.kernels.kernel import Entry, Kernel, Sources
from prunecast.kernels.small_n.launch import small_n_traits
from prunecast.kernels.small_n.planner import MOST_N, plan_small_n, small_n_configs, small_n_times
from prunecast.patterns.tile_map import TileMap

__all__ = ["SMALL_N"]


SMALL_N = Kernel(
    name="small-n",
    meaning=f"the same tiles for at most {MOST_N} tokens, where reading the weights is all the time there is",
    takes=TileMap,
    natural_pattern="tile-wise:128",
    keeps=("tiles",),
    most_tokens=MOST_N,
    costs="prunecast.kernels.small_n",
    plan=plan_small_n,
    configs=small_n_configs,
    times=small_n_times,
    compilers={"mma": Entry("prunecast.kernels.small_n.cuda.operator", "SmallOperator")},
    sources=Sources("small", ("device", "small_n/cuda")),
    writes_all_rows=True,
    unaligned_tokens=sys.maxsize,
    traits=small_n_traits,
)
