import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern, retained_importance
from prunecast.patterns.tile_element import TileElementPattern
from tests.naive import prune as naive
from tests.patterns.matrices import as_lists, assert_masks, groups, pruned_elements


@given(
    group=groups(min_rows=4),
    percents=st.tuples(st.integers(0, 60), st.integers(1, 39)),
    height=st.integers(1, 4),
)
def test_same_as_bringing_the_best_of_the_lost_elements_back(group, percents, height):
    sparsity = percents[0] / 100
    masks = TileElementPattern(height=height, percent=percents[1]).masks(group, sparsity)
    assert_masks(masks, group, naive.tile_element(as_lists(group), sparsity, height, percents[1]))


@given(group=groups(min_rows=3), sparsity=st.integers(0, 94).map(lambda percent: percent / 100))
def test_the_sparsity_is_met_to_the_element(group, sparsity):
    masks = parse_pattern("tile-element:3").prune(group, sparsity, "global")
    assert pruned_elements(masks) == naive.target(sparsity, sum(mask.size for mask in masks.values()))


def test_it_retains_more_than_tiles_alone():
    importance = {"w": np.abs(np.random.default_rng(0).standard_normal((64, 64)))}
    kept = [
        retained_importance(importance["w"], parse_pattern(text).prune(importance, 0.75)["w"])
        for text in ("tile-wise:16", "tile-element:16", "unstructured")
    ]
    assert kept[0] < kept[1] < kept[2]


@pytest.mark.parametrize("sparsity", [0.95, 0.96])
def test_a_sparsity_that_leaves_no_tile_is_refused(sparsity):
    with pytest.raises(
        BadInput, match=rf"tile-element:2 brings 5 % back: wanted a sparsity below 0.95, got {sparsity}"
    ):
        parse_pattern("tile-element:2").prune({"w": np.ones((4, 4))}, sparsity)
