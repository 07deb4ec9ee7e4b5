"""Eager calls of a product without torch's dispatcher: one launch transposes x, one multiplies.

In eager mode, torch's operators need more time than the kernels: two operators with gradients registered in
Python and a list of tensors need over 100 us of CPU time. Eager calls without tracing, gradients or dispatch
modes run here instead; graphs still contain the operators. A prepared call is cached for later calls with the
same type, dtype, device, shape, strides and modes. A guard of torch's compiler compares these in one step.
"""

from typing import Any

import torch

from prunecast.kernels.device.pass_launch import BoundLaunch
from prunecast.kernels.device.transpose.transpose import (
    ELEMENT_BYTES,
    Rows,
    transpose_launch,
)
from prunecast.torch.cuda.launches import GROUP, Prepared, prepared_launch
from prunecast.torch.cuda.stream import stream_of
from prunecast.torch.epilogue import PackedLayer, strides_seen_as

MOST_CALLS = 64
"""Number of prepared calls that a product caches, one for each layout of x; a new one replaces the oldest.
Kind: choice; each needs about 2 KiB.
"""
_ALIGN_BYTES = 16
_guards: Any = torch._C._dynamo.guards
_empty: Any = _guards._empty_strided_cuda
"""Function that allocates a tensor as compiled graphs of torch do, in half the time of `new_empty`."""
_reinterpret: Any = _guards._reinterpret_tensor
_modes: Any = torch._C._len_torch_dispatch_stack


class DirectCalls:
    """Prepared calls of one sparse product, one for each layout of x."""

    def __init__(self, layer: PackedLayer, features: int, rows: int) -> None:
        self.layer, self.features, self.rows = layer, features, rows
        self._calls: dict[tuple[Any, ...], _DirectCall] = {}
        self._last: _DirectCall | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor | None:
        """Return y of x, contiguous or with features first as the epilogue requires.

        Return None if the operators must be used, or if no call is prepared for these shapes and strides.
        """
        last = self._last
        y = None if last is None else last(x)
        if y is not None:
            return y
        found = self._calls.get(_key(x)) if self.may_call(x) else None
        if found is None:
            return None
        self._last = found
        return found.run(x, x.data_ptr())

    def first(self, x: torch.Tensor) -> torch.Tensor | None:
        """Prepare and run the call for an x with new shape or strides. `may_call(x)` must be True.

        Return None if no kernel reads this layout. Raise BadInput in the same cases as `launch_of`.
        """
        if not x.is_contiguous() and not columns_of_view(x):
            return None
        prepared = prepared_launch(self.layer, x.numel() // self.features, x)
        if not prepared.operator.writes_tokens:
            return None
        if len(self._calls) >= MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        found = self._calls[_key(x)] = self._last = _DirectCall(self, prepared, x)
        return found.run(x, x.data_ptr())

    def may_call(self, x: torch.Tensor) -> bool:
        """Return whether the call needs no operator (tracing, gradients, modes) and x is aligned for the
        kernels.
        """
        if type(x) is not torch.Tensor or _modes() or not x.is_cuda:
            return False
        grown = (x, self.layer.images[0], self.layer.bias)
        if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in grown):
            return False
        if torch._C._functorch.maybe_current_level() is not None or torch._C._get_tracing_state() is not None:
            return False
        if not torch._C._cuda_getDevice() == x.get_device() == self.layer.images[0].get_device():
            return False
        return bool(x.data_ptr() % _ALIGN_BYTES == 0)

    @property
    def parts(self) -> dict[int, tuple[Any, ...]]:
        """First feature of a part -> its shape, strides and offset in the result of the last call."""
        return {} if self._last is None else self._last.parts

    @staticmethod
    def part_of(y: torch.Tensor, first: int, size: int, parts: dict[int, tuple[Any, ...]]) -> torch.Tensor:
        """Return `size` features of y from `first` on as a view, in a third of the time of `Tensor.narrow`.

        `y` is a result of these calls, and `parts` the `parts` of its call, to which new parts are added.
        """
        place = parts.get(first)
        if place is None:
            place = parts[first] = ((*y.shape[:-1], size), y.stride(), first)
        part: torch.Tensor = _reinterpret(y, *place)
        return part


