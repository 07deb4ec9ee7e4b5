"""What `benchmarks.gpu_tokens` times: the kernel, what an operator does around it, and cuBLAS."""

import ctypes
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.gpu_tokens_bench import OUTPUT_ELEMENTS, POOL_ELEMENTS, Bench, Launches
from benchmarks.gpu_tokens_cases import Product, Rows, to_multiple
from prunecast.kernels.cuda.row_copies import copy_rows

__all__ = ["copy_launches", "dense_launches", "kernel_launches"]

FP16, FP32_SUMS, ON_DEVICE = 2, 68, 3
"""As the libraries number them."""


def kernel_launches(bench: Bench, product: Product, tokens: int, wanted: list[tuple[Rows, Rows]]) -> Launches:
    """The kernel alone with rows of B and C that begin there."""
    operators = bench.operators(product, tokens)

    def launch(i: int, b: Rows, c: Rows) -> None:
        out = bench.matrix(bench.c, i, product.m, tokens, c)
        operators[i](bench.matrix(bench.b, i, product.k, tokens, b), out=out)

    _check(bench, operators[0], product, tokens, wanted)
    return {f"b {b.pitch}+{b.offset} c {c.pitch}+{c.offset}": partial(launch, b=b, c=c) for b, c in wanted}


def _check(
    bench: Bench, operator: Any, product: Product, tokens: int, wanted: list[tuple[Rows, Rows]]
) -> None:
    """C is the same to the bit wherever rows begin."""
    given = bench.matrix(bench.b, 0, product.k, tokens, Rows(tokens)).copy()
    with bench.stream:
        same = operator(given).copy()
        for b, c in wanted:
            source, out = (
                bench.matrix(bench.b, 1, product.k, tokens, b),
                bench.matrix(bench.c, 1, product.m, tokens, c),
            )
            source[...], out[...] = given, np.nan
            operator(source, out=out)
            if not bool((out == same).all()):
                raise RuntimeError(f"{product} with {tokens} tokens is wrong with rows at {b}, {c}")


def copy_launches(bench: Bench, product: Product, tokens: int) -> Launches:
    """Copies of rows by element, in wide words and by the copy engine; the operator with and without them."""
    operators, even = bench.operators(product, tokens), Rows(tokens)
    lines = Rows(to_multiple(tokens, 64))
    b, b_room = bench.b[: POOL_ELEMENTS // 2], bench.b[POOL_ELEMENTS // 2 :]
    c = bench.c[: OUTPUT_ELEMENTS // 2]
    with bench.stream:
        _check_copies(operators[0], product, tokens)

    def operator(i: int) -> None:
        out = bench.matrix(c, i, product.m, tokens, even)
        operators[i](bench.matrix(b, i, product.k, tokens, even), out=out)

    def without_copies(i: int) -> None:
        kept.pop(i, None)  # its room is taken again: nothing new is allocated while a graph is captured
        kept[i] = operators[i](bench.matrix(b, i, product.k, tokens, lines))

    def copied(i: int, by: str) -> None:
        to = bench.matrix(b_room, i, product.k, tokens, lines)
        of = bench.matrix(b, i, product.k, tokens, even)
        if by == "engine":
            sizes = (to.data.ptr, to.strides[0], of.data.ptr, of.strides[0], 2 * tokens, product.k)
            cp.cuda.runtime.memcpy2DAsync(*sizes, ON_DEVICE, bench.stream.ptr)
        elif by == "words":
            copy_rows(to, of)
        else:
            to[...] = of

    kept: dict[int, Any] = {}
    with bench.stream:
        for i in range(len(operators)):
            without_copies(i)
    copies = {f"copy by {by}": partial(copied, by=by) for by in ("element", "words", "engine")}
    return {"operator": operator, "operator, padded": without_copies} | copies


def _check_copies(operator: Any, product: Product, tokens: int) -> None:
    """C is the same to the bit whether the operator copies or not, and nothing beside it is written."""
    wide = cp.full((product.k, to_multiple(tokens, 64)), cp.nan, cp.float16)
    beside = cp.full((product.m, to_multiple(tokens, 64)), cp.nan, cp.float16)
    b, c = wide[:, :tokens], beside[:, :tokens]
    b[...] = cp.random.standard_normal(b.shape, dtype=cp.float32)
    operator(b, out=c)
    same = operator(cp.ascontiguousarray(b))
    if not bool((same == operator(b)).all() & (same == c).all() & cp.isnan(beside[:, tokens:]).all()):
        raise RuntimeError(f"{product} with {tokens} tokens is wrong in padded rows")


def dense_launches(bench: Bench, product: Product, tokens: int) -> Launches:
    """Products of cuBLAS by where tokens lie in B and C, with rows of so many elements."""
    lib, handle = bench.gemm._lib, bench.gemm._handle
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    m, k = product.m, product.k

    def launch(i: int, form: str, pitch: int) -> None:
        a = ctypes.c_void_p(bench.matrix(bench.b[POOL_ELEMENTS // 2 :], i, m, k, Rows(k)).data.ptr)
        b_shape = (k, tokens, Rows(pitch)) if form == "KN" else (tokens, k, Rows(k))
        b = ctypes.c_void_p(bench.matrix(bench.b[: POOL_ELEMENTS // 2], i, *b_shape).data.ptr)
        c_shape = (tokens, m, Rows(m)) if form == "NK to NM" else (m, tokens, Rows(pitch))
        c = ctypes.c_void_p(bench.matrix(bench.c, i, *c_shape).data.ptr)
        if form == "NK to NM":
            sizes, left, right = (1, 0, m, tokens, k), (a, FP16, k), (b, FP16, k)
        else:
            sizes = (int(form != "KN"), 0, tokens, m, k)
            left, right = (b, FP16, pitch if form == "KN" else k), (a, FP16, k)
        end = (c, FP16, m if form == "NK to NM" else pitch, FP32_SUMS, -1)
        beta = ctypes.byref(zero)
        status = lib.cublasGemmEx(handle, *sizes, ctypes.byref(one), *left, *right, beta, *end)
        if status:
            raise RuntimeError(f"cublasGemmEx answers {status}")

    pitches = sorted({tokens, to_multiple(tokens, 8), to_multiple(tokens, 64)})
    found: Launches = {f"{f} {p}": partial(launch, form=f, pitch=p) for f in ("KN", "NK") for p in pitches}
    return found | {"NK to NM": partial(launch, form="NK to NM", pitch=tokens)}
