"""The transposing copy, run as it is on an emulated machine, beside NumPy's."""

import itertools

import numpy as np
import pytest

from prunecast.kernels.device.transpose.transpose import (
    Norm,
    Rows,
    may_transpose,
    transpose_launch,
)
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE, run_pass_on_cpu

GUARD = 0xDEAD


def numbers(rows, columns, row):
    """(rows, row) numbers from 1 on, at a multiple of 16 bytes; those from `columns` on are a guard."""
    store = np.full(rows * row + 8, GUARD, np.uint16)
    found = store[-store.ctypes.data % 16 // 2 :][: rows * row].reshape(rows, row)
    found[:, :columns] = np.random.default_rng(rows).integers(1, 60_000, (rows, columns))
    return found


@pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")
@pytest.mark.parametrize(
    ("tokens", "features", "x_row", "padded", "b_row"),
    [
        (64, 64, 64, 64, 64),
        (1, 8, 8, 8, 8),
        (65, 72, 80, 128, 128),
        (197, 200, 200, 256, 264),
        (300, 24, 24, 304, 320),
        (40, 136, 136, 40, 40),
    ],
)
def test_columns_become_rows_and_nothing_else_is_written(cubins, tokens, features, x_row, padded, b_row):
    x, b = numbers(tokens, features, x_row), numbers(features, b_row, b_row)
    before = b.copy()
    launch = transpose_launch(
        Rows(x.ctypes.data, 2 * x_row, tokens, features), Rows(b.ctypes.data, 2 * b_row, features, padded)
    )
    run_pass_on_cpu(launch, [x, b], cubins)
    assert np.array_equal(b[:, :tokens], x[:, :features].T)
    assert not b[:, tokens:padded].any()
    assert np.array_equal(b[:, padded:], before[:, padded:])


def test_what_the_kernel_cannot_turn_is_not_given_to_it():
    x, b = Rows(1024, 128, 100, 64), Rows(4096, 256, 64, 128)
    assert may_transpose(x, b)
    assert not may_transpose(x._replace(pointer=1032), b)
    assert not may_transpose(x._replace(row_bytes=130), b)
    assert not may_transpose(x._replace(columns=60), b._replace(rows=60))
    assert not may_transpose(x, b._replace(columns=96))
    assert not may_transpose(x, b._replace(rows=72))


def test_macros_of_a_normalisation_are_those_of_the_source():
    """The head of `transpose_rows.cu` lists them, each 0 or 1; equal macros share one compiled kernel."""
    parts = ("SHIFT", "WEIGHT", "BIAS", "ROUNDS")
    for bits in itertools.product((0, 1), repeat=4):
        shift, weight, bias, rounds = bits
        norm = Norm(4096 * shift, 16, 64 * weight, 256 * bias, bool(rounds), is_bf16=False)
        assert dict(norm.changes) == {"NORMED": 1, **dict(zip(parts, bits, strict=True))}
        assert dict(norm._replace(is_bf16=True).changes) == {**dict(norm.changes), "BF16": 1}


@pytest.mark.parametrize("norm", [None, Norm(16, 16, 16, 16, False, False), Norm(0, 16, 16, 0, True, True)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_it_compiles(arch, norm):
    pytest.importorskip("cuda.bindings.nvrtc")
    launch = transpose_launch(Rows(0, 128, 8, 64), Rows(0, 16, 64, 8), norm)
    kernel = launch.build(arch)
    assert kernel.spill_bytes == kernel.shared_bytes == 0  # the launch asks for all shared memory


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("parts", "rounds"), [("shift weight bias", False), ("weight", True), ("weight", False), ("", False)]
)
def test_a_normalised_x_is_transposed(dtype, parts, rounds, cubins):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    number = np.dtype(np.float16 if dtype == "fp16" else ml_dtypes.bfloat16)
    tokens, features, padded = 70, 136, 72
    rng = np.random.default_rng(0)
    x = (3 * rng.standard_normal((tokens, features)) + 1).astype(number)
    shift, scale = x.astype(np.float32).mean(1), 1 / x.astype(np.float32).std(1)
    weight, bias = (rng.standard_normal(features).astype(number) for _ in range(2))
    own = {"shift": shift, "weight": weight, "bias": bias}
    pointers = [own[name].ctypes.data if name in parts else 0 for name in own]
    norm = Norm(pointers[0], scale.ctypes.data, *pointers[1:], rounds, dtype == "bf16")
    b = np.full((features, padded), np.nan, number)
    given, made = (Rows(each.ctypes.data, each.strides[0], *each.shape) for each in (x, b))
    run_pass_on_cpu(transpose_launch(given, made, norm), [x, b, scale, *own.values()], cubins)
    wanted = (x.astype(np.float64) - (shift[:, None] if "shift" in parts else 0)) * scale[:, None]
    wanted = wanted.astype(number).astype(np.float64) if rounds else wanted
    wanted = wanted * (weight.astype(np.float64) if "weight" in parts else 1)
    wanted = wanted + (bias.astype(np.float64) if "bias" in parts else 0)
    # One rounding of the result, and where it is rounded before the weight, one more
    step = 2.0**-8 if dtype == "bf16" else 2.0**-11
    np.testing.assert_allclose(b[:, :tokens].T.astype(np.float64), wanted, rtol=2.5 * step, atol=2.5 * step)
    assert not b[:, tokens:].any()
