"""`compile_sparse(plan, weights)`: a plan of 2:4 weights as a callable on the GPU, `c = op(b)`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.arrays import check_device, check_weights
from prunecast.kernels.device.layer_operator import LayerOperator, load_fill, load_kernel
from prunecast.kernels.two_of_four.cuda.forms import build_sparse_kernel, sparse_defines
from prunecast.kernels.two_of_four.cuda.images import upload
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["SparseOperator", "compile_sparse"]


def compile_sparse(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    activation: str = "none",
    overlap: bool = True,
    changes: Mapping[str, int] | None = None,
) -> "SparseOperator":
    """Compile the kernel of `plan`, pack `weights` (M, K) and bring both to the current device.

    Parameters
    ----------
    plan : of `plan_sparse_tensor`, for wgmma
    weights : rounded to the plan's dtype; what the plan does not keep is not read
    bias : (M,), added to every column of C, in fp32
    activation : `none`, `relu` or `gelu`
    overlap : let a launch start while the kernel before it in the stream drains
    changes : preprocessor names that differ from the plan's form, for experiments and debugging

    Raises
    ------
    BadInput : the plan is for another kernel, a shape is wrong, or the device cannot run it
    KernelBuildError : the kernel cannot be built
    """
    check_device("the sparse wgmma kernel", lambda capability: capability == 90, "compute capability 9.0")
    check_weights(plan, weights, bias)
    defines = sparse_defines(plan, activation=activation, bias=bias is not None, changes=changes)
    cubin = build_sparse_kernel(plan, defines).cubin
    kernel = load_kernel(cubin, "sparse_sm90", plan.resources.shared_bytes)
    fill = load_fill(plan, activation, bias=bias is not None)
    return SparseOperator(plan, upload(plan, weights, bias), kernel, fill, overlap=overlap)


class SparseOperator(LayerOperator):
    """A plan of the sparse wgmma kernel on one device.

    B must be finite at every column that its tile keeps: where a row keeps fewer than two of four neighbours,
    the hardware multiplies one of the others by zero.
    """
