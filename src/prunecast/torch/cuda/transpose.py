"""Transposes of X (tokens, features) into rows of tokens, at memory speed."""

import torch

from prunecast.kernels.device.transpose.transpose import (
    ELEMENT_BYTES,
    Rows,
    may_transpose,
    transpose_args,
    transpose_launch,
)


def turned(x: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return x_t (features, tokens) of x (tokens or fewer, features), padded with zeros."""
    x_t = x.new_empty((x.shape[1], tokens))
    turn_into(x, x_t)
    return x_t


def turn_into(x: torch.Tensor, x_t: torch.Tensor) -> None:
    """Write x (tokens, features) to x_t (features or fewer, tokens or more), padded with zeros."""
    (own, _), (features, tokens) = x.shape, x_t.shape
    given = Rows(x.data_ptr(), x.stride(0) * ELEMENT_BYTES, own, features)
    made = Rows(x_t.data_ptr(), x_t.stride(0) * ELEMENT_BYTES, features, tokens)
    side_by_side = x.element_size() == ELEMENT_BYTES and x.stride(1) == x_t.stride(1) == 1
    if side_by_side and may_transpose(given, made):
        index = x.device.index
        with torch.cuda.device(index):
            args, blocks = transpose_args(given, made)
            transpose_launch(args, blocks, index)(int(torch._C._cuda_getCurrentRawStream(index)))
        return
    x_t[:, :own] = x[:, :features].t()
    x_t[:, own:] = 0
