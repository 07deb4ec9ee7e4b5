import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.n_of_m import ROWS_CHECKED, SMALL_WINDOW, kept_in_tail, kept_in_windows, prune_n_of_m
from tests.naive import prune as naive
from tests.patterns.matrices import importances


@given(matrix=importances(most=12), m=st.integers(1, 6), data=st.data())
def test_same_as_sorting_each_group(matrix, m, data):
    n = data.draw(st.integers(1, m))
    np.testing.assert_array_equal(prune_n_of_m(matrix, n=n, m=m), naive.n_of_m(matrix.tolist(), n, m))


@given(seed=st.integers(0, 99), n=st.integers(1, 20))
def test_large_groups_are_ranked_alike(seed, n):
    m = SMALL_WINDOW + 4
    matrix = np.random.default_rng(seed).integers(0, 9, (70, 3 * m + 18)).astype(np.float64)
    np.testing.assert_array_equal(prune_n_of_m(matrix, n=n, m=m), naive.n_of_m(matrix.tolist(), n, m))


def test_of_equal_scores_the_lower_columns_are_kept():
    np.testing.assert_array_equal(
        prune_n_of_m(np.ones((1, 8), dtype=np.float32), n=2, m=4), [[True, True, False, False] * 2]
    )


@pytest.mark.parametrize(
    ("tail", "n", "m", "kept"), [(1, 2, 4, 1), (2, 2, 4, 1), (3, 2, 4, 2), (1, 1, 4, 0), (2, 1, 4, 1)]
)
def test_a_short_last_group_keeps_its_share_with_halves_rounded_up(tail, n, m, kept):
    assert kept_in_tail(tail, n=n, m=m) == kept
    assert prune_n_of_m(np.ones((1, m + tail)), n=n, m=m)[0, m:].sum() == kept


def test_sparsity_may_be_left_out_or_its_own():
    importance = {"w": np.arange(1.0, 9.0).reshape(1, 8)}
    pattern = parse_pattern("2:4")
    for sparsity in (None, 0.5):
        assert list(pattern.prune(importance, sparsity)["w"][0]) == [False, False, True, True] * 2


def test_another_sparsity_is_refused_with_the_nearest():
    with pytest.raises(
        BadInput, match=r"2:4 only has sparsity 0.5, got 0.7; the nearest N:4 is 1:4 with 0.75"
    ):
        parse_pattern("2:4").prune({"w": np.ones((4, 4))}, 0.7)


def test_map_refuses_a_group_that_keeps_too_much():
    mask = np.zeros((2, 8), dtype=bool)
    mask[1, 4:7] = True
    with pytest.raises(BadInput, match="mask is not 2:4: row 1 keeps 3 of the 4 columns from 4"):
        parse_pattern("2:4").map(mask)


def test_map_refuses_a_group_of_a_row_that_is_not_among_the_first_rows_checked():
    mask = np.zeros((ROWS_CHECKED + 3, 8), dtype=bool)
    mask[ROWS_CHECKED + 2, :3] = True
    message = f"mask is not 2:4: row {ROWS_CHECKED + 2} keeps 3 of the 4 columns from 0"
    with pytest.raises(BadInput, match=message):
        parse_pattern("2:4").map(mask)


def test_map_refuses_a_tail_that_keeps_more_than_its_share():
    mask = np.zeros((1, 6), dtype=bool)
    mask[0, 4:] = True
    with pytest.raises(BadInput, match="mask is not 2:4: row 0 keeps 2"):
        parse_pattern("2:4").map(mask)


def test_map_lists_the_kept_elements():
    mask = prune_n_of_m(np.arange(24.0).reshape(2, 12), n=2, m=4)
    elements = parse_pattern("2:4").map(mask)
    assert list(elements.kept_per_row) == [6, 6]
    assert list(elements.column_index[:6]) == [2, 3, 6, 7, 10, 11]


@given(rows=st.integers(1, 5), columns=st.integers(1, 40), width=st.sampled_from((1, 3, 4, 8, 16)))
def test_kept_elements_of_windows_are_their_sums(rows, columns, width):
    mask = np.random.default_rng(rows * columns).random((rows, 2 * columns)) < 0.5
    for own in (mask, mask[:, ::2]):
        starts = range(0, own.shape[1], width)
        wanted = [[int(row[start : start + width].sum()) for start in starts] for row in own]
        assert kept_in_windows(own, width).tolist() == wanted
