"""Launch of the kernel that applies rotary embeddings to the heads of Y (tokens, features), in place."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.build import SOURCES, CompiledKernel, compile_cubin
from prunecast.kernels.device.launch import Place, PreparedLaunch, arch_of, capability_of, load_function

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


def rotate_launch(args: npt.NDArray[np.void], tokens: int, device: int, dtype: str) -> PreparedLaunch:
    """Return the launch, with one block per token.

    Parameters
    ----------
    args : record of dtype `ROTATE_ARGS`, which the caller must keep alive
    dtype : format of Y, `fp16` or `bf16`
    """
    cubin = build_rotate(arch_of(device), dtype).cubin
    return PreparedLaunch(
        load_function(cubin, "rotate_heads", 0, device),
        [args.ctypes.data],
        blocks=tokens,
        threads=THREADS,
        shared_bytes=0,
        overlap=capability_of(device) >= 90,
    )


@cache
def build_rotate(arch: str, dtype: str) -> CompiledKernel:
    """Compile the kernel for an architecture such as `sm_90`, and Y in `fp16` or `bf16`."""
    defines: dict[str, Any] = {"BF16": 1} if dtype == "bf16" else {}
    return compile_cubin(SOURCES / "rotary" / "rotate_heads.cu", arch, defines)
