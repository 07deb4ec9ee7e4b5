import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prunecast.patterns.tile_wise import TileWisePattern
from tests.naive import prune as naive
from tests.patterns.matrices import as_lists, assert_masks, groups, sparsities


@given(group=groups(min_rows=4), sparsity=sparsities, height=st.integers(1, 4))
def test_same_as_sorting_all_segments(group, sparsity, height):
    masks = TileWisePattern(height=height).masks(group, sparsity)
    assert_masks(masks, group, naive.tile_wise(as_lists(group), sparsity, height))


def test_a_short_last_tile_has_no_advantage():
    """Five rows in tiles of four, all equal but for slightly lower ones in the last: they should go first."""
    importance = np.full((5, 4), 10.0)
    importance[4] = 9.0
    sane = TileWisePattern(height=4).masks({"w": importance}, 0.2)["w"]
    assert not sane[4].any()
    assert sane[:4].all()


def test_the_cut_counts_elements_not_segments():
    """Ten segments of three rows and of one: 40 % of 20 elements are two of each, not three tall ones."""
    importance = np.ones((4, 5))
    importance[:3, 3:] = 0.5
    importance[3, 3:] = 0.25
    mask = TileWisePattern(height=3).masks({"w": importance}, 0.4)["w"]
    np.testing.assert_array_equal(mask, [[True, True, True, False, False]] * 4)