def _key(x: torch.Tensor) -> tuple[Any, ...]:
    """Return the key of a prepared call: shape, strides and dtype of x, and the modes of torch."""
    return x.shape, x.stride(), x.dtype, torch.is_inference_mode_enabled(), torch.is_autocast_enabled()


class _DirectCall:
    """Prepared call of a product, for every x with the shape, strides and dtype of the x given here."""

    def __init__(self, product: DirectCalls, prepared: Prepared, x: torch.Tensor) -> None:
        layer = product.layer
        self._device, self._tokens = x.get_device(), x.numel() // product.features
        self._launch, self._read = prepared.operator.at, (layer.images[prepared.image], layer.bias)
        columns_of_x, features = columns_of_view(x), product.features
        group = 1 if self._tokens == 1 and prepared.operator.takes_one else GROUP
        columns = columns_of_x or -(-self._tokens // group) * group
        self._call = prepared.call(
            columns,
            layer.images,
            layer.bias,
            rows=product.rows,
            tokens=self._tokens,
            features_first=layer.epilogue.features_first,
        )
        self._x_t, self._transpose = ((features, columns), (columns, 1), x.dtype), None
        if not columns_of_x and columns != 1:
            rows = Rows(0, features * ELEMENT_BYTES, self._tokens, features)
            x_t = Rows(0, columns * ELEMENT_BYTES, features, columns)
            self._transpose = BoundLaunch(transpose_launch(rows, x_t), self._device, ("x", "b"))
        self._y = self._layout_of_y(product, x, columns)
        self.parts: dict[int, tuple[Any, ...]] = {}
        self._trains = any(each is not None and each.requires_grad for each in self._read)
        self._looks_alike = _guards.TensorGuards(x, dynamic_dims_sizes=None, dynamic_dims_strides=None).check

    def _layout_of_y(self, product: DirectCalls, x: torch.Tensor, columns: int) -> tuple[Any, ...]:
        """Return shape, strides and dtype of y, including the padded columns if features come first."""
        shape, rows = x.shape[:-1], product.rows
        self._seen = None
        if not product.layer.epilogue.features_first:
            whole: tuple[int, ...] = (*shape, rows)
            return whole, torch.empty(whole, device="meta").stride(), x.dtype
        strides = strides_seen_as(shape, columns)
        if columns == self._tokens:
            return (*shape, rows), strides, x.dtype
        self._seen = ((*shape, rows), strides)
        return (rows, columns), (columns, 1), x.dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor | None:
        """Return y; None if x has another layout than the first one, or if the operators must be used."""
        at = x.data_ptr() if self._looks_alike(x) and not _modes() else 1
        if at % _ALIGN_BYTES or torch._C._cuda_getDevice() != self._device:
            return None
        if self._trains and torch.is_grad_enabled():
            return None
        return self.run(x, at)

    def run(self, x: torch.Tensor, at: int) -> torch.Tensor:
        """Enqueue the launches for an x at the address `at`, and return y."""
        stream = stream_of(self._device)
        y: torch.Tensor = _empty(*self._y)
        if self._transpose is not None:
            x_t: torch.Tensor = _empty(*self._x_t)
            self._transpose(stream, at, x_t.data_ptr())
            at = x_t.data_ptr()
        self._launch(self._call, at, y.data_ptr(), stream)
        return y if self._seen is None else y.as_strided(*self._seen)


def columns_of_view(x: torch.Tensor) -> int:
    """Return the number of columns of the tensor (features, columns) of which x (..., features) is a view.

    Return 0 if x is no such view.
    """
    shape, strides = x.shape, x.stride()
    columns, step = strides[-1], 1
    if columns == 1 or columns % GROUP:
        return 0
    for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if size != 1 and stride != step:
            return 0
        step *= size
    return columns if step <= columns else 0
