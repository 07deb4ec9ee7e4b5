import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern, retained_importance
from prunecast.patterns.row_groups import assign_rows, cluster_rows, consecutive, signatures
from prunecast.patterns.shuffled_block import (
    _cycles,
    _highest_or_tied,
    _products,
    exchange_rows,
    group_rows,
    prune_in_groups,
    retained_by_groups,
)
from prunecast.patterns.tiling import RowTiles
from prunecast.patterns.vector_wise import VectorWisePattern
from tests.naive import prune as naive
from tests.patterns.matrices import importances, sparsities


@st.composite
def labels(draw, rows):
    """A group for each row; every group up to the highest has a row."""
    raw = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    return np.unique(raw, return_inverse=True)[1]


@given(matrix=importances(), sparsity=sparsities, data=st.data())
def test_given_groups_keep_their_highest_columns(matrix, sparsity, data):
    group_of_row = data.draw(labels(matrix.shape[0]))
    groups = [list(np.flatnonzero(group_of_row == group)) for group in range(group_of_row.max() + 1)]
    np.testing.assert_array_equal(
        prune_in_groups(matrix, sparsity, group_of_row), naive.in_groups(matrix.tolist(), sparsity, groups)
    )


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    levels=st.sampled_from([2, 5, 1000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_go_to_the_best_group_that_has_room(sizes, levels, seed):
    """With few levels many pairs of a row and a group are equally good."""
    shape = (sum(sizes), len(sizes))
    similarity = np.random.default_rng(seed).integers(0, levels, shape).astype(np.float32)
    lead = similarity - similarity.mean(axis=1, keepdims=True)
    assert assign_rows(similarity, np.array(sizes)).tolist() == naive.assigned(lead.tolist(), sizes)


@given(matrix=importances(), levels=st.lists(sparsities, min_size=2, max_size=4), data=st.data())
def test_masks_of_the_same_groups_are_nested(matrix, levels, data):
    group_of_row = data.draw(labels(matrix.shape[0]))
    masks = [prune_in_groups(matrix, level, group_of_row) for level in sorted(levels)]
    for lower, higher in itertools.pairwise(masks):
        assert not (higher & ~lower).any()


@settings(deadline=None)
@given(matrix=importances(min_rows=2, most=12), sparsity=sparsities, height=st.integers(1, 5))
def test_every_row_is_in_one_group_of_the_wanted_size(matrix, sparsity, height):
    wanted = sorted(np.bincount(consecutive(matrix.shape[0], height)))
    for groups in (
        cluster_rows(matrix, sparsity, height=height),
        group_rows(matrix, sparsity, height=height),
    ):
        assert sorted(np.bincount(groups)) == wanted


@settings(deadline=None)
@given(matrix=importances(min_rows=2, most=12), sparsity=sparsities, height=st.integers(1, 5))
def test_shuffling_never_retains_less_than_consecutive_rows(matrix, sparsity, height):
    shuffled = prune_in_groups(matrix, sparsity, group_rows(matrix, sparsity, height=height))
    plain = VectorWisePattern(height=height).masks({"w": matrix}, sparsity)["w"]
    assert retained_importance(matrix, shuffled) >= retained_importance(matrix, plain)


@settings(deadline=None)
@given(matrix=importances(min_rows=4), data=st.data())
def test_an_exchange_never_retains_less_and_keeps_the_sizes(matrix, data):
    before = data.draw(labels(matrix.shape[0]))
    count = data.draw(st.integers(0, matrix.shape[1]))
    after = exchange_rows(matrix, before, count)
    np.testing.assert_array_equal(np.bincount(after), np.bincount(before))
    kept = [
        retained_by_groups(RowTiles.of_groups(groups).sums(matrix), count).sum() for groups in (before, after)
    ]
    assert kept[1] >= kept[0]


@settings(deadline=None)
@given(matrix=importances(min_rows=6, min_columns=4, most=6))
def test_between_consecutive_rows_and_the_best_of_all_groupings(matrix):
    """All 15 pairings of six rows, and all 10 pairs of triples. How close it comes is measured below."""
    for height in (2, 3):
        mask = prune_in_groups(matrix, 0.5, group_rows(matrix, 0.5, height=height))
        reached = naive.retained(matrix.tolist(), mask.tolist())
        plain = naive.retained(matrix.tolist(), naive.vector_wise(matrix.tolist(), 0.5, height))
        assert plain <= reached <= naive.best_grouping(matrix.tolist(), 0.5, height)


def test_on_random_matrices_hardly_below_the_best_of_all_groupings():
    reached = []
    for seed in range(40):
        matrix = np.abs(np.random.default_rng(seed).standard_normal((6, 8)))
        mask = prune_in_groups(matrix, 0.75, group_rows(matrix, 0.75, height=2))
        reached.append(naive.retained(matrix, mask) / naive.best_grouping(matrix.tolist(), 0.75, 2))
    assert np.mean(reached) > 0.97
    assert max(reached) <= 1 + 1e-12


def test_planted_groups_are_found_again():
    """Eight kinds of rows with columns of their own, shuffled: groups of eight retain everything."""
    random = np.random.default_rng(0)
    kind = random.permutation(np.repeat(np.arange(8), 8))
    importance = np.where(kind[:, None] == np.arange(64) // 8, random.uniform(1, 2, (64, 64)), 0.0)
    mask = parse_pattern("shuffled-block:8").prune({"w": importance}, 0.875)["w"]
    np.testing.assert_array_equal(mask, importance > 0)


def test_equal_input_gives_equal_masks():
    matrix = np.abs(np.random.default_rng(0).standard_normal((64, 32)))
    first = group_rows(matrix, 0.75, height=8)
    np.testing.assert_array_equal(first, group_rows(matrix, 0.75, height=8))


@settings(deadline=None)
@given(matrix=importances(min_rows=3, most=12), sparsity=sparsities)
def test_the_map_finds_the_tiles_in_the_mask(matrix, sparsity):
    pattern = parse_pattern("shuffled-block:3")
    mask = pattern.prune({"w": matrix}, sparsity)["w"]
    tiles = pattern.map(mask)
    np.testing.assert_array_equal(tiles.mask(), mask)
    assert sorted(tiles.rows_per_tile) == sorted(np.bincount(consecutive(matrix.shape[0], 3)))
    assert list(tiles.row_index[tiles.row_start[:-1]]) == sorted(tiles.row_index[tiles.row_start[:-1]])


def test_a_map_of_rows_that_fill_no_tiles_is_refused():
    mask = np.zeros((4, 2), dtype=bool)
    mask[1:, 0] = mask[0, 1] = True
    message = "mask is not shuffled-block:2: .* rows keep the columns of row .*, which makes no tiles of 2"
    with pytest.raises(BadInput, match=message):
        parse_pattern("shuffled-block:2").map(mask)


def test_a_map_of_tiles_that_keep_different_numbers_is_refused():
    mask = np.zeros((4, 4), dtype=bool)
    mask[::2, 0] = mask[1::2, :2] = True
    with pytest.raises(BadInput, match="mask is not shuffled-block:2: tile 1 keeps 2 columns"):
        parse_pattern("shuffled-block:2").map(mask)


def test_a_map_with_rows_left_over_twice_is_refused():
    """Five rows in tiles of three leave two; two classes of two and one of one leave more."""
    mask = np.zeros((5, 5), dtype=bool)
    mask[[0, 1, 2, 3, 4], [0, 0, 1, 1, 2]] = True
    with pytest.raises(BadInput, match="makes no tiles of 3"):
        parse_pattern("shuffled-block:3").map(mask)


def test_rows_left_over_belong_to_one_class():
    """26 rows in tiles of twelve leave two, in one tile; classes of 2, 4 and 20 rows leave 2, 4 and 8."""
    mask = np.zeros((26, 3), dtype=bool)
    mask[:2, 2] = mask[2:6, 1] = mask[6:, 0] = True
    with pytest.raises(BadInput, match=r"rows keep the columns of row .*, which makes no tiles of 12"):
        parse_pattern("shuffled-block:12").map(mask)


def test_signatures_keep_what_is_above_the_quantile():
    matrix = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(signatures(matrix, 0.5), [[0, 0, 0, 0], [1, 1, 1, 1]])
    np.testing.assert_array_equal(signatures(matrix, -0.5), np.ones((2, 4)))


@pytest.mark.parametrize("k", [1, 63, 64, 65, 128, 200])
def test_a_row_is_worth_its_importance_in_the_columns_of_each_group(k):
    """Slabs of 64 columns, and the columns after the last whole slab."""
    rng = np.random.default_rng(k)
    taken, kept = rng.random((5, k)), rng.random((5, k)) < 0.4
    wanted = [[sum(row[columns]) for columns in kept] for row in taken]
    np.testing.assert_allclose(_products(taken, kept), wanted, rtol=1e-12)


def test_columns_tied_with_the_last_kept_one_are_kept():
    sums = np.array([[3.0, 1.0, 2.0, 2.0], [0.0, 5.0, 4.0, 1.0]])
    assert _highest_or_tied(sums, 2).tolist() == [[True, False, True, True], [False, True, True, False]]
    assert _highest_or_tied(sums, 4).all()
    assert not _highest_or_tied(sums, 0).any()


@given(st.permutations(range(7)))
def test_cycles_of_a_permutation_hold_every_place_that_moves(target):
    cycles = _cycles(np.array(target))
    for cycle in cycles:
        assert [target[place] for place in cycle] == [*cycle[1:], cycle[0]]
    moved = [place for place, to in enumerate(target) if place != to]
    assert sorted(place for cycle in cycles for place in cycle.tolist()) == moved
