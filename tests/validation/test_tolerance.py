import math

import ml_dtypes
import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.validation.tolerance import OUTPUT_ROUNDOFF, OUTPUT_UNDERFLOW, error_bound

STORED = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}


def product_and_bound(rng, m, k, n, dtype):
    a = rng.standard_normal((m, k)).astype(STORED[dtype]).astype(np.float64)
    b = rng.standard_normal((k, n)).astype(STORED[dtype]).astype(np.float64)
    reference = a @ b
    return a, b, reference, error_bound(reference, np.abs(a) @ np.abs(b), k, dtype)


@pytest.mark.parametrize("dtype", STORED)
def test_sums_in_fp32_stay_within_the_bound(dtype):
    a, b, reference, bound = product_and_bound(np.random.default_rng(1), 96, 777, 80, dtype)
    c = np.zeros(reference.shape, np.float32)
    for j in range(a.shape[1]):  # the plainest order of all: one product after another
        c += a[:, j : j + 1].astype(np.float32) * b[j : j + 1].astype(np.float32)
    assert (np.abs(c.astype(STORED[dtype]).astype(np.float64) - reference) <= bound).all()


@pytest.mark.parametrize("dtype", STORED)
def test_one_lost_k_step_is_beyond_the_bound(dtype):
    a, b, _, bound = product_and_bound(np.random.default_rng(2), 256, 1024, 256, dtype)
    lost = a[128:, 960:] @ b[960:, :128]
    assert (np.abs(lost) > bound[128:, :128]).mean() > 0.9


def test_a_single_wrong_tile_of_a_large_matrix_is_found():
    # Sums of K = 4096 products of standard normals: variance K, and E|a b| = 2 / pi.
    rng, k = np.random.default_rng(3), 4096
    reference = rng.standard_normal((4096, 4096)) * math.sqrt(k)
    bound = error_bound(reference, np.full(reference.shape, k * 2 / math.pi), k, "fp16")
    c = reference.copy()
    c[1152:1280, 3072:3200] = 0.0
    # The usual whole-matrix check, 1 - 2 <x, y> / (<x, x> + <y, y>) < 0.001, lets it pass.
    assert 1 - 2 * np.vdot(c, reference) / (np.vdot(c, c) + np.vdot(reference, reference)) < 0.001
    assert (np.abs(c - reference) > bound).sum() > 128 * 128 / 2


def test_the_bound_by_hand():
    # K = 2: gamma = 2 u / (1 - 2 u) with u = 2^-23; fp16 stores with 2^-11, and 2^-25 near zero.
    gamma = 2.0**-22 / (1 - 2.0**-22)
    expected = gamma * 3 + 2.0**-11 * (1 + gamma * 3) + 2.0**-25
    assert error_bound(np.array([[1.0]]), np.array([[3.0]]), 2, "fp16") == pytest.approx(expected, rel=1e-14)


def test_refusals():
    one = np.ones((1, 1))
    with pytest.raises(BadInput, match="fp8"):
        error_bound(one, one, 1, "fp8")
    with pytest.raises(BadInput, match="k must stay below"):
        error_bound(one, one, 2**22, "fp32")


@pytest.mark.parametrize("dtype", STORED)
def test_storing_rounds_by_at_most_the_unit_roundoff_and_by_nearly_as_much(dtype):
    exact = 1.0 + np.random.default_rng(4).random(10_000)
    error = np.abs(exact.astype(STORED[dtype]).astype(np.float64) - exact) / exact
    assert 0.95 * OUTPUT_ROUNDOFF[dtype] < error.max() <= OUTPUT_ROUNDOFF[dtype]


@pytest.mark.parametrize("dtype", STORED)
def test_half_of_the_smallest_number_rounds_to_zero_and_a_little_more_does_not(dtype):
    half = OUTPUT_UNDERFLOW[dtype]
    assert STORED[dtype](half) == 0.0
    assert float(STORED[dtype](1.01 * half)) == 2 * half
