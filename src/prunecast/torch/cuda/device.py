"""Kernels and small arrays on torch's current device, through the driver.

The device memory of a plan does not come from torch's allocator: the memory pool of a CUDA graph owns all
that is allocated during its warm-up, and would reclaim it.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prunecast.kernels.device.launch import LaunchError, driver

_MOST_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CUDA driver API."""


class DeviceArray:
    """A copy of an array on the current device, freed with this object."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        host = np.ascontiguousarray(values)
        self.nbytes = max(host.nbytes, 16)
        found = ctypes.c_uint64()
        _ask("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(self.nbytes))
        self.pointer = int(found.value)
        if host.nbytes:
            to, size = ctypes.c_uint64(self.pointer), ctypes.c_size_t(host.nbytes)
            _ask("cuMemcpyHtoD_v2", to, ctypes.c_void_p(host.ctypes.data), size)

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            driver().cuMemFree_v2(ctypes.c_uint64(self.pointer))


@cache
def load_function(cubin: Path, entry: str, shared_bytes: int, device: int) -> int:
    """Return the handle of a compiled kernel on the current device, with this limit of
    dynamic shared memory.
    """
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _ask("cuModuleLoadData", ctypes.byref(module), cubin.read_bytes())
    _ask("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
    _ask("cuFuncSetAttribute", function, _MOST_DYNAMIC_SHARED, ctypes.c_int(shared_bytes))
    assert function.value is not None
    return function.value


def arch_of(device: torch.device) -> str:
    """Return the architecture to compile for; `sm_90a` has instructions that `sm_90` lacks."""
    major, minor = torch.cuda.get_device_capability(device)
    return "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"


def stream_of(device: int) -> int:
    """Return the handle of torch's current stream."""
    return int(torch._C._cuda_getCurrentRawStream(device))


def is_capturing() -> bool:
    """Return whether the current stream is being captured, during which nothing may be allocated."""
    return bool(torch.cuda.is_current_stream_capturing())


def _ask(name: str, *arguments: Any) -> None:
    status = getattr(driver(), name)(*arguments)
    if status != 0:
        raise LaunchError(f"{name} answers {status}")
