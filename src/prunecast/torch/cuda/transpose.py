"""Transposes of X (tokens, features) into rows of tokens, at memory speed."""

from functools import cache
from typing import Any

import numpy as np
import torch

from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.kernels.device.transpose.transpose import (
    SHARED_BYTES,
    Rows,
    build_transpose,
    may_transpose,
    prepared_launch,
    transpose_args,
)
from prunecast.torch.cuda.device import arch_of, load_function, stream_of

ELEMENT_BYTES = 2


def turned(x: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return x_t (features, tokens) of x (tokens or fewer, features), padded with zeros."""
    own, features = x.shape
    x_t = x.new_empty((features, tokens))
    if x.element_size() != ELEMENT_BYTES or x.stride(1) != 1:
        return _copied(x, x_t)
    given = Rows(x.data_ptr(), x.stride(0) * ELEMENT_BYTES, own, features)
    made = Rows(x_t.data_ptr(), tokens * ELEMENT_BYTES, features, tokens)
    if not may_transpose(given, made):
        return _copied(x, x_t)
    index = x.device.index
    with torch.cuda.device(index):
        args, blocks = transpose_args(given, made)
        transpose_launch(index, args, blocks)(stream_of(index))
    return x_t


def _copied(x: torch.Tensor, x_t: torch.Tensor) -> torch.Tensor:
    x_t[:, : x.shape[0]] = x.t()
    x_t[:, x.shape[0] :] = 0
    return x_t


def transpose_launch(device: int, args: np.ndarray[Any, Any], blocks: int) -> PreparedLaunch:
    """Return a launch with the arguments of `transpose_args`, which the caller must keep alive."""
    overlap = torch.cuda.get_device_capability(device)[0] >= 9
    return prepared_launch(_function(device), args, blocks, overlap=overlap)


@cache
def _function(device: int) -> int:
    cubin = build_transpose(arch_of(torch.device("cuda", device))).cubin
    return load_function(cubin, "transpose_rows", SHARED_BYTES, device)
