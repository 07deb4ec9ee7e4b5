"""What every operator of tiles shares: `c = op(b)`, its arguments, its launch, and the rows in no tile."""

from pathlib import Path
from typing import Any, Protocol, Self

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.cuda.arrays import Rooms, Wanted, multiply
from prunecast.kernels.cuda.forms import build_fill
from prunecast.kernels.cuda.launch import launch
from prunecast.kernels.plan import KernelPlan

__all__ = ["Images", "LayerOperator", "load_fill", "load_kernel"]

_FILL_THREADS = 256


class Images(Protocol):
    """What an operator keeps on the device for one layer."""

    @property
    def bias(self) -> Any:
        """(M,) fp32, or anything where there is none."""

    @property
    def uncovered(self) -> Any:
        """Rows of C that lie in no tile."""

    def copy(self) -> Self:
        """The same with device arrays of its own."""

    def arguments(self, plan: KernelPlan) -> npt.NDArray[np.void]:
        """The kernel's one argument as a record, complete but for `b`, `c`, their row bytes and the clock."""


class LayerOperator:
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major.

    Everything that can be refused is refused before the launch. The operator works on the current stream of
    the caller's framework and may be captured in a CUDA graph after its first call. It owns its images, a
    workspace among them: one operator must not run on two streams at once.

    `clock` is an array of four uint64, written by every launch: cycles and nanoseconds at its start and end
    on one SM.
    """

    def __init__(self, plan: KernelPlan, images: Images, kernel: Any, fill: Any, *, overlap: bool) -> None:
        self.plan = plan
        self.overlap = overlap
        self.clock = cp.zeros(4, cp.uint64)
        self._images = images
        self._kernel, self._fill = kernel, fill
        self._wanted = Wanted(plan.m, plan.k, plan.n, plan.dtype, cp.cuda.Device().id)
        self._rooms = Rooms()
        self._args = images.arguments(plan)
        self._args["clock"] = self.clock.data.ptr

    def copy(self) -> Self:
        """The same with images of its own, to be used on another stream."""
        return type(self)(self.plan, self._images.copy(), self._kernel, self._fill, overlap=self.overlap)

    def __call__(self, b: Any, out: Any = None) -> Any:
        """C (M, N) of B (K, N), enqueued on the current stream of the framework of `b`.

        Both are CuPy arrays or both torch tensors on the operator's device. N that is no multiple of 8, and
        rows that are not 16-byte aligned, are copied to padded rows first; not B whose rows are padded
        already, as those of C are that an operator gives back.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        return multiply(self._wanted, self._rooms, b, out, self._run)

    def _run(self, b: Any, c: Any, stream: int) -> None:
        args = self._args
        args["b"], args["c"] = b.data.ptr, c.data.ptr
        args["b_row_bytes"], args["c_row_bytes"] = b.strides[0], c.strides[0]
        resources = self.plan.resources
        if self.plan.item_count:
            launch(
                self._kernel.kernel.ptr,
                self._arguments(c),
                blocks=self.plan.blocks,
                threads=resources.threads,
                shared_bytes=resources.shared_bytes,
                stream=stream,
                overlap=self.overlap,
            )
        self._fill_uncovered(c)

    def _arguments(self, c: Any) -> list[int]:
        """Addresses of what the kernel is launched with."""
        return [self._args.ctypes.data]

    def _fill_uncovered(self, c: Any) -> None:
        rows = self._images.uncovered
        if rows.size:
            tokens = np.int32(self._wanted.padded_n)
            self._fill(
                (rows.size,), (_FILL_THREADS,), (rows, self._images.bias, c, np.int64(c.strides[0]), tokens)
            )


def load_kernel(cubin: Path, entry: str, shared_bytes: int) -> Any:
    """A compiled kernel on the current device, allowed that much dynamic shared memory."""
    kernel = cp.RawModule(path=str(cubin)).get_function(entry)
    kernel.max_dynamic_shared_size_bytes = shared_bytes
    return kernel


def load_fill(plan: KernelPlan, activation: str, *, bias: bool) -> Any:
    """The kernel that writes rows of C which lie in no tile, on the current device."""
    return cp.RawModule(path=str(build_fill(plan.dtype, activation, bias=bias).cubin)).get_function(
        "fill_rows"
    )
