"""cublasLt, which proposes many algorithms for a product, of which cuBLAS takes the first."""

import ctypes
from functools import cache
from typing import Any

import cupy as cp

from prunecast.validation.measure.libraries import WORKSPACE_BYTES, _library

__all__ = ["LightProduct"]

_COMPUTE_32F, _FP32, _FP16 = 68, 0, 2
_TRANSPOSED, _WORKSPACE = 3, 1
_ALGORITHM_FIELDS = {"id": 0, "tile": 1, "parts": 2, "stages": 6, "inner": 7, "cluster": 8}


class _Proposal(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class LightProduct:
    """cublasLtMatmul of one size and layout of B, by any algorithm that the library proposes."""

    def __init__(self, stream: Any, m: int, k: int, n: int, *, token_major: bool) -> None:
        self._lib, self._stream = _library("libcublasLt.so.13"), ctypes.c_void_p(stream.ptr)
        self.token_major = token_major
        self._handle, self._workspace = _shared()
        self._what, wish = ctypes.c_void_p(), ctypes.c_void_p()
        self._ask("MatmulDescCreate", ctypes.byref(self._what), _COMPUTE_32F, _FP32)
        transposed = ctypes.c_int(int(token_major))
        self._ask("MatmulDescSetAttribute", self._what, _TRANSPOSED, ctypes.byref(transposed), _size(4))
        b = (k, n, k) if token_major else (n, k, n)
        self._shapes = [self._layout(*shape) for shape in (b, (k, m, k), (n, m, n))]
        self._ask("MatmulPreferenceCreate", ctypes.byref(wish))
        most = ctypes.c_size_t(WORKSPACE_BYTES)
        self._ask("MatmulPreferenceSetAttribute", wish, _WORKSPACE, ctypes.byref(most), _size(8))
        self._wish = wish

    def _ask(self, name: str, *arguments: Any) -> None:
        status = getattr(self._lib, f"cublasLt{name}")(*arguments)
        if status != 0:
            raise RuntimeError(f"cublasLt{name} answers {status}")

    def _layout(self, rows: int, columns: int, step: int) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(step))
        self._ask("MatrixLayoutCreate", ctypes.byref(found), _FP16, *sizes)
        return found

    def proposals(self, most: int) -> list[Any]:
        """Algorithms, the library's first choice first."""
        found, count = (_Proposal * most)(), ctypes.c_int()
        b, a, c = self._shapes
        self._ask(
            *("MatmulAlgoGetHeuristic", self._handle, self._what, b, a, c, c, self._wish, most),
            *(found, ctypes.byref(count)),
        )
        return [found[i] for i in range(count.value) if found[i].state == 0]

    def fields(self, proposal: Any) -> dict[str, int]:
        """What the algorithm says of itself, by the library's own numbers."""
        found = {}
        for name, place in _ALGORITHM_FIELDS.items():
            value, written = ctypes.c_int(-1), ctypes.c_size_t()
            self._lib.cublasLtMatmulAlgoConfigGetAttribute(
                *(ctypes.byref(proposal.algorithm), place, ctypes.byref(value), _size(4)),
                ctypes.byref(written),
            )
            found[name] = value.value
        return found

    def __call__(self, arrays: tuple[Any, Any, Any], proposal: Any) -> None:
        """Enqueue C = A B."""
        a, b, c = (ctypes.c_void_p(array.data.ptr) for array in arrays)
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        shape_b, shape_a, shape_c = self._shapes
        self._ask(
            *("Matmul", self._handle, self._what, ctypes.byref(one), b, shape_b, a, shape_a),
            *(ctypes.byref(zero), c, shape_c, c, shape_c, ctypes.byref(proposal.algorithm)),
            *(ctypes.c_void_p(self._workspace.data.ptr), _size(WORKSPACE_BYTES), self._stream),
        )


@cache
def _shared() -> tuple[ctypes.c_void_p, Any]:
    """A handle and a workspace for products of any size."""
    handle = ctypes.c_void_p()
    status = _library("libcublasLt.so.13").cublasLtCreate(ctypes.byref(handle))
    if status != 0:
        raise RuntimeError(f"cublasLtCreate answers {status}")
    return handle, cp.empty(WORKSPACE_BYTES, cp.uint8)


def _size(bytes_: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(bytes_)
