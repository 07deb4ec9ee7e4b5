import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunecast.errors import BadInput
from prunecast.patterns import NestedMap, element_map_from_mask, imbalance, parse_pattern, row_tile_map
from prunecast.patterns.row_tiles import RowTilePattern
from prunecast.patterns.tile_two_of_four import TileTwoOfFourPattern, padded_columns
from tests.naive import prune as naive
from tests.patterns.matrices import as_lists, assert_masks, groups

from_half = st.integers(50, 99).map(lambda percent: percent / 100)
TEXTS = ["tvw:1", "tvw:3", "vnm:1:2:4", "vnm:2:2:5", "vnm:3:2:8"]


@given(group=groups(min_rows=4, most=12), sparsity=from_half, height=st.integers(1, 4))
def test_same_as_tile_wise_and_then_the_best_two_of_four_survivors(group, sparsity, height):
    pattern = TileTwoOfFourPattern(height=height)
    # Not `masks` of the pattern itself, which keeps weights that already have it
    masks = RowTilePattern.masks(pattern, group, sparsity)
    assert_masks(masks, group, naive.tile_two_of_four(as_lists(group), sparsity, height))


@given(
    group=groups(min_rows=4, min_columns=4, most=12),
    sparsity=from_half,
    height=st.integers(1, 4),
    even=st.booleans(),
)
def test_the_importance_that_is_retained_is_the_sum_over_the_mask(group, sparsity, height, even):
    pattern = TileTwoOfFourPattern(height=height, even=even)
    for name, scores in group.items():
        mask = pattern.prune({name: scores}, sparsity)[name]
        # Weights that are already pruned keep their mask; without any there is nothing to rank
        for weights in filter(np.any, (scores, scores * mask)):
            kept = pattern.prune({name: weights}, sparsity)[name]
            whole = float(weights.sum(where=kept, dtype=np.float64))
            assert pattern.retained(weights, sparsity) == pytest.approx(whole, rel=1e-12, abs=0.0)


@given(group=groups(min_rows=3, min_columns=8, most=12), sparsity=from_half, text=st.sampled_from(TEXTS))
def test_map_and_mask_say_the_same(group, sparsity, text):
    pattern = parse_pattern(text)
    for mask in pattern.prune(group, sparsity if text.startswith("tvw") else None).values():
        described = pattern.map(mask)
        assert isinstance(described, NestedMap)
        assert described.pattern == text
        assert described.density == np.count_nonzero(mask) / mask.size
        np.testing.assert_array_equal(described.mask(), mask)
        assert not (mask & ~described.tiles.mask()).any()


@given(rows=hnp.arrays(np.bool_, st.tuples(st.integers(1, 3), st.integers(1, 9))))
def test_the_fewest_columns_are_added_and_only_where_none_fit_without(rows):
    listed = np.flatnonzero(padded_columns(rows))
    assert set(np.flatnonzero(rows.any(axis=0))) <= set(listed)
    fewest = naive.fewest_columns(rows.tolist())
    if fewest is None:
        assert list(listed) == list(np.flatnonzero(rows.any(axis=0)))
    else:
        assert naive.two_of_four_fits(rows.tolist(), list(listed))
        assert listed.size == fewest


def test_a_survivor_that_no_row_keeps_is_listed_again():
    """Columns 0 and 2 of the first four, 4 and 5 of the next: 1 and 3 must fill the first group again."""
    mask = np.array([[True, False, True, False, True, True, False, False]])
    tiles = parse_pattern("tvw:1").map(mask).tiles
    assert naive.two_of_four_fits(mask.tolist(), list(tiles.column_index))
    assert list(tiles.column_index) == [0, 1, 2, 3, 4, 5]


def test_density_is_that_of_the_sparsity_where_tiles_keep_whole_groups():
    importance = {"w": np.abs(np.random.default_rng(0).standard_normal((64, 128)))}
    mask = parse_pattern("tvw:64").prune(importance, 0.75)["w"]
    assert np.count_nonzero(mask) == mask.size // 4
    assert set(mask.sum(axis=1)) == {32}


def test_half_is_plain_2_of_4():
    importance = {"w": np.abs(np.random.default_rng(0).standard_normal((8, 16)))}
    np.testing.assert_array_equal(
        parse_pattern("tvw:4").prune(importance, 0.5)["w"], parse_pattern("2:4").prune(importance)["w"]
    )


def test_below_half_is_refused():
    importance = {"w": np.arange(1.0, 9.0).reshape(1, 8)}
    with pytest.raises(BadInput, match=r"tvw:1 keeps 2 of 4 at most: wanted a sparsity from 0.5, got 0.4"):
        parse_pattern("tvw:1").prune(importance, 0.4)


def test_map_refuses_rows_that_no_list_of_columns_allows():
    mask = np.zeros((2, 4), dtype=bool)
    mask[1, :3] = True
    with pytest.raises(
        BadInput, match="mask is not tvw:2: row 1 keeps 3 of the four columns of its tile from 0"
    ):
        parse_pattern("tvw:2").map(mask)


def test_the_heaviest_tile_decides_the_balance():
    mask = np.zeros((2, 8), dtype=bool)
    mask[0, [0, 1]] = mask[1, [0, 1, 4, 5]] = True
    described = parse_pattern("vnm:1:2:4").map(mask)
    assert imbalance(described) == imbalance(described.tiles) == 1.0
    assert list(described.tiles.kept_per_tile) == [8, 8]


def test_maps_of_different_matrices_do_not_nest():
    one, other = (element_map_from_mask(np.ones((2, k), dtype=bool), "tvw:2") for k in (4, 8))
    with pytest.raises(ValueError, match="k of tiles and elements differ"):
        NestedMap(tiles=row_tile_map(one), inner=other)
    same = NestedMap(tiles=row_tile_map(one), inner=one)
    assert len(same.fingerprint()) == 16
