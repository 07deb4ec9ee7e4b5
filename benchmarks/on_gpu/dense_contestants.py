"""The dense product that every pruned one is timed against: cuBLAS in two layouts of B."""

from typing import Any

import cupy as cp

from benchmarks.on_gpu.rotation import Sets
from benchmarks.on_gpu.timing import Contestant, contestant
from prunecast.validation.measure.libraries import DenseProduct

__all__ = ["cublas_contestant", "dense_contestants"]

_DTYPES = {"float16": "fp16", "float32": "fp32"}


def dense_contestants(stream: Any, sets: Sets) -> list[Contestant]:
    """CuBLAS with B (K, N) and with B (N, K)."""
    return [cublas_contestant(stream, sets, token_major=major) for major in (False, True)]


def cublas_contestant(stream: Any, sets: Sets, *, token_major: bool) -> Contestant:
    """The dense product; checked against CuPy's own on the first set."""
    product = DenseProduct(stream, _DTYPES[sets[0][0].dtype.name])
    bs = [cp.ascontiguousarray(b.T) if token_major else b for _, b, _ in sets]

    def launch(i: int) -> None:
        product(sets[i][0], bs[i], sets[i][2], b_is_token_major=token_major)

    launch(0)
    a, b, c = sets[0]
    wanted = a[:64].astype(cp.float32) @ b.astype(cp.float32)
    error = float(cp.abs(c[:64].astype(cp.float32) - wanted).max() / cp.abs(wanted).max())
    if not error < 2e-3:
        raise RuntimeError(f"cuBLAS baseline is wrong by {error}")
    name = f"cublas {'NK' if token_major else 'KN'}"
    return contestant(name, stream, launch, sets=len(sets))
