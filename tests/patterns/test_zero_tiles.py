"""`zero-tiles`: a pruned matrix as tile kernels see it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern


@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 9)),
    height=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None)
def test_a_column_of_a_tile_is_kept_if_any_row_has_it(shape, height, seed):
    rows, columns = shape
    height = min(height, rows)
    stated = np.random.default_rng(seed).random(shape) < 0.2
    pattern = parse_pattern(f"zero-tiles:{height}")
    mask = pattern.prune({"w": stated.astype(float)})["w"]
    for i in range(rows):
        tile = stated[i // height * height : (i // height + 1) * height]
        for j in range(columns):
            assert mask[i, j] == any(tile[:, j])
    np.testing.assert_array_equal(pattern.map(mask).mask(), mask)


def test_weights_pruned_in_such_tiles_are_seen_as_they_are():
    scores = np.random.default_rng(0).random((64, 40))
    mask = parse_pattern("tile-wise:16").prune({"w": scores}, 0.6)["w"]
    np.testing.assert_array_equal(parse_pattern("zero-tiles:16").prune({"w": scores * mask})["w"], mask)


def test_sparsity_is_no_choice_and_a_tile_must_fit():
    with pytest.raises(BadInput, match="takes its sparsity from the file"):
        parse_pattern("zero-tiles:2").prune({"w": np.ones((4, 4))}, 0.5)
    with pytest.raises(BadInput, match="needs a matrix of 8x1 or more"):
        parse_pattern("zero-tiles:8").prune({"w": np.ones((4, 4))})
