"""`SparseOperator.compile(plan, weights)`: a plan of 2:4 weights as a callable on the GPU, `c = op(b)`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.build import CompiledKernel
from prunecast.kernels.device.operator import Operator
from prunecast.kernels.device.packed import Packed
from prunecast.kernels.two_of_four.cuda.images import build_sparse_kernel, pack_plan, sparse_defines
from prunecast.plan.kernel_plan import KernelPlan


class SparseOperator(Operator):
    """A plan of the sparse wgmma kernel on one device.

    B must be finite at every column that its tile keeps: where a row keeps fewer than two of four neighbours,
    the hardware multiplies one of the others by zero.
    """

    name, entry = "the sparse wgmma kernel", "sparse_sm90"

    @classmethod
    def build(
        cls, plan: KernelPlan, arch: str, *, activation: str, bias: bool, changes: Mapping[str, int] | None
    ) -> CompiledKernel:
        """For sm_90a."""
        defines = sparse_defines(plan, activation=activation, bias=bias, changes=changes)
        return build_sparse_kernel(plan, defines)

    @classmethod
    def pack(cls, plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
        """Stages of squeezed rows with their places, and work records."""
        return pack_plan(plan, weights)
