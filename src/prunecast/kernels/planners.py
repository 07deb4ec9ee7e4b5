"""Every kernel that can be planned. A new one is a file with a `plan_*` function, and a line here."""

from collections.abc import Callable

from prunecast.kernels.balanced.planner import plan_balanced
from prunecast.kernels.libraries.cublas.planner import plan_dense
from prunecast.kernels.libraries.cusparse.planner import plan_csr
from prunecast.kernels.small_n.planner import plan_small_n
from prunecast.kernels.tile.block_sparse import plan_block_sparse
from prunecast.kernels.tile.stspmm import plan_stspmm
from prunecast.kernels.tile.tile_wise import plan_tile_wise
from prunecast.kernels.two_of_four.planner import plan_sparse_tensor
from prunecast.plan.kernel_plan import KernelPlan

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
