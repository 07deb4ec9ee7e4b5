import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.plain import BlockSparsePattern
from tests.naive import prune as naive
from tests.patterns.matrices import as_lists, assert_masks, groups, sparsities


@given(
    group=groups(min_rows=3, min_columns=3),
    sparsity=sparsities,
    height=st.integers(1, 3),
    width=st.integers(1, 3),
)
def test_same_as_sorting_all_rectangles(group, sparsity, height, width):
    masks = BlockSparsePattern(height=height, width=width).masks(group, sparsity)
    assert_masks(masks, group, naive.block_sparse(as_lists(group), sparsity, height, width))


def test_a_small_rectangle_at_the_edge_competes_on_equal_terms():
    importance = np.full((4, 5), 2.0)
    importance[:, 4] = 3.0
    mask = parse_pattern("block:4x4").prune({"w": importance}, 0.5)["w"]
    assert mask[:, 4].all()
    assert not mask[:, :4].any()


def test_map_has_one_tile_per_row_of_rectangles():
    mask = np.kron([[1, 0, 1], [0, 1, 0]], np.ones((2, 3))).astype(bool)
    tiles = parse_pattern("2x3").map(mask)
    assert tiles.pattern == "block:2x3"
    assert list(tiles.kept_per_tile) == [6, 3]
    np.testing.assert_array_equal(tiles.mask(), mask)


def test_map_refuses_part_of_a_rectangle():
    mask = np.ones((4, 7), dtype=bool)
    mask[2:, 5] = False
    with pytest.raises(BadInput, match="mask is not block:2x4: tile 1 keeps 2 of the 3 columns from 4"):
        parse_pattern("block:2x4").map(mask)
