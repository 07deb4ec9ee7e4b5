"""Kernel launches through the CUDA driver: arguments passed by value, and programmatic dependent launch.

CuPy supports only plain arguments, so `cuLaunchKernelEx` is called directly; CuPy does everything else. The
launch configuration is prepared once, because building it needed a fifth of the time of a call.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

WORD_BYTES = 8
"""Bytes of an address or a stride. Kind: definition, 64-bit CUDA."""


class Place(NamedTuple):
    """Address and row stride of a row-major matrix on a device."""

    pointer: int
    row_bytes: int
    """Bytes from one row to the next."""


class Places:
    """Positions of the addresses and row strides of B and C in an argument record.

    They are written as words of a buffer: NumPy needs six times as long to set a field of a record.
    """

    def __init__(self, args: npt.NDArray[np.void]) -> None:
        self._words = args.view(np.uint64).data
        fields: Any = args.dtype.fields
        at = (fields[name][1] // WORD_BYTES for name in ("b", "c", "b_row_bytes", "c_row_bytes"))
        self._b, self._c, self._b_row, self._c_row = at

    def write(self, b: Place, c: Place) -> None:
        """Write the addresses and row strides of B and C for the next launch."""
        words = self._words
        words[self._b], words[self._b_row] = b
        words[self._c], words[self._c_row] = c


_PROGRAMMATIC_SERIALIZATION = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION. Kind: definition, CUDA driver API."""
_NO_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT. Kind: definition, CUDA driver API."""


class LaunchError(RuntimeError):
    """The driver rejected a launch."""


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


@cache
def driver() -> Any:
    """Return the library with the driver's functions."""
    return ctypes.CDLL("libcuda.so.1")


def answer_of(function: Callable[..., int], *arguments: Any) -> int:
    """Return the status of a driver function.

    A thread that has not used a GPU has no current context, even if its framework gives it memory from a
    pool. In this case the primary context of the current device is bound and the function is called again.
    """
    status = function(*arguments)
    if status == _NO_CONTEXT:
        _bind_context()
        status = function(*arguments)
    return status


def _bind_context() -> None:
    import cupy as cp

    context = ctypes.c_void_p()
    driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), cp.cuda.runtime.getDevice())
    driver().cuCtxSetCurrent(context)


class PreparedLaunch:
    """A loaded kernel with a launch configuration that is used for many launches.

    Parameters
    ----------
    function : handle of the driver, as CuPy's `.ptr`
    arguments : addresses of the arguments' values in host memory, which the caller keeps alive; the values
        are read before a launch returns, and may change between launches
    overlap : blocks may start before the previous kernel of the stream has finished; the kernel itself waits
        before it accesses data of that kernel (programmatic dependent launch)
    """

    def __init__(
        self,
        function: int,
        arguments: Sequence[int],
        *,
        blocks: int,
        threads: int,
        shared_bytes: int,
        overlap: bool,
    ) -> None:
        # Programmatic dependent launch; without `overlap` the attribute count is 0 and the driver ignores it
        attribute = _Attribute(id=_PROGRAMMATIC_SERIALIZATION)
        attribute.value[0] = 1
        self._config = _Config((blocks, 1, 1), (threads, 1, 1), shared_bytes)
        self._config.attributes = ctypes.pointer(attribute)
        self._config.attribute_count = int(overlap)
        self._addresses = (ctypes.c_void_p * len(arguments))(*arguments)
        self._given = (ctypes.byref(self._config), ctypes.c_void_p(function), self._addresses, None)

    def point(self, argument: int, address: int) -> None:
        """Set the address of an argument, given by its number, for later launches."""
        self._addresses[argument] = address

    def __call__(self, stream: int) -> None:
        """Enqueue the launch on a stream of the current device, given by its handle.

        Raises
        ------
        LaunchError : the driver's error number
        """
        self._config.stream = stream
        status = driver().cuLaunchKernelEx(*self._given)
        if status == _NO_CONTEXT:
            _bind_context()
            status = driver().cuLaunchKernelEx(*self._given)
        if status != 0:
            blocks, threads = self._config.grid[0], self._config.block[0]
            raise LaunchError(f"cuLaunchKernelEx answers {status} for {blocks} blocks of {threads} threads")


def launch(
    function: int,
    arguments: list[int],
    *,
    blocks: int,
    threads: int,
    shared_bytes: int,
    stream: int,
    overlap: bool,
) -> None:
    """Launch a loaded kernel once; see `PreparedLaunch`."""
    once = PreparedLaunch(
        function, arguments, blocks=blocks, threads=threads, shared_bytes=shared_bytes, overlap=overlap
    )
    once(stream)
