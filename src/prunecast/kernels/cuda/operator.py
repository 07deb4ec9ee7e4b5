"""`compile(plan, weights)`: a plan as a callable on the GPU, `c = op(b)`.

Everything that can be refused is refused before the launch. The operator works on CuPy's current stream and
may be captured in a CUDA graph after its first call. It owns a workspace: one operator must not run on two
streams at once.
"""

from collections.abc import Mapping
from typing import Any

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.cuda.forms import build_fill, build_tile_kernel, tile_defines
from prunecast.kernels.cuda.images import DeviceImages, upload
from prunecast.kernels.cuda.launch import launch
from prunecast.kernels.plan import KernelPlan

__all__ = ["TileOperator", "compile"]

_DTYPES = {"fp16": ("float16",), "bf16": ("bfloat16", "uint16")}
"""Names of array dtypes that are taken; uint16 carries the bits of bf16."""
_FILL_THREADS = 256


def compile(
    plan: KernelPlan,
    weights: npt.NDArray[np.floating[Any]],
    *,
    bias: npt.NDArray[np.floating[Any]] | None = None,
    activation: str = "none",
    overlap: bool = True,
    changes: Mapping[str, int] | None = None,
) -> "TileOperator":
    """Compile the kernel of `plan`, pack `weights` (M, K) and bring both to the current device.

    Parameters
    ----------
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
    _check_device()
    if bias is not None and bias.shape != (plan.m,):
        raise BadInput(f"bias must have shape ({plan.m},), got {bias.shape}")
    defines = tile_defines(plan, activation=activation, bias=bias is not None, changes=changes)
    kernel = cp.RawModule(path=str(build_tile_kernel(plan, defines).cubin)).get_function("tile_sm90")
    kernel.max_dynamic_shared_size_bytes = plan.resources.shared_bytes
    fill_cubin = build_fill(plan.dtype, activation, bias=bias is not None).cubin
    fill = cp.RawModule(path=str(fill_cubin)).get_function("fill_rows")
    return TileOperator(plan, upload(plan, weights, bias), kernel, fill, overlap=overlap)


class TileOperator:
    """One pruned layer on one device: `c = op(b)` with B (K, N) and C (M, N), both row-major.

    `clock` is an array of four uint64, written by every launch: cycles and nanoseconds at its start and end
    on one SM.
    """

    def __init__(
        self, plan: KernelPlan, images: DeviceImages, kernel: Any, fill: Any, *, overlap: bool
    ) -> None:
        self.plan = plan
        self.overlap = overlap
        self.clock = cp.zeros(4, cp.uint64)
        self._images = images
        self._kernel, self._fill = kernel, fill
        self._device = cp.cuda.Device().id
        self._args = images.arguments(plan)
        self._args["clock"] = self.clock.data.ptr

    def copy(self) -> "TileOperator":
        """The same with images of its own, to be used on another stream."""
        return TileOperator(self.plan, self._images.copy(), self._kernel, self._fill, overlap=self.overlap)

    def __call__(self, b: Any, out: Any = None) -> Any:
        """C (M, N) of B (K, N), enqueued on the current stream.

        N that is no multiple of 8, and rows that are not 16-byte aligned, are copied to padded rows first.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        plan = self.plan
        self._check("B", b, (plan.k, plan.n))
        if out is not None:
            self._check("C", out, (plan.m, plan.n))
        padded_b = b if _is_aligned(b) else _padded(b, plan.n)
        aligned_out = out is not None and _is_aligned(out)
        c = out if aligned_out else _empty_rows(plan.m, plan.n, b.dtype)
        self._run(padded_b, c)
        if out is None or aligned_out:
            return c
        out[...] = c
        return out

    def _run(self, b: Any, c: Any) -> None:
        args = self._args
        args["b"], args["c"] = b.data.ptr, c.data.ptr
        args["b_row_bytes"], args["c_row_bytes"] = b.strides[0], c.strides[0]
        stream = cp.cuda.get_current_stream().ptr
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
            tokens = np.int32(_round_up(self.plan.n))
            self._fill(
                (rows.size,), (_FILL_THREADS,), (rows, self._images.bias, c, np.int64(c.strides[0]), tokens)
            )

    def _check(self, name: str, array: Any, shape: tuple[int, int]) -> None:
        if not isinstance(array, cp.ndarray):
            raise BadInput(f"{name} must be a CuPy array, got {type(array).__name__}")
        names = _DTYPES[self.plan.dtype]
        if array.dtype.name not in names:
            raise BadInput(f"{name} must be {' or '.join(names)}, got {array.dtype.name}")
        if array.shape != shape:
            raise BadInput(f"{name} must have shape {shape}, got {array.shape}")
        if array.strides[1] != array.itemsize or array.strides[0] < shape[1] * array.itemsize:
            raise BadInput(f"{name} must be row-major, got strides {array.strides}")
        if array.device.id != self._device or cp.cuda.Device().id != self._device:
            raise BadInput(
                f"{name} and the current device must be device {self._device}, got {array.device.id}"
            )


def _check_device() -> None:
    if not cp.cuda.is_available():
        raise BadInput("the tile kernel needs an NVIDIA GPU, none is available")
    capability = cp.cuda.Device().compute_capability
    if capability != "90":
        raise BadInput(f"the wgmma tile kernel needs compute capability 9.0, the device has {capability}")


def _round_up(n: int) -> int:
    return -(-n // 8) * 8


def _is_aligned(array: Any) -> bool:
    """Rows start at 16 bytes and hold whole groups of 8 tokens."""
    return bool(array.data.ptr % 16 == 0 and array.strides[0] % 16 == 0 and array.shape[1] % 8 == 0)


def _empty_rows(rows: int, n: int, dtype: Any) -> Any:
    return cp.empty((rows, _round_up(n)), dtype)[:, :n]


def _padded(array: Any, n: int) -> Any:
    padded = cp.zeros((array.shape[0], _round_up(n)), array.dtype)
    padded[:, :n] = array
    return padded[:, :n]
