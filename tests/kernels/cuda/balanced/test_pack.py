"""The packed bytes of the balanced kernels mean A."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels.balanced.cuda.operator import BalancedOperator, matrix_arrays, rounded, vector_arrays
from prunecast.kernels.balanced.layout import balanced_layout, vector_layout
from prunecast.patterns import ElementMap, element_map_from_mask
from prunecast.patterns.n_of_m import prune_balanced
from tests.kernels.cuda.balanced.balanced_emulator import run_matrix, run_vector

H200 = load_gpu("h200-sxm")


def balanced(m: int, k: int, sparsity: float, width: int = 64) -> ElementMap:
    scores = np.random.default_rng(m + k).random((m, k))
    return element_map_from_mask(prune_balanced(scores, sparsity, width=width), f"balanced:{width}")


def ragged(m: int, k: int) -> ElementMap:
    """Rows of every density, among them an empty and a full one."""
    mask = np.random.default_rng(0).random((m, k)) < np.linspace(-0.1, 1.1, m)[:, None]
    return element_map_from_mask(mask, "unstructured")


def operands(elements: ElementMap, n: int, dtype: str):
    rng = np.random.default_rng(1)
    a = rounded(rng.standard_normal((elements.m, elements.k)).astype(np.float32), dtype)
    b = rng.standard_normal((elements.k, n))
    return a, b, (a * elements.mask()).astype(np.float64) @ b


CASES = [
    (balanced(96, 256, 0.75), "fp32"),
    (balanced(70, 300, 0.9), "fp32"),
    (balanced(33, 130, 0.5, width=32), "fp16"),
    (ragged(50, 200), "fp32"),
]


@pytest.mark.parametrize("rest", [0, 2, 6])
@pytest.mark.parametrize("window", [16, 32, 64])
@pytest.mark.parametrize(("elements", "dtype"), CASES)
def test_records_mean_a(elements, dtype, window, rest):
    a, b, wanted = operands(elements, 8, dtype)
    layout = balanced_layout(elements, window, rest)
    packed = matrix_arrays(elements, layout, a, dtype)
    c = run_matrix(packed, layout, elements.m, b, 64 * (4 if dtype == "fp32" else 2))
    np.testing.assert_allclose(c, wanted, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("elements", "dtype"), CASES)
def test_chunks_mean_a(elements, dtype):
    a, b, wanted = operands(elements, 1, dtype)
    layout = vector_layout(elements)
    packed = vector_arrays(elements, layout, 3, a, "fp32")
    np.testing.assert_allclose(run_vector(packed, layout, elements.m, b), wanted, rtol=1e-6, atol=1e-5)


def test_elements_that_are_not_kept_are_not_read():
    elements = balanced(32, 128, 0.75)
    a = np.where(elements.mask(), 1.0, np.nan).astype(np.float32)
    layout = balanced_layout(elements, 64, 4)
    packed = matrix_arrays(elements, layout, a, "fp32")
    c = run_matrix(packed, layout, 32, np.ones((128, 1)), 256)
    assert (c == 32).all()


def test_the_rest_never_exceeds_what_the_layout_says():
    elements = balanced(64, 512, 0.75)
    for rest in (0, 4, 16):
        layout = balanced_layout(elements, 64, rest)
        assert layout.dense.max() <= 64
        assert (layout.dense.max() == 0) == (rest == 16)  # 16 of 64 are kept


def test_balanced_segments_give_every_lane_equal_chunks():
    """12.5 % of 94 segments of 32: 3 rounds of 32 lanes of 4 elements, no padding but two segments."""
    layout = vector_layout(balanced(32, 3000, 0.875, width=32))
    assert (layout.segment, layout.chunks, layout.places) == (32, 3, 96)


def test_the_form_is_read_back_from_the_plan():
    elements = balanced(512, 512, 0.75)
    plan = fastest_plan("balanced", elements, 256, "fp32", H200)
    form = BalancedOperator.compile_inputs(plan)
    assert form.defines["SPLITS"] * form.defines["WINDOW"] == plan.shape.block_k
    assert form.defines["SPLITS"] * plan.shape.block_m == 256
    vector = BalancedOperator.compile_inputs(fastest_plan("balanced", elements, 1, "fp32", H200))
    assert (form.entry, vector.entry) == ("balanced_matrix", "balanced_vector")


def test_weights_are_rounded_to_the_dtype():
    x = np.array([[1 + 2**-9, 1 + 2**-12]], np.float32)
    assert rounded(x, "bf16").tolist() == [[1.0, 1.0]]
    assert rounded(x, "fp16").tolist() == [[1 + 2**-9, 1.0]]
    assert rounded(x, "fp32").tolist() == x.tolist()
