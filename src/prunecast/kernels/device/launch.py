"""Launching through the driver: arguments by value, and launches that may overlap the one before.

CuPy launches with plain arguments only, so the driver is called directly; everything else is CuPy's. What a
launch needs besides its arguments' bytes and its stream is put together once: a fifth of the time of a call
went there.
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
    """A row-major matrix on a device."""

    pointer: int
    row_bytes: int
    """Bytes from a row to the next."""


class Places:
    """The words of an argument, one record, that say where B and C lie.

    Written as words of a buffer: NumPy takes six times as long for a field of a record.
    """

    def __init__(self, args: npt.NDArray[np.void]) -> None:
        self._words = args.view(np.uint64).data
        fields: Any = args.dtype.fields
        at = (fields[name][1] // WORD_BYTES for name in ("b", "c", "b_row_bytes", "c_row_bytes"))
        self._b, self._c, self._b_row, self._c_row = at

    def write(self, b: Place, c: Place) -> None:
        """Let the next launch read B and write C there."""
        words = self._words
        words[self._b], words[self._b_row] = b
        words[self._c], words[self._c_row] = c


_PROGRAMMATIC_SERIALIZATION = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION. Kind: definition, CUDA driver API."""
_NO_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT. Kind: definition, CUDA driver API."""


class LaunchError(RuntimeError):
    """The driver refused a launch."""


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
    """The driver's functions."""
    return ctypes.CDLL("libcuda.so.1")


def answer_of(function: Callable[..., int], *arguments: Any) -> int:
    """The status that a function of the driver answers.

    A thread that has used no GPU yet has no context, where frameworks give it memory that is there already:
    it gets that of its device then.
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
    """A loaded kernel, launched again and again.

    Parameters
    ----------
    function : handle of the driver, as CuPy's `.ptr`
    arguments : addresses of the arguments' values in host memory, which the caller keeps; what lies there is
        read before a launch returns, and may change from one to the next
    overlap : blocks may start before the previous kernel of the stream has finished; the kernel itself waits
        before it touches what that one writes (programmatic dependent launch)
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
        attribute = _Attribute(id=_PROGRAMMATIC_SERIALIZATION)
        attribute.value[0] = 1
        self._config = _Config((blocks, 1, 1), (threads, 1, 1), shared_bytes)
        self._config.attributes = ctypes.pointer(attribute)
        self._config.attribute_count = int(overlap)
        self._addresses = (ctypes.c_void_p * len(arguments))(*arguments)
        self._given = (ctypes.byref(self._config), ctypes.c_void_p(function), self._addresses, None)

    def point(self, argument: int, address: int) -> None:
        """Let an argument, by its number, lie elsewhere from now on."""
        self._addresses[argument] = address

    def __call__(self, stream: int) -> None:
        """Enqueue it on a stream of the current device, by handle.

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
