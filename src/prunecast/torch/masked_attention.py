"""`prunecast::attention`: non-causal attention with a padding mask of the keys.

    attention(query, key, value, mask, scale, columns) -> y

`query` is (sequences, heads, queries, width). `key` and `value` are (sequences, key heads, keys, width),
where the number of key heads divides `heads`. `mask` is bool (sequences, keys), True for keys that are read,
or None. `y` is contiguous, (sequences, queries, heads, width); with `columns` it has the layout that a sparse
product reads, (heads * width, sequences * queries). It is zero for a sequence without a True key. On a CPU,
and for sizes that the kernel does not support, torch computes it.

Transformers models call the operator after `prepare_attention`. In compiled graphs `layout_pass.py` sets
`columns`.
"""

import math
from typing import Any, NamedTuple

import torch

from prunecast.kernels.device.attention.attention import (
    LEAST_CAPABILITY,
    LONG_BLOCK,
    MOST_KEYS,
    SHORT_BLOCK,
    SHORT_KEYS,
    WIDTHS,
    AttentionForm,
    AttentionSizes,
    HeadRows,
    attention_launch,
    may_attend,
)
from prunecast.kernels.device.pass_launch import BoundLaunch
from prunecast.torch.cuda.stream import stream_of
from prunecast.torch.operators import register


def runs_on(device: torch.device, dtype: torch.dtype | None) -> bool:
    """Return whether the kernel runs on a device with this dtype."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    major, minor = torch.cuda.get_device_capability(device)
    return bool(10 * major + minor >= LEAST_CAPABILITY)


def supports(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Return whether the kernel supports the device, dtype and sizes of these tensors, and none needs
    gradients.
    """
    if torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value)):
        return False
    width = query.shape[-1]
    alike = key.shape == value.shape and width == key.shape[-1] and query.dtype == key.dtype == value.dtype
    fits: bool = (
        alike and width in WIDTHS and key.shape[2] <= MOST_KEYS and query.shape[1] % key.shape[1] == 0
    )
    return bool(fits and runs_on(query.device, query.dtype))


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float | None,
) -> torch.Tensor:
    """Return attention y (sequences, queries, heads, width); if `scale` is None, it is 1 / sqrt(width).

    Eager calls on a GPU bypass torch's dispatcher, which needs more time than the kernel.
    """
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.is_cuda and not torch.compiler.is_compiling():
        return _attend_on_cuda(AttentionCall(query, key, value, mask, factor))
    found: torch.Tensor = _attention(query, key, value, mask, factor, False)
    return found


class AttentionCall(NamedTuple):
    """Arguments of `prunecast::attention`, in the order of the operator."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    scale: float
    columns: bool = False

    def new_y(self) -> torch.Tensor:
        """Allocate y without initialising it."""
        sequences, heads, queries, width = self.query.shape
        shape = (sequences, queries, heads, width)
        return self.query.new_empty((heads * width, sequences * queries) if self.columns else shape)

    def layout(self) -> tuple[Any, ...]:
        """Return all properties of the call that its launch depends on, such as shapes, strides and dtype."""
        query, key, value = self[:3]
        aligned = not (query.data_ptr() | key.data_ptr() | value.data_ptr()) % 16
        layout = (query.shape, query.stride(), key.shape, key.stride(), value.stride(), query.dtype)
        return (*layout, self.mask is None, self.scale, self.columns, aligned, query.get_device())

    def launch(self) -> BoundLaunch | None:
        """Prepare the launch on the current device; return None if the kernel does not support the call."""
        query, key, _ = operands = self[:3]
        if not supports(*(each.detach() for each in operands)) or self.scale <= 0:
            return None
        if any(each.stride(-1) != 1 for each in operands):
            return None
        item = query.element_size()
        rows = [HeadRows(each.data_ptr(), *(step * item for step in each.stride()[:3])) for each in operands]
        sizes = AttentionSizes(query.shape[0], query.shape[1], key.shape[1], query.shape[2], key.shape[2])
        block = SHORT_BLOCK if sizes.keys <= SHORT_KEYS else LONG_BLOCK
        is_bf16 = query.dtype is torch.bfloat16
        form = AttentionForm(query.shape[-1], is_bf16, self.mask is not None, self.columns, block)
        if not may_attend(form, sizes, *rows):
            return None
        addresses = ("queries_of", "keys_of", "values_of", "mask", "out")
        return BoundLaunch(attention_launch(form, sizes, self.scale, *rows), query.get_device(), addresses)


def _attend_by_torch(call: AttentionCall) -> torch.Tensor:
    query, key, value, mask, scale, columns = call
    keys = None if mask is None else mask[:, None, None, :]
    y = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=keys, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )
    if mask is not None:
        y = y.where(mask.any(-1)[:, None, None, None], 0.0)
    y = y.permute(1, 3, 0, 2).flatten(2).flatten(0, 1) if columns else y.transpose(1, 2)
    return y.contiguous()


MOST_CALLS = 256
"""Largest number of prepared launches that are kept, one for each layout of the tensors. Kind: choice."""
_CALLS: dict[tuple[Any, ...], BoundLaunch | None] = {}
"""Layout of the tensors of a call -> its launch; None if the kernel does not support it."""


def _attend_on_cuda(call: AttentionCall) -> torch.Tensor:
    if call.mask is not None and not call.mask.is_contiguous():
        call = call._replace(mask=call.mask.contiguous())
    device, kind = call.query.get_device(), call.layout()
    if kind not in _CALLS:
        if len(_CALLS) >= MOST_CALLS:
            _CALLS.clear()
        with torch.cuda.device(device):
            _CALLS[kind] = call.launch()
    launch = _CALLS.get(kind)  # None too if another thread cleared the launches
    if launch is None or torch._C._cuda_getDevice() != device:
        return _attend_by_torch(call)
    y = call.new_y()
    pointers = (0 if each is None else each.data_ptr() for each in (*call[:4], y))
    launch(stream_of(device), *pointers)
    return y


_attention = register(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale, bool columns) -> Tensor",
    _attend_by_torch,
    _attend_on_cuda,
    record=AttentionCall,
    fixed_strides=True,
)
