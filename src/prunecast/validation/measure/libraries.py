"""Matrix products of NVIDIA's libraries: dense by cuBLAS and CSR by cuSPARSE.

Both are called through the C interfaces of the shared libraries. CuPy's wrappers lack the workspace of cuBLAS
and the half-precision matrices of cuSPARSE.
"""

import ctypes
import glob
import site
from functools import cache
from typing import Any

import cupy as cp
import numpy as np

from prunecast.patterns import ElementMap

WORKSPACE_BYTES = 64 * 1024 * 1024
_TYPE = {"fp16": 2, "bf16": 14, "fp32": 0}
"""Number format -> value of the C enumeration `cudaDataType`."""
_FP32 = 0
_COMPUTE_32F = 68
"""Values of the C enumerations `cudaDataType` and `cublasComputeType_t`: factors and sums in fp32."""


def _library(name: str) -> Any:
    """Load a CUDA library by its file name, as the system loader finds it, or else from a Python package."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        folders = [*site.getsitepackages(), site.getusersitepackages()]
        found = [path for folder in folders for path in glob.glob(f"{folder}/nvidia/*/lib/{name}")]
        if not found:
            raise
        return ctypes.CDLL(found[0])


def _ask(name: str, status: int) -> None:
    if status != 0:
        raise RuntimeError(f"{name} answers {status}")


class CublasProduct:
    """Dense product by cublasGemmEx with fp32 accumulation and its own workspace, for layers of any shape."""

    def __init__(self, stream: Any, dtype: str) -> None:
        self._lib = _library("libcublas.so.13")
        self._handle = ctypes.c_void_p()
        self._type = _TYPE[dtype]
        self._workspace = cp.empty(WORKSPACE_BYTES, cp.uint8)
        _ask("cublasCreate", self._lib.cublasCreate_v2(ctypes.byref(self._handle)))
        _ask("cublasSetStream", self._lib.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream.ptr)))
        pointer, size = ctypes.c_void_p(self._workspace.data.ptr), ctypes.c_size_t(WORKSPACE_BYTES)
        _ask("cublasSetWorkspace", self._lib.cublasSetWorkspace_v2(self._handle, pointer, size))

    def __call__(self, a: Any, b: Any, c: Any, *, b_is_token_major: bool) -> None:
        """Enqueue C (M, N) = A (M, K) B. B is (K, N), or (N, K) if it is token-major. All are row-major."""
        (m, k), n = a.shape, c.shape[1]
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        status = self._lib.cublasGemmEx(
            self._handle,
            int(b_is_token_major),
            0,
            n,
            m,
            k,
            ctypes.byref(one),
            ctypes.c_void_p(b.data.ptr),
            self._type,
            k if b_is_token_major else n,
            ctypes.c_void_p(a.data.ptr),
            self._type,
            k,
            ctypes.byref(zero),
            ctypes.c_void_p(c.data.ptr),
            self._type,
            n,
            _COMPUTE_32F,
            -1,
        )
        _ask("cublasGemmEx", status)


@cache
def _sparse_handle(stream_pointer: int) -> ctypes.c_void_p:
    """Return the cuSPARSE handle of a stream, cached because creating one is slow."""
    library, handle = _library("libcusparse.so.12"), ctypes.c_void_p()
    _ask("cusparseCreate", library.cusparseCreate(ctypes.byref(handle)))
    _ask("cusparseSetStream", library.cusparseSetStream(handle, ctypes.c_void_p(stream_pointer)))
    return handle


class CsrProduct:
    """Product of one CSR matrix by cusparseSpMM: default algorithm, fp32 accumulation, row-major B and C."""

    def __init__(self, stream: Any, kept: ElementMap, values: Any, n: int, dtype: str) -> None:
        """Create the CSR matrix from `values`, shape (kept,), which are on the device; `n` is the number of
        tokens.
        """
        self._lib = _library("libcusparse.so.12")
        self._type, self._n = _TYPE[dtype], n
        self._handle = _sparse_handle(stream.ptr)
        self._rows = cp.asarray(kept.row_start.astype(np.int32))
        self._columns = cp.asarray(kept.column_index.astype(np.int32))
        self._values, self._m, self._k = values, kept.m, kept.k
        self._matrix = self._describe(kept)
        self._buffer: Any = None
        self._factors = (ctypes.c_float(1.0), ctypes.c_float(0.0))

    def _describe(self, kept: ElementMap) -> ctypes.c_void_p:
        matrix = ctypes.c_void_p()
        status = self._lib.cusparseCreateCsr(
            ctypes.byref(matrix),
            ctypes.c_int64(kept.m),
            ctypes.c_int64(kept.k),
            ctypes.c_int64(kept.column_index.size),
            ctypes.c_void_p(self._rows.data.ptr),
            ctypes.c_void_p(self._columns.data.ptr),
            ctypes.c_void_p(self._values.data.ptr),
            2,  # CUSPARSE_INDEX_32I, twice
            2,
            0,  # first index
            self._type,
        )
        _ask("cusparseCreateCsr", status)
        return matrix

    def _dense(self, array: Any) -> ctypes.c_void_p:
        matrix = ctypes.c_void_p()
        rows, columns = array.shape
        sizes = (ctypes.c_int64(rows), ctypes.c_int64(columns), ctypes.c_int64(columns))
        pointer = ctypes.c_void_p(array.data.ptr)
        row_major = 2
        status = self._lib.cusparseCreateDnMat(ctypes.byref(matrix), *sizes, pointer, self._type, row_major)
        _ask("cusparseCreateDnMat", status)
        return matrix

    def __call__(self, b: Any, c: Any) -> None:
        """Enqueue C (M, N) = A B (K, N)."""
        one, zero = self._factors
        descriptors = self._dense(b), self._dense(c)
        common = (
            self._handle,
            0,
            0,
            ctypes.byref(one),
            self._matrix,
            descriptors[0],
            ctypes.byref(zero),
            descriptors[1],
            _FP32,
            0,  # CUSPARSE_SPMM_ALG_DEFAULT
        )
        if self._buffer is None:
            size = ctypes.c_size_t()
            _ask("cusparseSpMM_bufferSize", self._lib.cusparseSpMM_bufferSize(*common, ctypes.byref(size)))
            self._buffer = cp.empty(max(size.value, 16), cp.uint8)
        _ask("cusparseSpMM", self._lib.cusparseSpMM(*common, ctypes.c_void_p(self._buffer.data.ptr)))
        for descriptor in descriptors:
            _ask("cusparseDestroyDnMat", self._lib.cusparseDestroyDnMat(descriptor))
