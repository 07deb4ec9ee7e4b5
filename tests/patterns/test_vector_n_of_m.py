import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.vector_n_of_m import VectorNOfMPattern
from tests.naive import prune as naive
from tests.patterns.matrices import importances


@given(matrix=importances(most=18), height=st.integers(1, 4), m=st.integers(4, 10))
def test_same_as_sorting_columns_and_then_elements(matrix, height, m):
    np.testing.assert_array_equal(
        VectorNOfMPattern(height=height, n=2, m=m).masks({"w": matrix}, 0.5)["w"],
        naive.vector_n_of_m(matrix.tolist(), height, m),
    )


@given(matrix=importances(min_rows=2, min_columns=8, most=17))
def test_rows_keep_two_and_groups_four_of_every_window(matrix):
    mask = parse_pattern("vnm:2:2:8").prune({"w": matrix})["w"]
    whole = mask[:, : mask.shape[1] // 8 * 8]
    windows = whole.reshape(mask.shape[0], -1, 8)
    assert (windows.sum(axis=2) == 2).all()
    for first in range(0, mask.shape[0], 2):
        assert (windows[first : first + 2].any(axis=0).sum(axis=1) <= 4).all()
    tiles = parse_pattern("vnm:2:2:8").map(mask).tiles
    tail = mask.shape[1] % 8
    assert set(tiles.kept_per_tile) == {whole.shape[1] // 2 + naive.n_of_m([[0] * tail], 4, 8)[0].count(True)}


def test_windows_of_four_are_plain_2_of_4():
    importance = {"w": np.abs(np.random.default_rng(0).standard_normal((8, 16)))}
    np.testing.assert_array_equal(
        parse_pattern("vnm:4:2:4").prune(importance)["w"], parse_pattern("2:4").prune(importance)["w"]
    )


def test_another_sparsity_is_refused_with_the_nearest():
    pattern = parse_pattern("vnm:4:2:8")
    assert pattern.sparsity_to_prune(None) == pattern.sparsity_to_prune(0.75) == 0.75
    with pytest.raises(
        BadInput, match=r"only has sparsity 0.75, got 0.9; the nearest is vnm:4:2:20 with 0.9"
    ):
        pattern.prune({"w": np.ones((4, 8))}, 0.9)
    with pytest.raises(BadInput, match=r"the nearest is vnm:4:2:4 with 0.5"):
        pattern.prune({"w": np.ones((4, 8))}, 0.1)


def test_map_refuses_a_group_with_too_many_columns_and_a_row_with_too_many_elements():
    columns = np.zeros((4, 16), dtype=bool)
    columns[2, [8, 9]] = columns[3, [10, 11]] = True
    columns[2, 12] = True
    with pytest.raises(BadInput, match="mask is not vnm:2:2:8: tile 1 keeps 5 of the columns from 8"):
        parse_pattern("vnm:2:2:8").map(columns)
    row = np.zeros((4, 16), dtype=bool)
    row[3, [8, 9, 12]] = True
    with pytest.raises(BadInput, match="row 3 keeps 3 of the four columns of its tile from 8"):
        parse_pattern("vnm:2:2:8").map(row)
