"""What `benchmarks.gpu_tokens` times: the kernel, what an operator does around it, and cuBLAS."""

import ctypes
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.gpu_tokens_bench import OUTPUT_ELEMENTS, POOL_ELEMENTS, Bench, Launches
from benchmarks.gpu_tokens_cases import Product, Rows, to_multiple

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
    """Copies of B and C and the kernel between them, alone and together, and the operator, which does all."""
    even, filled = Rows(tokens), to_multiple(tokens, 8)
    own, inner = bench.operators(product, tokens), bench.operators(product, filled)
    b, b_room = bench.b[: POOL_ELEMENTS // 2], bench.b[POOL_ELEMENTS // 2 :]
    c, c_room = bench.c[: OUTPUT_ELEMENTS // 2], bench.c[OUTPUT_ELEMENTS // 2 :]

    def operator(i: int) -> None:
        own[i](bench.matrix(b, i, product.k, tokens, even), out=bench.matrix(c, i, product.m, tokens, even))

    def together(i: int, pitch: int, which: str) -> None:
        b_inside = bench.matrix(b_room, i, product.k, filled, Rows(pitch))
        c_inside = bench.matrix(c_room, i, product.m, filled, Rows(pitch))
        if "in" in which:
            b_inside[:, :tokens] = bench.matrix(b, i, product.k, tokens, even)
        if "kernel" in which:
            inner[i](b_inside, out=c_inside)
        if "out" in which:
            bench.matrix(c, i, product.m, tokens, even)[...] = c_inside[:, :tokens]

    def engine(i: int, pitch: int) -> None:
        to = bench.matrix(b_room, i, product.k, tokens, Rows(pitch))
        of = bench.matrix(b, i, product.k, tokens, even)
        sizes = (to.data.ptr, 2 * pitch, of.data.ptr, 2 * tokens, 2 * tokens, product.k)
        cp.cuda.runtime.memcpy2DAsync(*sizes, ON_DEVICE, bench.stream.ptr)

    found: Launches = {"operator": operator}
    for pitch in (filled, to_multiple(tokens, 64)):
        kinds = ("in", "out", "kernel", "in kernel out")
        found |= {f"{which} {pitch}": partial(together, pitch=pitch, which=which) for which in kinds}
        found[f"engine in {pitch}"] = partial(engine, pitch=pitch)
    return found


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
