"""Launch of the kernel that applies rotary embeddings to the heads of Y (tokens, features), in place."""

import numpy as np

from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.pass_launch import PassLaunch, record

THREADS, WIDTH_STEP, MOST_WIDTH = 256, 16, 4096
"""Threads of a block, and features of a head: a multiple of the second number, at most the third. Kind: CUDA
source, `rotate_heads.cu`."""
ROTATE_ARGS = np.dtype(
    [(name, "u8") for name in ("y", "cos", "sin", "y_row_bytes", "heads", "width", "periods")]
)
"""Layout of `RotateArgs`."""


def may_rotate(y: Place, width: int) -> bool:
    """Return True if the kernel supports rows of this alignment and heads of `width` 2-byte features."""
    return (
        y.pointer % 16 == 0 and y.row_bytes % 16 == 0 and width % WIDTH_STEP == 0 and 0 < width <= MOST_WIDTH
    )


def rotate_launch(y: Place, tokens: int, dtype: str, **values: int) -> PassLaunch:
    """Return the launch that applies rotary embeddings to Y in place, with one block per token.

    Parameters
    ----------
    y : Y (tokens, features)
    dtype : format of Y, `fp16` or `bf16`
    values : addresses of `cos` and `sin`, (periods, width); and the numbers `heads`, `width` (features of a
        head) and `periods`. Token t uses row t % periods of `cos` and `sin`
    """
    args = record(ROTATE_ARGS, y=y.pointer, y_row_bytes=y.row_bytes, **values)
    defines = (("BF16", 1),) if dtype == "bf16" else ()
    return PassLaunch("rotary/rotate_heads.cu", "rotate_heads", args, tokens, THREADS, 0, defines)
