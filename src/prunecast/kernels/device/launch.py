"""The CUDA driver: kernels from cubins, small arrays, and launches with arguments passed by value.

Neither CuPy nor torch is needed here. Frameworks support only plain arguments and no programmatic dependent
launch, so `cuLaunchKernelEx` is called directly. A launch configuration is prepared once and reused, because
building it needed a fifth of the time of a call.

The memory of `DeviceArray` does not come from a framework's allocator: all memory that is allocated during
the warm-up of a CUDA graph belongs to the graph's memory pool, which would reclaim it.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput


class Place(NamedTuple):
    """Address and row stride of a row-major matrix on a device."""

    pointer: int
    row_bytes: int
    """Bytes from one row to the next."""


_PROGRAMMATIC_SERIALIZATION = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION. Kind: definition, CUDA driver API."""
_MOST_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES. Kind: definition, CUDA driver API."""
_SM_COUNT, _MAJOR, _MINOR = 16, 75, 76
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _COMPUTE_CAPABILITY_MAJOR and _MINOR. Kind: definition, CUDA
driver API."""
_NO_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT. Kind: definition, CUDA driver API."""


def argument_record(addresses: str, strides: str, numbers: str, *others: Any) -> np.dtype[np.void]:
    """Return the dtype of the argument struct of a kernel, padded as C does.

    Parameters
    ----------
    addresses, strides, numbers : names of the fields of 8 bytes (unsigned, signed) and of 4 bytes, separated
        by spaces
    others : NumPy descriptions of the fields after them
    """
    kinds = {"u8": addresses, "i8": strides, "i4": numbers}
    fields = [(name, kind) for kind, names in kinds.items() for name in names.split()]
    return np.dtype([*fields, *others], align=True)


class LaunchError(RuntimeError):
    """Error: the CUDA driver rejected a launch or another call."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: `value` is a union of 64 bytes. Kind: definition, CUDA driver API."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig: order and sizes of the fields are those of C. Kind: definition, CUDA driver API."""

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
    """Return the CUDA driver library, loaded with ctypes."""
    return ctypes.CDLL("libcuda.so.1")


def answer_of(function: Callable[..., int], *arguments: Any) -> int:
    """Call a driver function and return its status, a `CUresult`.

    A thread that has not used a GPU has no current context, even if its framework gives it memory from a
    pool. In this case the primary context of the current device is bound and the function is called again.
    """
    status = function(*arguments)
    if status == _NO_CONTEXT:
        _bind_context()
        status = function(*arguments)
    return status


def _bind_context() -> None:
    """Make the primary context of the current device, which frameworks use, the context of this thread."""
    context = ctypes.c_void_p()
    driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), _current_device())
    driver().cuCtxSetCurrent(context)


def _current_device() -> int:
    """Return the current device of the framework that is in use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    import cupy as cp

    return int(cp.cuda.runtime.getDevice())


def ask(name: str, *arguments: Any) -> None:
    """Call a driver function by name. Raise LaunchError, with the driver's error number, if it fails."""
    status = answer_of(getattr(driver(), name), *arguments)
    if status != 0:
        raise LaunchError(f"{name} answers {status}")


class DeviceArray:
    """A copy of an array on the current device, freed with this object."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        host = np.ascontiguousarray(values)
        found, size = ctypes.c_uint64(), max(host.nbytes, 16)
        ask("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(size))
        self.pointer = int(found.value)
        if host.nbytes:
            to, count = ctypes.c_uint64(self.pointer), ctypes.c_size_t(host.nbytes)
            ask("cuMemcpyHtoD_v2", to, ctypes.c_void_p(host.ctypes.data), count)

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            driver().cuMemFree_v2(ctypes.c_uint64(self.pointer))


@cache
def load_function(cubin: Path, entry: str, shared_bytes: int, device: int) -> int:
    """Load a kernel on the current device, and return the handle of its function.

    Parameters
    ----------
    cubin : file with the compiled code
    entry : name of the `__global__` function
    shared_bytes : limit of dynamic shared memory that is set for the function
    device : number of the current device; the result is cached for each device

    Raises
    ------
    LaunchError : the driver's error number
    """
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    ask("cuModuleLoadData", ctypes.byref(module), cubin.read_bytes())
    ask("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
    ask("cuFuncSetAttribute", function, _MOST_DYNAMIC_SHARED, ctypes.c_int(shared_bytes))
    assert function.value is not None
    return function.value


@cache
def capability_of(device: int) -> int:
    """Return the compute capability of a device, times ten."""
    return 10 * _attribute(_MAJOR, device) + _attribute(_MINOR, device)


def _attribute(number: int, device: int) -> int:
    found = ctypes.c_int()
    ask("cuDeviceGetAttribute", ctypes.byref(found), number, device)
    return found.value


def arch_of(device: int) -> str:
    """Return the architecture to compile for: `sm_90a` on Hopper (`sm_90` lacks wgmma), otherwise `sm_XY`."""
    capability = capability_of(device)
    return "sm_90a" if capability == 90 else f"sm_{capability}"


def check_resident(function: int, blocks: int, threads: int, shared_bytes: int, device: int) -> None:
    """Raise BadInput if the GPU cannot hold all blocks of a launch at once.

    Blocks that wait for one another would otherwise deadlock.

    Parameters
    ----------
    function : handle of the loaded kernel
    threads, shared_bytes : threads and dynamic shared memory of a block
    """
    per_sm = ctypes.c_int()
    sizes = ctypes.c_int(threads), ctypes.c_size_t(shared_bytes)
    ask(
        "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(per_sm), ctypes.c_void_p(function), *sizes
    )
    fit = per_sm.value * _attribute(_SM_COUNT, device)
    if fit < blocks:
        raise BadInput(f"{blocks} blocks wait for one another, this GPU holds {fit}")


class PreparedLaunch:
    """A loaded kernel with a launch configuration that is used for many launches.

    Parameters
    ----------
    function : handle of the loaded function (`CUfunction`)
    arguments : host address of the value of each kernel argument. The caller keeps the values alive; they are
        read before a launch returns, and may change between launches
    blocks, threads : size of the one-dimensional grid, and of each block
    shared_bytes : dynamic shared memory of a block
    overlap : True for a programmatic dependent launch: blocks may start before the preceding kernel in the
        stream has finished, and the kernel itself waits before it accesses the data of that kernel
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
        """Set the host address of the value of kernel argument number `argument`, for later launches."""
        self._addresses[argument] = address

    def __call__(self, stream: int) -> None:
        """Enqueue the launch on the stream of the current device that has the handle `stream`.

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
