"""Operators that quantise x, or its RMS norm, to e4m3: `quantise` and `norm_quantise`.

    quantise(x) -> (x in e4m3, scales)

converts x (tokens, K) to e4m3 with one scale per token: the largest absolute value of the token, divided by
448. Traced graphs express it in plain torch, so that torch.compile can fuse it with the kernel that computes
x.

    norm_quantise(x, weight, epsilon) -> (norm of x in e4m3, scales)

quantises the RMS norm x / sqrt(mean(x^2) + epsilon) * weight. The norm is not rounded to 16 bits before;
torch.compile does not round it either where it fuses the norm and the quantisation.
"""

from typing import Any

import torch

from prunecast.kernels.device.quantise.quantise import LARGEST
from prunecast.torch.cuda.quantise import quantise_rows
from prunecast.torch.operators import register

Quantised = tuple[torch.Tensor, torch.Tensor]


def quantised(x: torch.Tensor) -> Quantised:
    """Return x (rows, K) in e4m3 and the scale of each row (rows,), computed by torch."""
    values = x.float()
    size = values.abs().amax(-1, keepdim=True)
    # torch divides a Python number by a tensor as a product with the reciprocal, which rounds twice
    inverse = torch.where(size > 0, torch.full_like(size, LARGEST) / size, 1.0)
    scales = torch.where(size > 0, size * (1.0 / LARGEST), 1.0)
    return (values * inverse).to(torch.float8_e4m3fn), scales[:, 0]


def quantise(x: torch.Tensor) -> Quantised:
    """Return x (tokens, K) in e4m3 and the scale of each token (tokens,).

    Eager calls on a GPU use one kernel, which reads x once.
    """
    if torch.compiler.is_compiling() or not x.is_cuda:
        return quantised(x)
    found: Quantised = torch.ops.prunecast.quantise.default(x)
    return found


def norm_quantised(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> Quantised:
    """Return the RMS norm of x (rows, K) in e4m3 and the scale of each row (rows,), computed by torch."""
    values = x.float()
    scale = torch.rsqrt(values.square().mean(-1, keepdim=True) + epsilon)
    return quantised(values * scale * weight.float())


def _quantise_on_gpu(x: torch.Tensor, *norm: Any) -> Quantised:
    """Quantise x, or its RMS norm (weight, epsilon), by the kernel; by torch if the kernel cannot read x."""
    by_torch = norm_quantised if norm else quantised
    return quantise_rows(x, norm or None) or by_torch(x, *norm)


register("quantise(Tensor x) -> (Tensor, Tensor)", quantised, _quantise_on_gpu)
register(
    "norm_quantise(Tensor x, Tensor weight, float epsilon) -> (Tensor, Tensor)",
    norm_quantised,
    _quantise_on_gpu,
)
