"""Transposing copy between device addresses, independent of the framework of the arrays.

torch's own copy of a transposed view needs 23 us for 4096 x 768 fp16 on an H200, 0.5 TB/s (own measurement,
2026-11-22): longer than the matrix product that follows.
"""

from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from prunecast.kernels.device.build import SOURCES, CompiledKernel, compile_cubin
from prunecast.kernels.device.launch import PreparedLaunch

ALIGN_BYTES, ELEMENT_BYTES = 16, 2
"""Alignment of rows in bytes, and bytes of an element. Kind: CUDA source, `transpose_rows.cu`."""
EDGE, THREADS, SHARED_BYTES = 64, 256, 64 * 33 * 4
"""Rows and columns of a tile, threads, and its shared memory. Kind: CUDA source, `transpose_rows.cu`."""

TRANSPOSE_ARGS = np.dtype(
    [
        ("x", "u8"),
        ("b", "u8"),
        ("x_row_bytes", "i8"),
        ("b_row_bytes", "i8"),
        ("tokens", "i4"),
        ("padded", "i4"),
        ("features", "i4"),
        ("blocks_across", "i4"),
    ]
)
"""Layout of `TransposeArgs`."""
_X_WORD, _B_WORD = 0, 1
"""Indices of the 8-byte words that contain the pointers. Kind: CUDA source, `transpose_rows.cu`."""


class Rows(NamedTuple):
    """A row-major matrix of 2-byte elements."""

    pointer: int
    row_bytes: int
    rows: int
    columns: int

    @property
    def aligned(self) -> bool:
        """True if address, row stride and row length are multiples of 16 bytes."""
        words = self.pointer % ALIGN_BYTES == 0 and self.row_bytes % ALIGN_BYTES == 0
        return words and self.columns * ELEMENT_BYTES % ALIGN_BYTES == 0


def may_transpose(x: Rows, b: Rows) -> bool:
    """Return True if the kernel can transpose X (tokens, features) to B (features, at least as
    many tokens).
    """
    return x.aligned and b.aligned and x.columns == b.rows and b.columns >= x.rows


def transpose_args(x: Rows, b: Rows) -> tuple[np.ndarray[Any, Any], int]:
    """Return the argument record of the kernel, and the number of blocks."""
    across, down = -(-x.columns // EDGE), -(-b.columns // EDGE)
    args = np.zeros(1, TRANSPOSE_ARGS)
    args["x"], args["b"] = x.pointer, b.pointer
    args["x_row_bytes"], args["b_row_bytes"] = x.row_bytes, b.row_bytes
    args["tokens"], args["padded"], args["features"] = x.rows, b.columns, x.columns
    args["blocks_across"] = across
    return args, across * down


def transpose_rows(x: Rows, b: Rows, *, device: int, stream: int) -> None:
    """Write B = X^T on a stream of a device; the padding after X's tokens in rows of B becomes zero.

    `may_transpose` must hold. The first call on a device loads the kernel.
    """
    PreparedTranspose(x, b, device=device)(x.pointer, b.pointer, stream)


class PreparedTranspose:
    """A prepared `transpose_rows` for matrices that differ from X and B only in their addresses."""

    def __init__(self, x: Rows, b: Rows, *, device: int) -> None:
        args, blocks = transpose_args(x, b)
        self._words, self._lock = args.view(np.uint64).data, Lock()
        self._launch = prepared_launch(_kernel(device).kernel.ptr, args, blocks, overlap=False)

    def __call__(self, x_pointer: int, b_pointer: int, stream: int) -> None:
        """Enqueue the copy on a stream of the current device, which must be the one that it
        was prepared for.
        """
        with self._lock:
            self._words[_X_WORD], self._words[_B_WORD] = x_pointer, b_pointer
            self._launch(stream)


def prepared_launch(
    function: int, args: np.ndarray[Any, Any], blocks: int, *, overlap: bool
) -> PreparedLaunch:
    """Return a prepared launch of the loaded kernel; `overlap` needs compute capability 9.0."""
    return PreparedLaunch(
        function,
        [args.ctypes.data],
        blocks=blocks,
        threads=THREADS,
        shared_bytes=SHARED_BYTES,
        overlap=overlap,
    )


def build_transpose(arch: str) -> CompiledKernel:
    """Compile the kernel for an architecture such as `sm_90`."""
    return compile_cubin(SOURCES / "transpose" / "transpose_rows.cu", arch, {})


@cache
def _kernel(device: int) -> Any:
    import cupy as cp

    with cp.cuda.Device(device) as current:
        cubin = build_transpose(f"sm_{current.compute_capability}").cubin
        return cp.RawModule(path=str(cubin)).get_function("transpose_rows")
