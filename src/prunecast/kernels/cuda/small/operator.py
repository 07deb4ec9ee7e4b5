"""`compile_small(plan, weights)`: a small-n plan as a callable on the GPU."""

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.cuda.arrays import Rooms, Wanted, check_device, check_weights, multiply
from prunecast.kernels.cuda.launch import launch
from prunecast.kernels.cuda.layer_operator import load_kernel
from prunecast.kernels.cuda.pack import to_bits
from prunecast.kernels.cuda.small.forms import build_small, small_defines
from prunecast.kernels.cuda.small.pack import pack_small
from prunecast.kernels.cuda.small.records import SmallRecords, place_b, small_records
from prunecast.kernels.plan import KernelPlan
from prunecast.kernels.small_n_forms import row_unit

__all__ = ["SmallOperator", "compile_small"]


def compile_small(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    activation: str = "none",
    overlap: bool = True,
    changes: Mapping[str, int] | None = None,
) -> "SmallOperator":
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
    check_device("the small-n kernel", lambda capability: capability >= 80, "compute capability 8.0")
    check_weights(plan, weights, bias)
    capability = int(cp.cuda.Device().compute_capability)
    defines = small_defines(plan, activation=activation, bias=bias is not None, changes=changes)
    arch = "sm_90a" if capability == 90 else f"sm_{capability}"
    kernel = load_kernel(build_small(plan, arch, defines).cubin, "small_n", plan.resources.shared_bytes)
    packed = pack_small(plan.tiles, to_bits(weights, plan.dtype), plan.shape.block_m)
    records = small_records(plan, packed)
    arrays = {
        "weights": cp.asarray(packed.weights),
        "columns": cp.asarray(packed.columns),
        "ranges": cp.asarray(records.ranges),
        "places": cp.asarray(records.places),
        "rows": cp.asarray(records.rows),
        "bias": cp.zeros(1, cp.float32) if bias is None else cp.asarray(bias, cp.float32),
    }
    return SmallOperator(plan, records, arrays, kernel, overlap=overlap and capability >= 90)


class SmallOperator:
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major, N any number.

    `clock` is an array of four uint64, written by every launch: cycles and nanoseconds at its start and end
    on one SM.
    """

    def __init__(
        self, plan: KernelPlan, records: SmallRecords, arrays: dict[str, Any], kernel: Any, *, overlap: bool
    ) -> None:
        self.plan, self.overlap = plan, overlap
        self.clock = cp.zeros(4, cp.uint64)
        self._records, self._arrays, self._kernel = records, arrays, kernel
        self._args = records.arguments(plan)
        for name, array in arrays.items():
            self._args[name] = array.data.ptr
        self._args["clock"] = self.clock.data.ptr
        self._wanted = Wanted(plan.m, plan.k, plan.n, plan.dtype, cp.cuda.Device().id, row_unit(plan.n))
        self._rooms = Rooms()

    def copy(self) -> "SmallOperator":
        """The same with device arrays of its own."""
        arrays = {name: array.copy() for name, array in self._arrays.items()}
        return SmallOperator(self.plan, self._records, arrays, self._kernel, overlap=self.overlap)

    def __call__(self, b: Any, out: Any = None) -> Any:
        """C (M, N) of B (K, N), enqueued on the current stream of the framework of `b`.

        Contiguous arrays of any N are read and written in place.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        return multiply(self._wanted, self._rooms, b, out, self._run)

    def _run(self, b: Any, c: Any, stream: int) -> None:
        args, resources = self._args, self.plan.resources
        place_b(args, self.plan, b.data.ptr, b.strides[0])
        args["c"], args["c_row_bytes"] = c.data.ptr, c.strides[0]
        launch(
            self._kernel.kernel.ptr,
            [args.ctypes.data],
            blocks=self._records.blocks,
            threads=resources.threads,
            shared_bytes=resources.shared_bytes,
            stream=stream,
            overlap=self.overlap,
        )
