"""The eager call of a layer: x turned and multiplied by two launches, with nothing of torch's dispatcher.

torch's operators cost an eager call more than its kernels do: two of them with gradients registered in Python
and a list of tensors take over 100 us of a CPU. Where nobody traces, records or differentiates, a call
comes here instead; the operators remain what graphs hold. A record is kept for each number of tokens.
"""

from collections.abc import Hashable
from typing import Any

import torch

from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.kernels.device.transpose.transpose import Rows, transpose_args
from prunecast.torch.cuda.device import stream_of
from prunecast.torch.cuda.launches import (
    LayerTensors,
    Prepared,
    forgotten_with_launches,
    prepared_launch,
)
from prunecast.torch.cuda.transpose import transpose_launch
from prunecast.torch.epilogue import Epilogue, seen_as

MOST_CALLS = 4096
"""Records that are kept of all layers; the oldest makes room. Kind: choice, of about 2 KiB each."""
_ELEMENT_BYTES, _ALIGN_BYTES, _GROUP = 2, 16, 8
_empty_on_cuda: Any = torch._C._dynamo.guards._empty_strided_cuda
"""Room on the current device, as graphs of torch's compiler ask for it: half the time of `new_empty`."""
_CALLS: dict[tuple[Any, ...], "DirectCall"] = forgotten_with_launches({})


class DirectCall:
    """y of x for one layer, epilogue and number of tokens on one device, the current one.

    Owns its launches' arguments: threads must not share a layer on a device.
    """

    def __init__(
        self, prepared: Prepared, x: torch.Tensor, features: int, rows: int, epilogue: Epilogue
    ) -> None:
        self.image = prepared.image
        """Which of the layer's images it reads."""
        self._launch, self._device = prepared.launch, x.get_device()
        self._tokens, self._features, self._rows = x.numel() // features, features, rows
        self._turned = epilogue.features_first
        group = 1 if self._tokens == 1 and prepared.launch.takes_one else _GROUP
        lies_turned = columns_of_view(x)
        self._columns = lies_turned or -(-self._tokens // group) * group
        self._turn = None if lies_turned or self._columns == 1 else self._prepare_turn()
        self._x_t_shape, self._x_t_strides = (features, self._columns), (self._columns, 1)
        shape = (rows, self._columns) if self._turned else (*x.shape[:-1], rows)
        self._y_shape, self._y_strides = shape, torch.empty(shape, device="meta").stride()

    def _prepare_turn(self) -> PreparedLaunch:
        x = Rows(0, self._features * _ELEMENT_BYTES, self._tokens, self._features)
        x_t = Rows(0, self._columns * _ELEMENT_BYTES, self._features, self._columns)
        self._args, blocks = transpose_args(x, x_t)
        self._words: Any = self._args.view("u8").data
        return transpose_launch(self._device, self._args, blocks)

    def __call__(self, x: torch.Tensor, image: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Y (..., rows) of x (..., features), contiguous, or with features first as the epilogue says."""
        columns, at, stream = self._columns, x.data_ptr(), stream_of(self._device)
        y = _empty_on_cuda(self._y_shape, self._y_strides, x.dtype)
        if self._turn is not None:
            x_t, words = _empty_on_cuda(self._x_t_shape, self._x_t_strides, x.dtype), self._words
            words[0], words[1] = at, x_t.data_ptr()
            at = words[1]
            self._turn(stream)
        biased = 0 if bias is None else bias.data_ptr()
        self._launch.at(at, columns, image.data_ptr(), biased, y.data_ptr(), self._tokens, stream)
        return seen_as(y, x.shape[:-1]) if self._turned else y


def columns_of_view(x: torch.Tensor) -> int:
    """Columns of the (features, columns) that x (..., features) is a view of; 0 where it lies otherwise."""
    shape, strides = x.shape, x.stride()
    columns, step = strides[-1], 1
    if columns == 1 or columns % _GROUP:
        return 0
    for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if size != 1 and stride != step:
            return 0
        step *= size
    return columns if step <= columns else 0


def may_call(x: torch.Tensor, image: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether nobody but the GPU has to see the call, and x begins where kernels can read it."""
    if not x.is_cuda or type(x) is not torch.Tensor or torch._C._len_torch_dispatch_stack():
        return False
    if torch.is_grad_enabled() and (
        x.requires_grad or image.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return False
    if torch._C._functorch.maybe_current_level() is not None or torch._C._get_tracing_state() is not None:
        return False
    device = x.get_device()
    if torch._C._cuda_getDevice() != device or image.get_device() != device:
        return False
    return bool(x.data_ptr() % _ALIGN_BYTES == 0)


def known_call(layer: Hashable, x: torch.Tensor) -> DirectCall | None:
    """The record for a layer and an x that lies as this one does, None if there was none yet."""
    return _CALLS.get((layer, x.shape, x.stride(), x.dtype, x.get_device()))


def direct_call(
    layer: Hashable,
    plan: int,
    x: torch.Tensor,
    features: int,
    rows: int,
    epilogue: Epilogue,
    tensors: LayerTensors,
) -> DirectCall | None:
    """The record that `known_call` finds from now on; None for an x that lies as no kernel reads it.

    Raises as `launch_of`.
    """
    if not x.is_contiguous() and not columns_of_view(x):
        return None
    prepared = prepared_launch(plan, x.numel() // features, epilogue, x, tensors)
    if len(_CALLS) >= MOST_CALLS:
        del _CALLS[next(iter(_CALLS))]
    key = (layer, x.shape, x.stride(), x.dtype, x.get_device())
    found = _CALLS[key] = DirectCall(prepared, x, features, rows, epilogue)
    return found
