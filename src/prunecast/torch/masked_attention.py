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
from threading import Lock
from typing import Any

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
    attention_args,
    attention_launch,
    may_attend,
)

_LIBRARY = torch.library.Library("prunecast", "FRAGMENT")
_LIBRARY.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale, bool columns) -> Tensor",
    tags=(torch.Tag.needs_fixed_stride_order,),
)


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
    """Return attention y (sequences, queries, heads, width); `scale` None stands for 1 / sqrt(width).

    Eager calls on a GPU bypass torch's dispatcher, which needs more time than the kernel.
    """
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.is_cuda and not torch.compiler.is_compiling():
        return _attend_on_cuda(query, key, value, mask, factor, columns=False)
    found: torch.Tensor = torch.ops.prunecast.attention.default(query, key, value, mask, factor, False)
    return found


def _attend_by_torch(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    columns: bool,
) -> torch.Tensor:
    keys = None if mask is None else mask[:, None, None, :]
    y = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=keys, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )
    if mask is not None:
        y = y.where(mask.any(-1)[:, None, None, None], 0.0)
    return (
        y.permute(1, 3, 0, 2).flatten(2).flatten(0, 1).contiguous()
        if columns
        else y.transpose(1, 2).contiguous()
    )


def _fake_attention(query: torch.Tensor, *given: Any) -> torch.Tensor:
    sequences, heads, queries, width = query.shape
    shape = (heads * width, sequences * queries) if given[-1] else (sequences, queries, heads, width)
    return query.new_empty(shape)


class _Call:
    """Prepared launch for tensors of given shapes and strides."""

    def __init__(
        self, form: AttentionForm, sizes: AttentionSizes, scale: float, rows: list[HeadRows], device: int
    ):
        self._args = attention_args(form, sizes, scale, *rows)
        self._words: Any = [self._args[name]["from"] for name in ("queries_of", "keys_of", "values_of")]
        self._words += [self._args["mask"], self._args["out"]]
        self._launch = attention_launch(self._args, form, sizes, device)
        self._lock = Lock()  # guards self._args

    def __call__(self, pointers: tuple[int, ...], stream: int) -> None:
        with self._lock:
            for word, pointer in zip(self._words, pointers, strict=True):
                word[0] = pointer
            self._launch(stream)


MOST_CALLS = 256
"""Largest number of prepared launches that are kept, one for each layout of the tensors. Kind: choice."""
_CALLS: dict[tuple[Any, ...], _Call | None] = {}
"""Layout of the tensors of a call -> its launch; None if the kernel does not support it."""


def _attend_on_cuda(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    columns: bool,
) -> torch.Tensor:
    if mask is not None and not mask.is_contiguous():
        mask = mask.contiguous()
    device = query.get_device()
    pointers = (query.data_ptr(), key.data_ptr(), value.data_ptr(), 0 if mask is None else mask.data_ptr())
    aligned = not (pointers[0] | pointers[1] | pointers[2]) % 16
    layout = (query.shape, query.stride(), key.shape, key.stride(), value.stride(), query.dtype)
    kind = (*layout, mask is None, scale, columns, aligned, device)
    if kind not in _CALLS:
        if len(_CALLS) >= MOST_CALLS:
            _CALLS.clear()
        with torch.cuda.device(device):
            _CALLS[kind] = _call_of(query, key, value, mask, scale, columns)
    call = _CALLS.get(kind)  # None too if another thread cleared the launches
    if call is None or torch._C._cuda_getDevice() != device:
        return _attend_by_torch(query, key, value, mask, scale, columns)
    y = _fake_attention(query, columns)
    call((*pointers, y.data_ptr()), int(torch._C._cuda_getCurrentRawStream(device)))
    return y


def _call_of(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    columns: bool,
) -> _Call | None:
    if not supports(query.detach(), key.detach(), value.detach()) or scale <= 0:
        return None
    if any(each.stride(-1) != 1 for each in (query, key, value)):
        return None
    item = query.element_size()
    rows = [
        HeadRows(each.data_ptr(), *(step * item for step in each.stride()[:3]))
        for each in (query, key, value)
    ]
    sizes = AttentionSizes(query.shape[0], query.shape[1], key.shape[1], query.shape[2], key.shape[2])
    block = SHORT_BLOCK if sizes.keys <= SHORT_KEYS else LONG_BLOCK
    form = AttentionForm(query.shape[-1], query.dtype is torch.bfloat16, mask is not None, columns, block)
    if not may_attend(form, sizes, *rows):
        return None
    return _Call(form, sizes, scale, rows, query.get_device())


_LIBRARY.impl("attention", _attend_by_torch, "CPU")
_LIBRARY.impl("attention", _attend_on_cuda, "CUDA")
torch.library.register_fake("prunecast::attention", _fake_attention, lib=_LIBRARY)
