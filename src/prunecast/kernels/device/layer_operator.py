"""What every operator of tiles shares: `c = op(b)`, its arguments, its launch, and the rows in no tile."""

from pathlib import Path
from threading import Lock
from typing import Any, Protocol, Self

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.arrays import Rooms, Wanted, multiply
from prunecast.kernels.device.fill import FillRows, build_fill
from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.kernels.device.places import Place, Places
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["Images", "LayerOperator", "load_fill", "load_kernel"]


class Images(Protocol):
    """What an operator keeps on the device for one layer."""

    @property
    def bias(self) -> Any:
        """(M,) fp32, or anything where there is none."""

    @property
    def uncovered(self) -> Any:
        """Rows of C that lie in no tile."""

    def copy(self) -> Self:
        """A copy of the operator with device arrays of its own."""

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
        self._rooms, self._lock = Rooms(), Lock()
        self._args = images.arguments(plan)
        self._args["clock"] = self.clock.data.ptr
        self._places = Places(self._args)
        self._launch = self._prepared()
        self._fill_rows = self._prepared_fill()

    def copy(self) -> Self:
        """A copy of the operator with images of its own, to be used on another stream."""
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
        return multiply(self._wanted, self._rooms, b, out, self.enqueue)

    def enqueue(self, b: Place, c: Place, stream: int) -> None:
        """The launches alone; see `prunecast.kernels.compile.Operator`."""
        with self._lock:
            if self.plan.item_count:
                self._place(b, c)
                self._launch(stream)
            if self._fill_rows is not None:
                self._fill_rows(c, stream)

    def use_kernel(self, kernel: Any) -> None:
        """Launch another build of the kernel from now on."""
        self._kernel = kernel
        self._launch = self._prepared()

    def _place(self, b: Place, c: Place) -> None:
        """B and C into the arguments."""
        self._places.write(b, c)

    def _arguments(self) -> list[int]:
        """Addresses of what the kernel is launched with."""
        return [self._args.ctypes.data]

    def _prepared(self) -> PreparedLaunch:
        return PreparedLaunch(
            self._kernel.kernel.ptr,
            self._arguments(),
            blocks=self.plan.blocks,
            threads=self.plan.resources.threads,
            shared_bytes=self.plan.resources.shared_bytes,
            overlap=self.overlap,
        )

    def _prepared_fill(self) -> FillRows | None:
        rows, bias = self._images.uncovered, self._images.bias
        if not rows.size:
            return None
        kernel, tokens = self._fill.kernel.ptr, self._wanted.padded_n
        return FillRows(kernel, rows.data.ptr, bias.data.ptr, blocks=rows.size, tokens=tokens)


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
