"""Kernels: what is decided before a launch, and what it means.

The room turns a layout (tiles or elements that a pattern keeps), a number of tokens and a GPU into a
`KernelPlan`: work items, block shape, registers, shared memory, warp programs. It does not say how long a
plan takes, `prunecast.simulator` and `prunecast.models` do: the only arithmetic about time here is `choose`,
by which a kernel picks its form. Only `device` and the folders `cuda` need a GPU.

Floor: above `prunecast.patterns` and `prunecast.hardware`, below everything that predicts.

`compile` brings a plan to the GPU; what it needs is loaded when it is called.

Read first: `kernel.py` (what the project knows of a kernel), then `tile/tile_plan.py`, the shortest
planner. Every kernel is a folder with its record: `tile` has three that share their CUDA, `two_of_four`,
`small_n` and `balanced` one each, `libraries` those of cuBLAS and cuSPARSE. `device` is what the CUDA of all
of them shares. A new one is a folder and a line in `table.py`, see `docs/howto/add_a_kernel.md`.
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
