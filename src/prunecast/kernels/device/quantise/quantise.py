"""Launch of the kernel that quantises X (tokens, features), or its RMS norm, to e4m3, one scale per token."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.build import SOURCES, CompiledKernel, compile_cubin
from prunecast.kernels.device.launch import Place, PreparedLaunch, arch_of, load_function

LARGEST = 448.0
"""Largest finite number of e4m3. Kind: definition, OCP 8-bit floating point specification 1.0."""
THREADS, SHARED_BYTES, CHUNK_FEATURES, MOST_CHUNKS = 256, 64, 2048, 16
"""Threads, shared memory, features that a block reads at once, and most of these reads. Kind: CUDA source,
`quantise_rows.cu`, the last one is a choice, 64 registers."""
QUANTISE_ARGS = np.dtype([(name, "u8") for name in ("x", "y", "scales", "x_row_bytes", "features")])
"""Layout of `QuantiseArgs`."""
NORM_ARGS = np.dtype([*QUANTISE_ARGS.descr, ("weight", "u8"), ("epsilon", "f8")])
"""Layout of `QuantiseArgs` where X is normalised first."""


def quantised(values: npt.NDArray[np.floating[Any]]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Return the reference result of the kernel: `values` in e4m3, and the fp32 scale of each row.

    The scale is the row's largest absolute value divided by `LARGEST`, or 1 for a row of zeros. A value is
    approximately its e4m3 number times the scale of its row.

    Parameters
    ----------
    values : (rows, features)

    Returns
    -------
    (rows, features) uint8, the bits of the e4m3 numbers; (rows,) float32, the scales
    """
    import ml_dtypes

    rows = values.astype(np.float32)
    size, largest = np.abs(rows).max(axis=1, initial=0.0), np.float32(LARGEST)
    none = size == 0
    inverse = np.where(none, np.float32(1.0), largest / np.where(none, largest, size)).astype(np.float32)
    scales = np.where(none, np.float32(1.0), size * np.float32(1.0 / LARGEST)).astype(np.float32)
    numbers = (rows * inverse[:, None]).clip(-LARGEST, LARGEST)
    return numbers.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), scales


def may_quantise(x: Place, features: int) -> bool:
    """Return True if the kernel supports the alignment of X and rows of `features` 2-byte elements."""
    aligned = x.pointer % 16 == 0 and x.row_bytes % 16 == 0 and features % 16 == 0
    return aligned and 0 < features <= CHUNK_FEATURES * MOST_CHUNKS


def quantise_launch(args: npt.NDArray[np.void], tokens: int, device: int, dtype: str) -> PreparedLaunch:
    """Return the launch, with one block per token.

    Parameters
    ----------
    args : record of dtype `QUANTISE_ARGS`, or `NORM_ARGS` to quantise the RMS norm of X; the caller must keep
        it alive
    dtype : format of X, `fp16` or `bf16`
    """
    features, normed = int(args["features"][0]), args.dtype == NORM_ARGS
    cubin = build_quantise(arch_of(device), features, dtype, normed=normed).cubin
    return PreparedLaunch(
        load_function(cubin, "quantise_rows", SHARED_BYTES, device),
        [args.ctypes.data],
        blocks=tokens,
        threads=THREADS,
        shared_bytes=SHARED_BYTES,
        overlap=True,
    )


def build_quantise(arch: str, features: int, dtype: str, *, normed: bool = False) -> CompiledKernel:
    """Compile the kernel for rows of at most `features` elements.

    Parameters
    ----------
    arch : e.g. `sm_90a`
    dtype : format of X, `fp16` or `bf16`
    normed : quantise the RMS norm of X instead of X
    """
    return _built(arch, -(-features // CHUNK_FEATURES), dtype, normed)


@cache
def _built(arch: str, chunks: int, dtype: str, normed: bool) -> CompiledKernel:
    defines = {
        "CHUNKS": chunks,
        **({"BF16": 1} if dtype == "bf16" else {}),
        **({"NORMED": 1} if normed else {}),
    }
    return compile_cubin(SOURCES / "quantise" / "quantise_rows.cu", arch, defines)
