"""Quantise X (tokens, features) or its RMS norm to e4m3 with a scale per token, between device addresses."""

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
    """Return rows of numbers in e4m3, as bits, and the scale of each row: its largest size over `LARGEST`.

    The numbers are the bits times the scale; a row of zeros has scale 1.
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
    """Return True if the kernel reads rows of so many features of 2 bytes."""
    aligned = x.pointer % 16 == 0 and x.row_bytes % 16 == 0 and features % 16 == 0
    return aligned and 0 < features <= CHUNK_FEATURES * MOST_CHUNKS


def quantise_launch(args: npt.NDArray[np.void], tokens: int, device: int, dtype: str) -> PreparedLaunch:
    """Return a launch with the arguments `QUANTISE_ARGS` or `NORM_ARGS`, which the caller must keep alive."""
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
    """Compile the kernel for X of `fp16` or `bf16` with at most so many features; `normed` to normalise X."""
    return _built(arch, -(-features // CHUNK_FEATURES), dtype, normed)


@cache
def _built(arch: str, chunks: int, dtype: str, normed: bool) -> CompiledKernel:
    defines = {
        "CHUNKS": chunks,
        **({"BF16": 1} if dtype == "bf16" else {}),
        **({"NORMED": 1} if normed else {}),
    }
    return compile_cubin(SOURCES / "quantise" / "quantise_rows.cu", arch, defines)
