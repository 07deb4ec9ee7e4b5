"""Launch of the kernel that quantises X (tokens, features), or its RMS norm, to e4m3, one scale per token."""

import numpy as np

from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.pass_launch import PassLaunch, record

LARGEST = 448.0
"""Largest finite number of e4m3. Kind: definition, OCP 8-bit floating point specification 1.0."""
THREADS, SHARED_BYTES, CHUNK_FEATURES, MOST_CHUNKS = 256, 64, 2048, 16
"""Threads of a block, bytes of its shared memory, features that a block reads at once, and maximum number of
such reads per token. Kind: CUDA source, `quantise_rows.cu`. The last number
is a choice, 64 registers."""
QUANTISE_ARGS = np.dtype([(name, "u8") for name in ("x", "y", "scales", "x_row_bytes", "features")])
"""Layout of `QuantiseArgs`."""
NORM_ARGS = np.dtype([*QUANTISE_ARGS.descr, ("weight", "u8"), ("epsilon", "f8")])
"""Layout of `QuantiseArgs` if X is normalised first."""


def may_quantise(x: Place, features: int) -> bool:
    """Return True if the kernel supports the alignment of X and rows of `features` 2-byte elements."""
    aligned = x.pointer % 16 == 0 and x.row_bytes % 16 == 0 and features % 16 == 0
    return aligned and 0 < features <= CHUNK_FEATURES * MOST_CHUNKS


def quantise_launch(
    x: Place, y: int, scales: int, tokens: int, features: int, dtype: str, **norm: float
) -> PassLaunch:
    """Return the launch that quantises X, with one block per token.

    Parameters
    ----------
    x : X (tokens, features)
    y, scales : addresses of the result, (tokens, features) bytes and (tokens,) fp32
    dtype : format of X, `fp16` or `bf16`
    norm : to quantise the RMS norm of X instead of X: the address `weight` of its weight, in the format of X,
        and `epsilon`
    """
    layout = NORM_ARGS if norm else QUANTISE_ARGS
    args = record(layout, x=x.pointer, x_row_bytes=x.row_bytes, y=y, scales=scales, features=features, **norm)
    defines = {"CHUNKS": -(-features // CHUNK_FEATURES)}
    defines |= ({"BF16": 1} if dtype == "bf16" else {}) | ({"NORMED": 1} if norm else {})
    source = "quantise/quantise_rows.cu"
    return PassLaunch(source, "quantise_rows", args, tokens, THREADS, SHARED_BYTES, tuple(defines.items()))
