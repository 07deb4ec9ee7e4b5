"""What operators share whose kernels take all they read as plain arrays: mma, small-n and balanced."""

from collections.abc import Mapping
from threading import Lock
from typing import Any, Self

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.arrays import Rooms, Wanted, multiply
from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.kernels.device.places import Place
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["ArrayOperator", "arch_of_device", "bias_array"]


class ArrayOperator:
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major.

    `clock` is an array of four uint64, written by every launch: cycles and nanoseconds at its start and end
    on one SM.

    Parameters
    ----------
    arrays : name among the arguments -> what lies on the device
    args : the kernel's one argument as a record, complete but for addresses and row bytes
    blocks : of a launch
    overlap : let a launch start while the kernel before it in the stream drains
    align_bytes : of rows of B and C
    """

    def __init__(
        self,
        plan: KernelPlan,
        arrays: Mapping[str, Any],
        args: npt.NDArray[np.void],
        kernel: Any,
        *,
        blocks: int,
        overlap: bool,
        align_bytes: int = 16,
    ) -> None:
        self.plan, self.arrays, self.blocks, self.overlap = plan, arrays, blocks, overlap
        self.clock = cp.zeros(4, cp.uint64)
        self._kernel, self._args = kernel, args.copy()
        for name, array in {**arrays, "clock": self.clock}.items():
            self._args[name] = array.data.ptr
        self._wanted = Wanted(plan.m, plan.k, plan.n, plan.dtype, cp.cuda.Device().id, align_bytes)
        self._rooms, self._lock = Rooms(), Lock()
        self._launch = self._prepared()

    def copy(self) -> Self:
        """A copy of the operator with device arrays of its own, to be used on another stream."""
        return self.with_kernel(self._kernel, self.plan)

    def with_kernel(self, kernel: Any, plan: KernelPlan) -> Self:
        """The layer run by another build of the kernel, for a plan of the same work, with arrays of its
        own.
        """
        return type(self)(
            plan,
            {name: array.copy() for name, array in self.arrays.items()},
            self._args,
            kernel,
            blocks=self.blocks,
            overlap=self.overlap,
            align_bytes=self._wanted.align_bytes,
        )

    def __call__(self, b: Any, out: Any = None) -> Any:
        """C (M, N) of B (K, N), enqueued on the current stream of the framework of `b`.

        Rows that are not aligned as the kernel needs them are copied to padded rows first; not B whose rows
        are padded already, as those of C are that an operator gives back.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        return multiply(self._wanted, self._rooms, b, out, self.enqueue)

    def enqueue(self, b: Place, c: Place, stream: int) -> None:
        """The launch alone; see `prunecast.kernels.compile.Operator`."""
        with self._lock:
            self._place(b, c)
            self._launch(stream)

    def use_kernel(self, kernel: Any) -> None:
        """Launch another build of the kernel from now on."""
        self._kernel = kernel
        self._launch = self._prepared()

    def _place(self, b: Place, c: Place) -> None:
        """B and C into the arguments."""
        self._args["b"], self._args["b_row_bytes"] = b
        self._args["c"], self._args["c_row_bytes"] = c

    def _prepared(self) -> PreparedLaunch:
        return PreparedLaunch(
            self._kernel.kernel.ptr,
            [self._args.ctypes.data],
            blocks=self.blocks,
            threads=self.plan.resources.threads,
            shared_bytes=self.plan.resources.shared_bytes,
            overlap=self.overlap,
        )


def arch_of_device() -> str:
    """What is compiled for the current device; `sm_90a` has instructions that `sm_90` lacks."""
    capability = cp.cuda.Device().compute_capability
    return "sm_90a" if capability == "90" else f"sm_{capability}"


def bias_array(bias: npt.NDArray[np.floating[Any]] | None) -> Any:
    """(M,) fp32 on the current device, or one zero where there is none."""
    return cp.zeros(1, cp.float32) if bias is None else cp.asarray(bias, cp.float32)
