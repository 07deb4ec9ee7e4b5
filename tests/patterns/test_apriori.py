import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prunecast.patterns import parse_pattern
from prunecast.patterns.tile_wise import AprioriPattern, TileWisePattern
from tests.naive import prune as naive
from tests.patterns.matrices import as_lists, assert_masks, groups, sparsities


@given(group=groups(min_rows=4), sparsity=sparsities, height=st.integers(1, 4), percent=st.integers(0, 50))
def test_same_as_sorting_all_segments(group, sparsity, height, percent):
    masks = AprioriPattern(height=height, percent=percent).masks(group, sparsity)
    assert_masks(masks, group, naive.apriori(as_lists(group), sparsity, height, percent))


@given(group=groups(min_rows=4), sparsity=sparsities, height=st.integers(1, 4))
def test_deciding_nothing_is_tile_wise(group, sparsity, height):
    masks = AprioriPattern(height=height, percent=0).masks(group, sparsity)
    wanted = TileWisePattern(height=height).masks(group, sparsity)
    for name in group:
        np.testing.assert_array_equal(masks[name], wanted[name])


def test_a_segment_that_unstructured_pruning_keeps_whole_outlives_one_with_a_single_large_weight():
    """At 37.5 %: column 0 has one large weight, columns 1 and 2 keep all of theirs, column 3 none."""
    importance = np.array([[9.0, 2.0, 2.0, 1.0], [0.0, 2.0, 2.0, 1.0]])
    kept = {}
    for text in ("tile-wise:2", "apriori:2x50"):
        mask = parse_pattern(text).prune({"w": importance}, 0.375)["w"]
        kept[text] = np.flatnonzero(mask[0]).tolist()
    assert kept == {"tile-wise:2": [0, 1], "apriori:2x50": [1, 2]}
