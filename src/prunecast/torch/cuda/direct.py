"""The eager call of a layer: x turned and multiplied by two launches, with nothing of torch's dispatcher.

torch's operators cost an eager call more than its kernels do: two of them with gradients registered in Python
and a list of tensors take over 100 us of a CPU. Where nobody traces, records or differentiates, a call
comes here instead; the operators remain what graphs hold. A record is kept for each number of tokens.
"""

from typing import Any

import torch

from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.kernels.device.transpose.transpose import SHARED_BYTES, THREADS, Rows, transpose_args
from prunecast.torch.cuda.device import stream_of
from prunecast.torch.cuda.launches import Prepared, forgotten_with_launches, prepared_launch
from prunecast.torch.cuda.transpose import transpose_function

__all__ = ["DirectCall", "direct_call", "may_call"]

_ELEMENT_BYTES, _ALIGN_BYTES, _GROUP = 2, 16, 8
_CALLS: dict[tuple[int, int, bool, int], "DirectCall"] = forgotten_with_launches({})


class DirectCall:
    """y of x for one layer and number of tokens on one device, the current one.

    Owns its launches' arguments: threads must not share a layer on a device.
    """

    def __init__(self, prepared: Prepared, tokens: int, features: int, rows: int, device: int) -> None:
        self.image = prepared.image
        """Which of the layer's images it reads."""
        self._launch, self._device = prepared.launch, device
        self._tokens, self._features, self._rows = tokens, features, rows
        group = 1 if tokens == 1 and prepared.launch.takes_one else _GROUP
        self._columns = -(-tokens // group) * group
        if self._columns > 1:
            x = Rows(0, features * _ELEMENT_BYTES, tokens, features)
            x_t = Rows(0, self._columns * _ELEMENT_BYTES, features, self._columns)
            self._args, blocks = transpose_args(x, x_t)
            self._words: Any = self._args.view("u8").data
            self._turn = PreparedLaunch(
                transpose_function(device),
                [self._args.ctypes.data],
                blocks=blocks,
                threads=THREADS,
                shared_bytes=SHARED_BYTES,
                overlap=False,
            )

    def __call__(self, x: torch.Tensor, image: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Y (..., rows), contiguous, of x (..., features), contiguous."""
        y = x.new_empty((*x.shape[:-1], self._rows))
        stream, columns, at = stream_of(self._device), self._columns, x.data_ptr()
        if columns > 1:
            x_t = x.new_empty((self._features, columns))
            words = self._words
            words[0], words[1] = at, x_t.data_ptr()
            at = words[1]
            self._turn(stream)
        biased = 0 if bias is None else bias.data_ptr()
        self._launch.at(at, columns, image.data_ptr(), biased, y.data_ptr(), self._tokens, stream)
        return y


def may_call(x: torch.Tensor, image: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether nobody but the GPU has to see the call, and x lies as its kernels read it."""
    if not x.is_cuda or type(x) is not torch.Tensor or torch._C._len_torch_dispatch_stack():
        return False
    if torch.is_grad_enabled() and (
        x.requires_grad or image.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return False
    if torch._C._functorch.maybe_current_level() is not None or torch._C._get_tracing_state() is not None:
        return False
    if torch._C._cuda_getDevice() != x.get_device() or image.get_device() != x.get_device():
        return False
    return bool(x.is_contiguous() and x.data_ptr() % _ALIGN_BYTES == 0)


def direct_call(
    plan: int,
    x: torch.Tensor,
    features: int,
    rows: int,
    images: list[torch.Tensor],
    tiles: torch.Tensor,
    bias: torch.Tensor | None,
    gpu: str,
) -> DirectCall:
    """The record for such a call, made if it is the first; raises as `launch_of`."""
    tokens, device = x.numel() // features, x.get_device()
    key = (plan, tokens, bias is not None, device)
    found = _CALLS.get(key)
    if found is None:
        prepared = prepared_launch(plan, tokens, "none", x, images, tiles, bias, gpu)
        found = _CALLS[key] = DirectCall(prepared, tokens, features, rows, device)
    return found
