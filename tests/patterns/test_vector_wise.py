import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.vector_wise import VectorWisePattern
from tests.naive import prune as naive
from tests.patterns.matrices import importances, sparsities


@given(matrix=importances(min_rows=4), sparsity=sparsities, height=st.integers(1, 4))
def test_same_as_sorting_the_columns_of_each_group(matrix, sparsity, height):
    np.testing.assert_array_equal(
        VectorWisePattern(height=height).masks({"w": matrix}, sparsity)["w"],
        naive.vector_wise(matrix.tolist(), sparsity, height),
    )


@given(matrix=importances(min_rows=3), levels=st.lists(sparsities, min_size=2, max_size=4))
def test_a_higher_sparsity_only_takes_away(matrix, levels):
    masks = [VectorWisePattern(height=3).masks({"w": matrix}, level)["w"] for level in sorted(levels)]
    for lower, higher in itertools.pairwise(masks):
        assert not (higher & ~lower).any()


@given(matrix=importances(min_rows=3), sparsity=sparsities)
def test_every_group_keeps_equally_many(matrix, sparsity):
    pattern = parse_pattern("vector-wise:3")
    tiles = pattern.map(pattern.prune({"w": matrix}, sparsity)["w"])
    k = matrix.shape[1]
    assert set(tiles.kept_per_tile) == {k - naive.target(sparsity, k)}


def test_map_refuses_groups_that_differ():
    mask = np.zeros((4, 4), dtype=bool)
    mask[:2, 0] = mask[2:, :2] = True
    with pytest.raises(BadInput, match="mask is not vector-wise:2: tile 1 keeps 2 columns, tile 0 keeps 1"):
        parse_pattern("vector-wise:2").map(mask)
