"""`UnpackedWeight`: the weights of a sparse layer as a tensor that is unpacked only when its values are read.

Models read `weight.dtype`, `weight.device` and `weight.shape` in `forward`. Unpacking would be slow there,
and impossible while a CUDA graph is captured.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only


class UnpackedWeight(torch.Tensor):  # type: ignore[misc]
    """A tensor without memory. Every operator on it calls `read()` and uses the returned values."""

    _read: Callable[[], torch.Tensor]
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, read: Callable[[], torch.Tensor], shape: Sequence[int], like: torch.Tensor) -> Any:
        """Return a tensor of that shape with dtype and device of `like`."""
        own = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=like.dtype, device=like.device)
        own._read = read
        return own

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator with the unpacked values of its arguments."""
        args, kwargs = tree_map_only(cls, lambda own: own._read(), (tuple(args), dict(kwargs or {})))
        return func(*args, **kwargs)

    def __repr__(self, **_: Any) -> str:
        """Return the `repr` of the unpacked values."""
        return repr(self._read())

    def numpy(self, **options: Any) -> Any:
        """Return the unpacked values as a NumPy array."""
        return self._read().numpy(**options)

    def tolist(self) -> Any:
        """Return the unpacked values as nested lists."""
        return self._read().tolist()

    def data_ptr(self) -> int:
        """Return 0: the values have no memory until they are read."""
        return 0
