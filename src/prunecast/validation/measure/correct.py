"""Is C right? Every element of a sample of tokens against float64, within its rounding bound."""

from typing import Any

import cupy as cp
import numpy as np

from prunecast.patterns.tile_map import MaskArray
from prunecast.validation.measure.contestants import Inputs, Runner, exact, nothing, rounded
from prunecast.validation.tolerance import OUTPUT_ROUNDOFF, error_bound

MOST_MULTIPLY_ADDS = 4e10
"""Beyond it tokens are sampled: first and last ones, which are special to kernels, and random ones."""
EDGE_TOKENS = 64
LIBRARY_ROUNDINGS = 2
"""cuSPARSE was seen to add partial sums in fp16: 1.7 to 85 times beyond the bound of fp32 sums (H200,
2026-11-20)."""


def largest_excess(
    runner: Runner, mask: MaskArray | None, kept: int, inputs: Inputs, *, library: bool
) -> float:
    """Largest |error| over its bound, infinite where C is not finite; at most 1 is right.

    Parameters
    ----------
    mask : (M, K) of what the product keeps of `inputs.weights`; None for dense random weights of the pool
    kept : products in one sum at most
    library : whether the vendor's rules hold: partial sums may be rounded to the format of C
    """
    c = inputs.c(0)
    c.fill(nothing(inputs.dtype))
    runner.launch(0)
    tokens = _tokens(inputs)
    a = _weights(mask, inputs)
    b = inputs.b(0)
    if runner.config == "NK":
        b = b.reshape(inputs.n, inputs.k).T
    b = exact(cp.ascontiguousarray(b[:, tokens]), inputs.dtype)
    got = exact(cp.ascontiguousarray(c[:, tokens]), inputs.dtype)
    reference = a @ b
    absolute = cp.abs(a) @ cp.abs(b)
    bound = error_bound(reference, absolute, max(kept, 1), inputs.dtype)
    if library:
        bound += LIBRARY_ROUNDINGS * OUTPUT_ROUNDOFF[inputs.dtype] * absolute
    excess = cp.abs(got - reference) / bound
    excess[~cp.isfinite(got)] = cp.inf
    return float(excess.max())


def _weights(mask: MaskArray | None, inputs: Inputs) -> Any:
    if mask is None:
        return exact(inputs.a(0), inputs.dtype)
    a = exact(rounded(cp.asarray(inputs.weights), inputs.dtype), inputs.dtype)
    a *= cp.asarray(mask)
    return a


def _tokens(inputs: Inputs) -> Any:
    most = int(MOST_MULTIPLY_ADDS / (inputs.m * inputs.k))
    if inputs.n <= max(most, 2 * EDGE_TOKENS):
        return cp.arange(inputs.n)
    middle = np.random.default_rng(3).choice(inputs.n, max(most - 2 * EDGE_TOKENS, 1), replace=False)
    edges = np.concatenate((np.arange(EDGE_TOKENS), np.arange(inputs.n - EDGE_TOKENS, inputs.n)))
    return cp.asarray(np.unique(np.concatenate((edges, middle))))
