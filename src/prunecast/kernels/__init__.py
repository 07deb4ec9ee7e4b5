"""Kernels: their planners, warp programs, CUDA sources and operators.

A planner converts a tile map or element map (the weights that a pattern keeps), a number of tokens and a GPU
into a `KernelPlan`: work items, block shape, registers, shared memory and warp programs.
`prunecast.simulator` and `prunecast.models` predict the time of a plan. Only `device` and the folders `cuda`
need a GPU.

This package imports `prunecast.patterns` and `prunecast.hardware`; all packages that predict times import it.

`compile` compiles a plan and loads it on the GPU. It imports CuPy and the operator class of the kernel only
when it is called.

Read first: `kernel.py`, whose class `Kernel` is the record that describes a kernel, then `tile/tile_plan.py`,
the shortest planner. Every kernel has a folder that contains its record. `tile` has three kernels that share
their CUDA sources; `two_of_four`, `small_n` and `balanced` have one each; `libraries` contains the records of
cuBLAS, cuSPARSE and cuSPARSELt. `device` contains the code that all operators share. To add a kernel, add a
folder and a line in `table.py`, see `docs/howto/add_a_kernel.md`.
"""

from prunecast.kernels.balanced.kernel import plan_balanced
from prunecast.kernels.compile import Operator, compile
from prunecast.kernels.kernel import Kernel
from prunecast.kernels.libraries.cublas.kernel import plan_dense
from prunecast.kernels.libraries.cusparse.kernel import plan_csr
from prunecast.kernels.table import KERNELS
from prunecast.kernels.tile.stspmm import plan_stspmm
from prunecast.kernels.tile.tile_plan import plan_block_sparse, plan_tile_wise
from prunecast.kernels.two_of_four.kernel import plan_sparse_tensor
from prunecast.plan.conv import grid_plan, im2col_bytes, implicit_plan
from prunecast.plan.conv_grid import ConvGrid
from prunecast.plan.conv_shape import ConvShape
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape, KernelPlan, PlanDoesNotFit, Schedule, WorkList
from prunecast.plan.reference import run_reference
from prunecast.plugins import load_installed as _load_installed

__all__ = [
    "DTYPE_BYTES",
    "KERNELS",
    "BlockShape",
    "ConvGrid",
    "ConvShape",
    "Kernel",
    "KernelPlan",
    "Operator",
    "PlanDoesNotFit",
    "Schedule",
    "WorkList",
    "compile",
    "grid_plan",
    "im2col_bytes",
    "implicit_plan",
    "plan_balanced",
    "plan_block_sparse",
    "plan_csr",
    "plan_dense",
    "plan_sparse_tensor",
    "plan_stspmm",
    "plan_tile_wise",
    "run_reference",
]

# Last, so that the modules of other packages can import every name from here
KERNELS.update((record.name, record) for record in _load_installed("prunecast.kernels", Kernel).values())
