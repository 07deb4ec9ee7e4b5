"""As much of CuPy as operators are made with, in the host's memory."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np

OWN = "prunecast.kernels."


class HostArray:
    """An array whose address is said as CuPy says it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.size = np.ascontiguousarray(array), array.size
        self.data = SimpleNamespace(ptr=self.array.ctypes.data)

    def copy(self) -> "HostArray":
        return HostArray(self.array.copy())


def kernel_of(handle: int) -> SimpleNamespace:
    """A loaded kernel."""
    return SimpleNamespace(kernel=SimpleNamespace(ptr=handle))


def fake_cupy() -> ModuleType:
    """The module."""
    found = ModuleType("cupy")
    found.uint32, found.uint64, found.float32 = np.uint32, np.uint64, np.float32
    found.zeros = lambda shape, dtype: HostArray(np.zeros(shape, dtype))
    found.empty = found.zeros
    found.asarray = lambda array, dtype=None: HostArray(np.asarray(array, dtype))
    stream = SimpleNamespace(synchronize=lambda: None)
    found.cuda = SimpleNamespace(Device=lambda: SimpleNamespace(id=0), get_current_stream=lambda: stream)
    return found


@contextmanager
def instead_of_cupy() -> Iterator[None]:
    """Modules that are loaded inside take it for CuPy, and are forgotten afterwards."""
    before = {name: module for name, module in sys.modules.items() if _knows_cupy(name)}
    for name in before:
        del sys.modules[name]
    sys.modules["cupy"] = fake_cupy()
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _knows_cupy(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _knows_cupy(name: str) -> bool:
    return name == "cupy" or (name.startswith(OWN) and name.endswith(".operator"))
