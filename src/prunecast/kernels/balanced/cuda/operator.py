"""`compile_balanced(plan, weights)`: a balanced plan as a callable on the GPU."""

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.balanced.cuda.forms import build_balanced, form_of
from prunecast.kernels.balanced.cuda.images import balanced_images
from prunecast.kernels.device.array_operator import ArrayOperator, bias_array
from prunecast.kernels.device.arrays import check_device, check_weights
from prunecast.kernels.device.layer_operator import load_kernel
from prunecast.kernels.device.places import Place
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["BalancedOperator", "compile_balanced"]


def compile_balanced(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    activation: str = "none",
    overlap: bool = True,
    changes: Mapping[str, int] | None = None,
) -> "BalancedOperator":
    """Compile the kernel of `plan`, pack `weights` (M, K) and bring both to the current device.

    Parameters
    ----------
    weights : rounded to the plan's dtype; what the plan does not keep is not read
    bias : (M,), added to every column of C, in fp32
    activation : `none`, `relu` or `gelu`
    overlap : let a launch start while the kernel before it in the stream drains (compute capability 9.0)
    changes : preprocessor names that differ from the plan's form, for experiments

    Raises
    ------
    BadInput : the plan is for another kernel, a shape is wrong, or the device cannot run it
    KernelBuildError : the kernel cannot be built
    """
    check_device("the balanced kernel", lambda capability: capability >= 75, "compute capability 7.5")
    if plan.kernel != "balanced" or plan.inner is None:
        raise BadInput(f"the balanced kernel runs balanced plans, got {plan.kernel}")
    check_weights(plan, weights, bias)
    capability = int(cp.cuda.Device().compute_capability)
    built = build_balanced(
        plan, f"sm_{capability}", activation=activation, bias=bias is not None, changes=changes
    )
    kernel = load_kernel(built.cubin, form_of(plan).entry, plan.resources.shared_bytes)
    images = balanced_images(plan, weights)
    arrays = {name: cp.asarray(array) for name, array in images.arrays.items()}
    arrays["bias"] = bias_array(bias)
    return BalancedOperator(
        plan,
        arrays,
        images.args,
        kernel,
        blocks=plan.item_count,
        overlap=overlap and capability >= 90,
        align_bytes=1 if plan.n == 1 else 16,
    )


class BalancedOperator(ArrayOperator):
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major."""

    def _place(self, b: Place, c: Place) -> None:
        args, item_bytes = self._args, self._wanted.item_bytes
        args["b"], args["c"] = b.pointer, c.pointer
        if self.plan.n == 1:
            args["b_step"], args["c_step"] = b.row_bytes // item_bytes, c.row_bytes // item_bytes
        else:
            args["b_row_bytes"], args["c_row_bytes"] = b.row_bytes, c.row_bytes
