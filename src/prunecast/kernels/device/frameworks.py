"""Adapters for arrays of CuPy and torch; torch tensors are used without a copy.

Work is enqueued on the current stream of the caller's framework, and new arrays come from its allocator.
Therefore graph capture works with both CuPy and torch after a first call.

CuPy's own copy of strided rows moves one element per thread, even if elements are small: 0.8 elements per
cycle and SM of an H200, 0.4 TB/s for fp16 (own measurement, 2026-11-22). Here rows are copied in the widest
words that the alignment of source and destination allows, e.g. four fp16 elements as one word of 8 bytes.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np

from prunecast.errors import BadInput
from prunecast.plan.misaligned import word_bytes


class Given(NamedTuple):
    """Properties of a caller's array as plain Python values, which can be checked without a GPU."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides in bytes."""
    device: int
    """Device number; -1 for host memory."""
    pointer: int
    room_bytes: int
    """Bytes of the allocation from the pointer on; may exceed the size of the array."""


class Framework(Protocol):
    """Operations on the arrays of one framework."""

    name: str

    def describe(self, name: str, array: Any) -> Given:
        """Return the properties of an array; `name` is its name in messages.

        Raises BadInput for arrays that cannot be used.
        """

    def view(self, array: Any) -> Any:
        """Return a CuPy array that shares the memory of an array; bf16 becomes uint16."""

    def empty(self, like: Any, rows: int, columns: int) -> Any:
        """Return a new, uninitialized array (rows, columns) with the dtype and on the device of `like`."""

    def copy(self, to: Any, of: Any) -> None:
        """Copy the rows of `of` into those of `to`, on the current stream."""
        _copy_rows(self.view(to), self.view(of))

    def stream(self, array: Any) -> AbstractContextManager[Any]:
        """Return a context in which CuPy uses the current stream of the array's framework and device."""


def framework_of(name: str, array: Any) -> Framework:
    """Return the adapter for the framework of an array; `name` is the name of the array in messages.

    Raises BadInput if the object is neither a CuPy array nor a torch tensor.
    """
    kind = type(array)
    if kind.__module__.partition(".")[0] == "cupy":
        return _Cupy()
    if "torch" in sys.modules and isinstance(array, sys.modules["torch"].Tensor):
        return _Torch()
    raise BadInput(f"{name} must be a CuPy array or a torch tensor, got {kind.__module__}.{kind.__name__}")


class _Cupy(Framework):
    name = "CuPy"

    def describe(self, name: str, array: Any) -> Given:
        import cupy as cp

        current, own = cp.cuda.Device().id, array.device.id
        if current != own:
            raise BadInput(f"{name} lies on device {own}, but the current device is {current}")
        memory = array.data.mem
        room_bytes = memory.ptr + memory.size - array.data.ptr
        return Given(array.dtype.name, array.shape, array.strides, own, array.data.ptr, room_bytes)

    def view(self, array: Any) -> Any:
        return array.view("uint16") if array.dtype.name == "bfloat16" else array

    def empty(self, like: Any, rows: int, columns: int) -> Any:
        import cupy as cp

        return cp.empty((rows, columns), like.dtype)

    def stream(self, array: Any) -> AbstractContextManager[Any]:
        return nullcontext()


class _SameStream(NamedTuple):
    """A tensor exported on the stream on which it is used, so that no synchronization is necessary."""

    tensor: Any

    def __dlpack__(self, **_: Any) -> Any:
        # -1 requests no synchronization (DLPack)
        return self.tensor.__dlpack__(stream=-1)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class _StreamOf(NamedTuple):
    """A stream given by its handle, with the CUDA stream protocol."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class _Torch(Framework):
    """Adapter for torch. The module has already been imported by the code that created the tensor."""

    name = "torch"

    def describe(self, name: str, array: Any) -> Given:
        torch = sys.modules["torch"]
        if array.layout != torch.strided:
            raise BadInput(f"{name} must be a dense tensor, got {array.layout}")
        if array.requires_grad and torch.is_grad_enabled():
            raise BadInput(f"{name} requires a gradient, which the kernel has none of: use torch.no_grad()")
        item = array.element_size()
        device = array.device.index if array.device.type == "cuda" else -1
        strides = tuple(item * step for step in array.stride())
        dtype = str(array.dtype).removeprefix("torch.")
        room_bytes = array.untyped_storage().nbytes() - item * array.storage_offset()
        return Given(dtype, tuple(array.shape), strides, device, array.data_ptr(), room_bytes)

    def view(self, array: Any) -> Any:
        import cupy as cp

        torch = sys.modules["torch"]
        # Export bfloat16 as int16: not every DLPack consumer supports bfloat16
        bits = array.dtype in (torch.bfloat16, torch.uint16)
        plain = array.detach().view(torch.int16) if bits else array.detach()
        shared = cp.from_dlpack(_SameStream(plain))
        return shared.view("uint16") if bits else shared

    def empty(self, like: Any, rows: int, columns: int) -> Any:
        return sys.modules["torch"].empty((rows, columns), dtype=like.dtype, device=like.device)

    @contextmanager
    def stream(self, array: Any) -> Iterator[None]:
        import cupy as cp

        handle = sys.modules["torch"].cuda.current_stream(array.device).cuda_stream
        # CuPy 14 has `Stream.from_external`, and deprecates `ExternalStream` of earlier versions
        made = getattr(cp.cuda.Stream, "from_external", None)
        stream = cp.cuda.ExternalStream(handle) if made is None else made(_StreamOf(handle))
        with cp.cuda.Device(array.device.index), stream:
            yield


def _copy_rows(to: Any, of: Any) -> None:
    """Assign `to[...] = of` for CuPy arrays (rows, tokens) of one dtype whose tokens are contiguous."""
    row_bytes = to.shape[1] * to.itemsize
    starts = (to.data.ptr, of.data.ptr, to.strides[0], of.strides[0])
    width = word_bytes(to.itemsize, row_bytes, *starts)
    _in_words(to, row_bytes, width)[...] = _in_words(of, row_bytes, width)


def _in_words(array: Any, row_bytes: int, width: int) -> Any:
    import cupy as cp

    word = np.dtype(f"u{width}")
    shape, strides = (array.shape[0], row_bytes // width), (array.strides[0], width)
    return cp.ndarray(shape, word, array.data, strides)
