"""Transpose x (tokens, features) to x_t (features, tokens), at memory speed."""

import torch

from prunecast.kernels.device.transpose.transpose import (
    ALIGN_BYTES,
    ELEMENT_BYTES,
    Norm,
    Rows,
    may_transpose,
    transpose_launch,
)
from prunecast.torch.cuda.stream import enqueue


def turned(x: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return the transpose x_t (features, tokens) of x (at most `tokens`, features), padded with zeros."""
    x_t = x.new_empty((x.shape[1], tokens))
    turn_into(x, x_t)
    return x_t


def turn_into(x: torch.Tensor, x_t: torch.Tensor) -> None:
    """Write the transpose of x (tokens, features) to x_t (features or fewer, tokens or more), padded with
    zeros.
    """
    (own, _), (features, tokens) = x.shape, x_t.shape
    given = Rows(x.data_ptr(), x.stride(0) * ELEMENT_BYTES, own, features)
    made = Rows(x_t.data_ptr(), x_t.stride(0) * ELEMENT_BYTES, features, tokens)
    side_by_side = x.element_size() == ELEMENT_BYTES and x.stride(1) == x_t.stride(1) == 1
    if side_by_side and may_transpose(given, made):
        enqueue(transpose_launch(given, made), x.device.index)
        return
    x_t[:, :own] = x[:, :features].t()
    x_t[:, own:] = 0


def normed(
    x: torch.Tensor,
    shift: torch.Tensor | None,
    scale: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    *,
    rounds: bool,
    tokens: int,
) -> torch.Tensor | None:
    """Return the transpose x_t (features, tokens) of ((x - shift) * scale) * weight + bias, padded with
    zeros.

    Return None if the kernel does not accept the tensors.
    """
    (own, features), size = x.shape, x.element_size()
    x_t = x.new_empty((features, tokens))
    given = Rows(x.data_ptr(), x.stride(0) * size, own, features)
    made = Rows(x_t.data_ptr(), tokens * size, features, tokens)
    rows = [each for each in (weight, bias) if each is not None]
    is_plain = all(
        each.dtype == x.dtype and each.is_contiguous() and each.data_ptr() % ALIGN_BYTES == 0 for each in rows
    )
    values = [each for each in (shift, scale) if each is not None]
    is_plain = is_plain and all(each.dtype == torch.float32 and each.is_contiguous() for each in values)
    if not (is_plain and size == ELEMENT_BYTES and x.stride(1) == 1 and may_transpose(given, made)):
        return None
    shifts, scales, weights, biases = (
        0 if each is None else each.data_ptr() for each in (shift, scale, weight, bias)
    )
    norm = Norm(shifts, scales, weights, biases, rounds, x.dtype is torch.bfloat16)
    enqueue(transpose_launch(given, made, norm), x.device.index)
    return x_t
