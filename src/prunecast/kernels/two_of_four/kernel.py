"""The record of `2:4`."""

from prunecast.kernels.kernel import Entry, Kernel, Sources
from prunecast.kernels.two_of_four.planner import (
    plan_sparse_tensor,
    sparse_tensor_configs,
    sparse_tensor_times,
)
from prunecast.patterns.element_map import ElementMap

__all__ = ["TWO_OF_FOUR"]

TWO_OF_FOUR = Kernel(
    name="2:4",
    meaning="two of every four weights are kept, which sparse tensor cores do; always 50 %",
    takes=ElementMap,
    natural_pattern="2:4",
    keeps=("elements in tiles",),
    families=("2:4",),
    costs="prunecast.kernels.tile",
    plan=plan_sparse_tensor,
    configs=sparse_tensor_configs,
    times=sparse_tensor_times,
    compilers={
        "sparse-wgmma": Entry("prunecast.kernels.two_of_four.cuda.operator", "SparseOperator"),
        "sparse-mma": Entry("prunecast.kernels.tile.cuda.mma.operator", "MmaOperator"),
    },
    sources=Sources("sparse", ("device", "tile/cuda", "two_of_four/cuda")),
    fills_l2=True,
)
