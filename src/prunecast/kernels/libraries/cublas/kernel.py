"""The record of `dense`."""

from prunecast.kernels.libraries.cublas.launches import dense_traits
from prunecast.kernels.libraries.cublas.planner import dense_configs, plan_dense
from prunecast.kernels.libraries.surrogate import Surrogate

__all__ = ["CUBLAS", "DENSE"]

CUBLAS = Surrogate(
    library="cuBLAS",
    package=__package__,
    families="cublas_families",
    configs=dense_configs,
    plan=plan_dense,
    traits=dense_traits,
)

DENSE = CUBLAS.kernel(
    "dense",
    "all weights, pruned or not, by the vendor's library: what the others are compared with",
    takes=None,
    natural_pattern="dense",
    families=("dense",),
    fills_l2=True,
)
