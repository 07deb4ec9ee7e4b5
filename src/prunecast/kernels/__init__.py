"""Kernels: what is decided before a launch, and what it means.

The room turns a layout (tiles or elements that a pattern keeps), a number of tokens and a GPU into a
`KernelPlan`: work items, block shape, registers, shared memory, warp programs. It does not say how long a
plan takes, `prunecast.simulator` and `prunecast.models` do: the only arithmetic about time here is `choose`,
by which a kernel picks its form. Only `prunecast.kernels.cuda` needs a GPU.

Floor: above `prunecast.patterns` and `prunecast.hardware`, below everything that predicts.

`compile` brings a plan to the GPU; what it needs is loaded when it is called.

Read first: `plan.py` (the contract) and `program.py` (what warps do), then `tile_shapes.py` and one planner,
for instance `stspmm.py` with `items.py`, `splitting.py` and `order.py`. A new kernel is one file and one line
in `planners.py`.
"""

from prunecast.kernels.balanced import plan_balanced
from prunecast.kernels.block_sparse import plan_block_sparse
from prunecast.kernels.choose import Candidate
from prunecast.kernels.compile import Operator, compile
from prunecast.kernels.conv import im2col_bytes, implicit_plan
from prunecast.kernels.conv_shape import ConvShape
from prunecast.kernels.csr import plan_csr
from prunecast.kernels.dense import plan_dense
from prunecast.kernels.n_of_m import plan_sparse_tensor
from prunecast.kernels.plan import DTYPE_BYTES, BlockShape, KernelPlan, PlanDoesNotFit, Schedule, WorkList
from prunecast.kernels.planners import PLANNERS
from prunecast.kernels.reference import run_reference
from prunecast.kernels.stspmm import plan_stspmm
from prunecast.kernels.tile_wise import plan_tile_wise

__all__ = [
    "DTYPE_BYTES",
    "PLANNERS",
    "BlockShape",
    "Candidate",
    "ConvShape",
    "KernelPlan",
    "Operator",
    "PlanDoesNotFit",
    "Schedule",
    "WorkList",
    "compile",
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
