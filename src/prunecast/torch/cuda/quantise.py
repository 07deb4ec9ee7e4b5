"""Launch the kernel that quantises x, or its RMS norm, to e4m3."""

from typing import Any

import torch

from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.quantise.quantise import may_quantise, quantise_launch
from prunecast.torch.cuda.stream import enqueue
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
    (tokens, features), place = x.shape, Place(x.data_ptr(), x.stride(0) * x.element_size())
    if x.element_size() != 2 or not may_quantise(place, features):
        return None
    own: dict[str, Any] = {}
    if norm is not None:
        weight, epsilon = norm[0].contiguous(), norm[1]
        if weight.dtype != x.dtype or weight.numel() != features or weight.data_ptr() % 16:
            return None
        own = {"weight": weight.data_ptr(), "epsilon": epsilon}
    y = x.new_empty((tokens, features), dtype=torch.float8_e4m3fn)
    scales = x.new_empty((tokens,), dtype=torch.float32)
    to = (y.data_ptr(), scales.data_ptr())
    enqueue(quantise_launch(place, *to, tokens, features, DTYPES[x.dtype], **own), x.device.index)
    return y, scales
