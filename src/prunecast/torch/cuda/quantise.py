"""Launch the kernel that quantises x, or its RMS norm, to e4m3."""

import numpy as np
import torch

from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.quantise.quantise import (
    NORM_ARGS,
    QUANTISE_ARGS,
    may_quantise,
    quantise_launch,
)
from prunecast.torch.cuda.launches import stream_of
from prunecast.torch.layer_table import DTYPES


def quantise_rows(
    x: torch.Tensor, norm: tuple[torch.Tensor, float] | None = None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return x (tokens, K) in e4m3 and the scale of each token (tokens,); None if the kernel cannot read x.

    Parameters
    ----------
    norm : weight and epsilon of an RMS norm; if given, the norm of x is quantised
    """
    x = x if x.stride(1) == 1 else x.contiguous()
    (tokens, features), row_bytes = x.shape, x.stride(0) * x.element_size()
    if x.element_size() != 2 or not may_quantise(Place(x.data_ptr(), row_bytes), features):
        return None
    y = x.new_empty((tokens, features), dtype=torch.float8_e4m3fn)
    scales = x.new_empty((tokens,), dtype=torch.float32)
    args = np.zeros(1, QUANTISE_ARGS if norm is None else NORM_ARGS)
    if norm is not None:
        weight, epsilon = norm
        weight = weight.contiguous()
        if weight.dtype != x.dtype or weight.numel() != features or weight.data_ptr() % 16:
            return None
        args["weight"], args["epsilon"] = weight.data_ptr(), epsilon
    args["x"], args["y"], args["scales"] = x.data_ptr(), y.data_ptr(), scales.data_ptr()
    args["x_row_bytes"], args["features"] = row_bytes, features
    index = x.device.index
    with torch.cuda.device(index):
        quantise_launch(args, tokens, index, DTYPES[x.dtype])(stream_of(index))
    return y, scales
