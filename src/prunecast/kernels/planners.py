"""Every kernel that can be planned. A new one is a file with a `plan_*` function, and a line here."""

from collections.abc import Callable

from prunecast.kernels.balanced.planner import plan_balanced
from prunecast.kernels.csr.planner import plan_csr
from prunecast.kernels.dense.planner import plan_dense
from prunecast.kernels.plan import KernelPlan
from prunecast.kernels.small_n.planner import plan_small_n
from prunecast.kernels.tiles.block_sparse import plan_block_sparse
from prunecast.kernels.tiles.n_of_m import plan_sparse_tensor
from prunecast.kernels.tiles.stspmm import plan_stspmm
from prunecast.kernels.tiles.tile_wise import plan_tile_wise

__all__ = ["PLANNERS"]

PLANNERS: dict[str, Callable[..., KernelPlan]] = {
    "dense": plan_dense,
    "tile-wise": plan_tile_wise,
    "stspmm": plan_stspmm,
    "small-n": plan_small_n,
    "block-sparse": plan_block_sparse,
    "2:4": plan_sparse_tensor,
    "csr": plan_csr,
    "balanced": plan_balanced,
}
"""Kernel name -> planner. All end in (n, dtype, gpu); before that stands what the kernel multiplies: m, k for
`dense`, a `TileMap` for `tile-wise`, `stspmm`, `small-n` and `block-sparse`, an `ElementMap` for
`2:4`, `csr` and `balanced`."""
