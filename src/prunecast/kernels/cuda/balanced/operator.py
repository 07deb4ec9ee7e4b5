"""`compile_balanced(plan, weights)`: a balanced plan as a callable on the GPU."""

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.cuda.arrays import Rooms, Wanted, check_device, check_weights, multiply
from prunecast.kernels.cuda.balanced.forms import build_balanced, form_of
from prunecast.kernels.cuda.balanced.images import balanced_images
from prunecast.kernels.cuda.launch import launch
from prunecast.kernels.plan import KernelPlan

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
    kernel = cp.RawModule(path=str(built.cubin)).get_function(form_of(plan).entry)
    kernel.max_dynamic_shared_size_bytes = plan.resources.shared_bytes
    images = balanced_images(plan, weights)
    arrays = {name: cp.asarray(array) for name, array in images.arrays.items()}
    arrays["bias"] = cp.zeros(1, cp.float32) if bias is None else cp.asarray(bias, cp.float32)
    return BalancedOperator(plan, arrays, images.args, kernel, overlap=overlap and capability >= 90)


class BalancedOperator:
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major.

    `clock` is an array of four uint64, written by every launch: cycles and nanoseconds at its start and end
    on one SM.
    """

    def __init__(
        self, plan: KernelPlan, arrays: dict[str, Any], args: npt.NDArray[Any], kernel: Any, *, overlap: bool
    ) -> None:
        self.plan, self.overlap = plan, overlap
        self.clock = cp.zeros(4, cp.uint64)
        self._arrays, self._kernel, self._args = arrays, kernel, args.copy()
        for name, array in arrays.items():
            self._args[name] = array.data.ptr
        self._args["clock"] = self.clock.data.ptr
        align = 1 if plan.n == 1 else 16
        self._wanted = Wanted(plan.m, plan.k, plan.n, plan.dtype, cp.cuda.Device().id, align)
        self._rooms = Rooms()

    def copy(self) -> "BalancedOperator":
        """The same with device arrays of its own."""
        arrays = {name: array.copy() for name, array in self._arrays.items()}
        return BalancedOperator(self.plan, arrays, self._args, self._kernel, overlap=self.overlap)

    def __call__(self, b: Any, out: Any = None) -> Any:
        """C (M, N) of B (K, N), enqueued on the current stream of the framework of `b`.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        return multiply(self._wanted, self._rooms, b, out, self._run)

    def _run(self, b: Any, c: Any, stream: int) -> None:
        args, resources = self._args, self.plan.resources
        args["b"], args["c"] = b.data.ptr, c.data.ptr
        if self.plan.n == 1:
            args["b_step"], args["c_step"] = b.strides[0] // b.itemsize, c.strides[0] // c.itemsize
        else:
            args["b_row_bytes"], args["c_row_bytes"] = b.strides[0], c.strides[0]
        launch(
            self._kernel.kernel.ptr,
            [args.ctypes.data],
            blocks=self.plan.blocks,
            threads=resources.threads,
            shared_bytes=resources.shared_bytes,
            stream=stream,
            overlap=self.overlap,
        )
