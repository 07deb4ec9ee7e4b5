"""`compile_sparse(plan, weights)`: a plan of 2:4 weights as a callable on the GPU, `c = op(b)`.

Everything that can be refused is refused before the launch. The operator works on the current stream of the
caller's framework and may be captured in a CUDA graph after its first call.
"""

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.cuda.arrays import Wanted, check_device, check_weights, multiply
from prunecast.kernels.cuda.forms import build_fill
from prunecast.kernels.cuda.launch import launch
from prunecast.kernels.cuda.sparse.forms import build_sparse_kernel, sparse_defines
from prunecast.kernels.cuda.sparse.images import SparseImages, upload
from prunecast.kernels.plan import KernelPlan

__all__ = ["SparseOperator", "compile_sparse"]

_FILL_THREADS = 256


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
    kernel = cp.RawModule(path=str(build_sparse_kernel(plan, defines).cubin)).get_function("sparse_sm90")
    kernel.max_dynamic_shared_size_bytes = plan.resources.shared_bytes
    fill_cubin = build_fill(plan.dtype, activation, bias=bias is not None).cubin
    fill = cp.RawModule(path=str(fill_cubin)).get_function("fill_rows")
    return SparseOperator(plan, upload(plan, weights, bias), kernel, fill, overlap=overlap)


class SparseOperator:
    """One layer of 2:4 weights on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major.

    B must be finite at every column that its tile keeps: where a row keeps fewer than two of four neighbours,
    the hardware multiplies one of the others by zero.

    `clock` is an array of four uint64, written by every launch: cycles and nanoseconds at its start and end
    on one SM.
    """

    def __init__(
        self, plan: KernelPlan, images: SparseImages, kernel: Any, fill: Any, *, overlap: bool
    ) -> None:
        self.plan = plan
        self.overlap = overlap
        self.clock = cp.zeros(4, cp.uint64)
        self._images = images
        self._kernel, self._fill = kernel, fill
        self._wanted = Wanted(plan.m, plan.k, plan.n, plan.dtype, cp.cuda.Device().id)
        self._args = images.arguments(plan)
        self._args["clock"] = self.clock.data.ptr

    def copy(self) -> "SparseOperator":
        """The same with images of its own, to be used on another stream."""
        return SparseOperator(self.plan, self._images.copy(), self._kernel, self._fill, overlap=self.overlap)

    def __call__(self, b: Any, out: Any = None) -> Any:
        """C (M, N) of B (K, N), enqueued on the current stream of the framework of `b`.

        Both are CuPy arrays or both torch tensors on the operator's device. N that is no multiple of 8, and
        rows that are not 16-byte aligned, are copied to padded rows first.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        return multiply(self._wanted, b, out, self._run)

    def _run(self, b: Any, c: Any, stream: int) -> None:
        args = self._args
        args["b"], args["c"] = b.data.ptr, c.data.ptr
        args["b_row_bytes"], args["c_row_bytes"] = b.strides[0], c.strides[0]
        resources = self.plan.resources
        if self.plan.item_count:
            launch(
                self._kernel.kernel.ptr,
                [args.ctypes.data],
                blocks=self.plan.blocks,
                threads=resources.threads,
                shared_bytes=resources.shared_bytes,
                stream=stream,
                overlap=self.overlap,
            )
        rows = self._images.uncovered
        if rows.size:
            tokens = np.int32(self._wanted.padded_n)
            self._fill(
                (rows.size,), (_FILL_THREADS,), (rows, self._images.bias, c, np.int64(c.strides[0]), tokens)
            )
