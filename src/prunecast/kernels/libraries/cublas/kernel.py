"""The record of `dense`."""

from prunecast.kernels.kernel import Kernel
from prunecast.kernels.libraries.cublas.launches import dense_traits
from prunecast.kernels.libraries.cublas.planner import plan_dense

__all__ = ["DENSE"]

DENSE = Kernel(
    name="dense",
    meaning="all weights, pruned or not, by the vendor's library: what the others are compared with",
    takes=None,
    natural_pattern="dense",
    families=("dense",),
    plan=plan_dense,
    library=True,
    fills_l2=True,
    traits=dense_traits,
)
