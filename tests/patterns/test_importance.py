import ml_dtypes
import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns.importance import (
    CRITERIA,
    checked_importance,
    half_magnitude,
    magnitude,
    squared,
    weigh,
)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_magnitude_is_exact_and_float32(dtype):
    weights = np.array([[-1.5, 0.25], [0.0, -3.0]]).astype(dtype)
    scores = magnitude(weights)
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(scores, [[1.5, 0.25], [0.0, 3.0]])


def test_half_of_a_magnitude_is_exact_and_not_copied_without_need():
    weights = np.array([[-1.5, 0.25], [-0.0, -3.0]], np.float16)
    half = half_magnitude(weights)
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, magnitude(weights))
    assert not np.signbit(half).any()
    assert half_magnitude(half) is half


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.nan, "wanted finite values, got 1 NaN or Inf"),
        (np.inf, "wanted finite values, got 1 NaN or Inf"),
        (-2.0, r"wanted values in \[0, 1e\+150\], got -2 to 1"),
    ],
)
def test_float16_is_checked_as_it_is(bad, message):
    good = np.array([[1.0, 65504.0, 6e-8]], np.float16)
    assert checked_importance("fc1", good, keep_half=True) is good
    with pytest.raises(BadInput, match=f"importance of 'fc1': {message}"):
        checked_importance("fc1", np.array([[1.0, bad]], np.float16), keep_half=True)


def test_squares_of_the_smallest_and_largest_fp32_stay_apart_from_zero_and_infinity():
    scores = squared(np.array([[1e-45, 3e38]], dtype=np.float32))
    assert 0 < scores[0, 0] < scores[0, 1] < np.inf


def test_criteria_are_named():
    assert set(CRITERIA) == {"magnitude", "squared"}
    np.testing.assert_array_equal(weigh("w", np.array([[-2.0, 3.0]]), "squared"), [[4.0, 9.0]])


def test_given_importance_is_taken_as_it_is():
    given = [[1, 2], [3, 4]]
    np.testing.assert_array_equal(weigh("w", np.zeros((2, 2)), given), given)


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        ("magnitud", "unknown criterion 'magnitud'; did you mean magnitude?"),
        (np.ones((2, 3)), r"importance of 'fc1': wanted shape \(2, 2\), got \(2, 3\)"),
        ([[1.0, -2.0], [0, 0]], r"importance of 'fc1': wanted values in \[0, 1e\+150\], got -2 to 1"),
        ([[1.0, 1e200], [0, 0]], r"importance of 'fc1': wanted values in \[0, 1e\+150\], got 0 to 1e\+200"),
        ([[1.0, np.nan], [np.inf, 0]], "importance of 'fc1': wanted finite values, got 2 NaN or Inf"),
        ([["a", "b"], ["c", "d"]], "importance of 'fc1': wanted real numbers, got dtype <U1"),
    ],
)
def test_refusals_name_the_tensor(criterion, message):
    with pytest.raises(BadInput, match=message):
        weigh("fc1", np.ones((2, 2)), criterion)


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), (0, 4)])
def test_only_matrices_have_importance(shape):
    with pytest.raises(BadInput, match=r"importance of 'b': wanted a matrix \(M, K\), got shape"):
        checked_importance("b", np.ones(shape))


@pytest.mark.parametrize(
    ("dtype", "wanted"), [(np.float16, "f4"), (np.int32, "f8"), (np.bool_, "f4"), ("f8", "f8")]
)
def test_other_types_become_floats_that_hold_them(dtype, wanted):
    assert checked_importance("w", np.ones((2, 2), dtype=dtype)).dtype == np.dtype(wanted)
