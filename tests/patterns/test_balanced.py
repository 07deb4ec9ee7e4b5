import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.n_of_m import prune_balanced
from tests.naive import prune as naive
from tests.patterns.matrices import importances, sparsities


@given(matrix=importances(most=12), sparsity=sparsities, width=st.integers(1, 6))
def test_same_as_sorting_each_segment(matrix, sparsity, width):
    np.testing.assert_array_equal(
        prune_balanced(matrix, sparsity, width=width), naive.balanced(matrix.tolist(), sparsity, width)
    )


@given(seed=st.integers(0, 99), sparsity=sparsities)
def test_wide_segments_are_ranked_alike(seed, sparsity):
    matrix = np.random.default_rng(seed).integers(0, 9, (70, 25 * 3 + 18)).astype(np.float64)
    np.testing.assert_array_equal(
        prune_balanced(matrix, sparsity, width=25), naive.balanced(matrix.tolist(), sparsity, 25)
    )


@given(matrix=importances(min_columns=4, most=12), sparsity=st.integers(0, 75).map(lambda p: p / 100))
def test_every_whole_segment_keeps_equally_many_and_the_map_says_so(matrix, sparsity):
    pattern = parse_pattern("balanced:4")
    mask = pattern.prune({"w": matrix}, sparsity)["w"]
    whole = mask[:, : mask.shape[1] // 4 * 4].reshape(-1, 4).sum(axis=1)
    assert set(whole) == {4 - naive.target(sparsity, 4)}
    described = pattern.map(mask)
    assert isinstance(described, ElementMap)
    np.testing.assert_array_equal(described.mask(), mask)


@given(matrix=importances(most=12), levels=st.lists(sparsities, min_size=2, max_size=4))
def test_a_higher_sparsity_only_takes_away(matrix, levels):
    masks = [prune_balanced(matrix, level, width=5) for level in sorted(levels)]
    for lower, higher in itertools.pairwise(masks):
        assert not (higher & ~lower).any()


def test_a_short_last_segment_prunes_as_few_as_reach_the_sparsity():
    """Segments of 4 and a last one of 2 at 75 %: 3 of 4 go, and 2 of 2, for 1 would be 50 %."""
    assert list(prune_balanced(np.ones((1, 6)), 0.75, width=4)[0]) == [True] + [False] * 5
    assert list(prune_balanced(np.ones((1, 6)), 0.5, width=4)[0]) == [True, True, False, False, True, False]


def test_a_sparsity_that_empties_segments_is_refused_with_the_highest():
    with pytest.raises(BadInput, match=r"balanced:4 keeps at least 1 of 4: wanted .* up to 0.75, got 0.8"):
        parse_pattern("balanced:4").prune({"w": np.ones((4, 8))}, 0.8)


def test_a_matrix_narrower_than_a_segment_is_refused():
    with pytest.raises(BadInput, match="balanced:64 needs a matrix of 1x64 or more, got 8x32 in 'w'"):
        parse_pattern("balanced:64").prune({"w": np.ones((8, 32))}, 0.5)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (6, "row 1 keeps 3 of the columns from 4, row 0 keeps 2 of a segment"),
        (8, "row 1 keeps 0 of the columns from 8, row 0 keeps 1 of a segment"),
    ],
)
def test_map_refuses_segments_that_differ(column, message):
    mask = np.array([[True, True, False, False, True, True, False, False, True]] * 2)
    mask[1, column] ^= True
    with pytest.raises(BadInput, match=message):
        parse_pattern("balanced:4").map(mask)
