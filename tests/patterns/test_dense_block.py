import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern, retained_importance
from prunecast.patterns.dense_block import FEWEST_ROWS, grow_blocks, prune_dense_block
from prunecast.patterns.dense_block_pattern import cheaper_parts, prune_guided_block
from prunecast.patterns.element_map import retained_sum
from prunecast.patterns.plain import prune_unstructured
from tests.naive import prune as naive
from tests.patterns.matrices import importances, sparsities

masks = hnp.arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 8)))


def rows_of(blocks):
    return [rows.tolist() for rows in blocks.tiles.members]


@given(mask=masks, clusters=st.integers(1, 4), fewest_rows=st.integers(1, 3))
def test_blocks_grow_as_by_hand(mask, clusters, fewest_rows):
    blocks = grow_blocks(mask, clusters=clusters, fewest_rows=fewest_rows)
    for rows, columns in zip(rows_of(blocks), blocks.columns, strict=True):
        assert set(np.flatnonzero(columns)) == naive.grown_columns(mask.tolist(), rows)


@given(mask=masks, clusters=st.integers(1, 4), fewest_rows=st.integers(1, 3))
def test_blocks_hold_all_rows_that_keep_anything_and_are_tall_enough(mask, clusters, fewest_rows):
    blocks = grow_blocks(mask, clusters=clusters, fewest_rows=fewest_rows)
    heights = [len(rows) for rows in rows_of(blocks)]
    keeping = mask.any(axis=1)
    if keeping.sum() >= fewest_rows:
        np.testing.assert_array_equal(np.sort(blocks.tiles.rows), np.flatnonzero(keeping))
        assert len(heights) <= clusters
        assert min(heights) >= fewest_rows
        assert max(heights) - min(heights) <= 1
    else:
        assert not heights


@given(matrix=importances(min_rows=2, most=12), sparsity=sparsities, clusters=st.integers(1, 4))
def test_same_as_sorting_the_columns_of_all_blocks(matrix, sparsity, clusters):
    blocks = grow_blocks(prune_unstructured({"w": matrix}, sparsity)["w"], clusters=clusters, fewest_rows=2)
    mask = prune_dense_block(matrix, sparsity, clusters=clusters, fewest_rows=2)
    grown = [set(np.flatnonzero(columns)) for columns in blocks.columns]
    np.testing.assert_array_equal(mask, naive.dense_blocks(matrix.tolist(), sparsity, rows_of(blocks), grown))


@given(matrix=importances(min_rows=2, most=12), sparsity=sparsities)
def test_the_sparsity_is_reached(matrix, sparsity):
    mask = prune_dense_block(matrix, sparsity, clusters=2, fewest_rows=2)
    assert mask.size - np.count_nonzero(mask) >= naive.target(sparsity, mask.size)


@settings(deadline=None)
@given(seed=st.integers(0, 99), sparsity=st.integers(0, 95).map(lambda percent: percent / 100))
def test_map_and_mask_say_the_same(seed, sparsity):
    matrix = np.random.default_rng(seed).integers(0, 6, (3 * FEWEST_ROWS, 20)).astype(np.float64)
    pattern = parse_pattern("dense-block:3")
    mask = pattern.prune({"w": matrix}, sparsity)["w"]
    tiles = pattern.map(mask)
    np.testing.assert_array_equal(tiles.mask(), mask)
    assert tiles.tile_count <= 3


def test_planted_blocks_are_found_again():
    """Four kinds of rows, each with columns of its own, in any order: four blocks retain everything."""
    random = np.random.default_rng(0)
    kind = random.permutation(np.repeat(np.arange(4), 20))
    importance = np.where(kind[:, None] == np.arange(80) // 20, random.uniform(1, 2, (80, 80)), 0.0)
    mask = parse_pattern("dense-block:4").prune({"w": importance}, 0.75)["w"]
    np.testing.assert_array_equal(mask, importance > 0)
    np.testing.assert_array_equal(parse_pattern("dense-block:4").map(mask).rows_per_tile, [20] * 4)


def test_the_cost_decides_how_much_is_left_over():
    matrix = np.abs(np.random.default_rng(0).standard_normal((80, 60)))
    dear_rest = cheaper_parts(matrix, 0.75, lambda parts: 1.0 + 100 * parts.rest.density, counts=(4,))
    np.testing.assert_array_equal(dear_rest.tiles.mask(), prune_dense_block(matrix, 0.75, clusters=4))
    assert dear_rest.rest.density == 0
    free_rest = cheaper_parts(matrix, 0.75, lambda parts: 1.0, counts=(4,))
    np.testing.assert_array_equal(free_rest.rest.mask(), prune_unstructured({"w": matrix}, 0.75)["w"])
    assert free_rest.tiles.density == 0


@given(matrix=importances(min_rows=2, most=12), sparsity=sparsities, price=st.integers(0, 9))
def test_parts_do_not_overlap_and_have_the_sparsity(matrix, sparsity, price):
    calls = []

    def cost(parts):
        calls.append(parts)
        return 1.0 + price * parts.rest.density

    best = cheaper_parts(matrix, sparsity, cost, counts=(2,), fewest_rows=2)
    worth = []
    for parts in calls:
        tiled, rest = parts.tiles.mask(), parts.rest.mask()
        assert not (tiled & rest).any()
        assert (~(tiled | rest)).sum() >= naive.target(sparsity, matrix.size)
        worth.append(retained_importance(matrix, tiled | rest) / (1.0 + price * parts.rest.density))
    assert best is calls[int(np.argmax(worth))]


@given(
    matrix=importances(min_rows=4, most=12),
    sparsity=sparsities,
    of_rows=st.integers(0, 9),
    most=st.integers(1, 5),
)
def test_guided_blocks_are_no_slower_and_retain_no_less_than_without_guidance(
    matrix, sparsity, of_rows, most
):
    def seconds(tiles):
        return 1.0 + np.count_nonzero(tiles.mask()) + of_rows * tiles.tile_count

    guided = prune_guided_block(matrix, sparsity, seconds, most_clusters=most, fewest_rows=2)
    plain = prune_dense_block(matrix, sparsity, clusters=most, fewest_rows=2)
    assert retained_sum(matrix, guided) >= retained_sum(matrix, plain) * (1 - 1e-9)
    pattern = parse_pattern(f"dense-block:{most}")
    assert seconds(pattern.map(guided)) <= seconds(pattern.map(plain))


def test_guided_blocks_reach_the_importance_in_whole_steps():
    """A loop over 16 columns at a time makes 18 of 20 columns as slow as 32, which retain more."""
    matrix = np.abs(np.random.default_rng(0).standard_normal((40, 40)))

    def seconds(tiles):
        return float(sum(-(-width // 16) for width in tiles.kept_per_tile))

    mask = prune_guided_block(matrix, 0.5, seconds, most_clusters=1)
    plain = prune_dense_block(matrix, 0.5, clusters=1)
    assert np.count_nonzero(plain.any(axis=0)) == 20
    assert retained_sum(matrix, mask) >= retained_sum(matrix, plain)
    assert -(-np.count_nonzero(mask.any(axis=0)) // 16) == 2


def test_guided_blocks_take_the_planted_number():
    """Four kinds of rows: four clusters retain what eight do, in half the launched tiles."""
    random = np.random.default_rng(0)
    kind = random.permutation(np.repeat(np.arange(4), 40))
    importance = np.where(kind[:, None] == np.arange(80) // 20, 10.0, 1.0) * random.uniform(1, 2, (160, 80))
    mask = prune_guided_block(importance, 0.74, lambda tiles: 1.0 + tiles.tile_count)
    tiles = parse_pattern("dense-block:8").map(mask)
    plain = prune_dense_block(importance, 0.74, clusters=8)
    assert retained_sum(importance, mask) >= retained_sum(importance, plain)
    assert tiles.tile_count <= 4


def test_a_second_prediction_can_refuse_what_the_first_one_prefers():
    """The first prediction prefers few tiles; the second one finds them slow: blocks stay as they are."""
    importance = np.random.default_rng(0).uniform(1, 2, (160, 80))
    plain = prune_dense_block(importance, 0.5, clusters=8)
    few = prune_guided_block(importance, 0.5, lambda tiles: tiles.tile_count)
    assert parse_pattern("dense-block:8").map(few).tile_count < 8
    refused = prune_guided_block(
        importance, 0.5, lambda tiles: tiles.tile_count, confirm=lambda tiles: -tiles.tile_count
    )
    np.testing.assert_array_equal(refused, plain)


@pytest.mark.parametrize(
    ("text", "canonical", "counts"),
    [("dense-block:guided", "dense-block:8:guided", (1, 2, 4, 8)), ("dense-block:5", "dense-block:5", (5,))],
)
def test_names_of_guided_blocks(text, canonical, counts):
    assert parse_pattern(text).canonical == canonical
    assert parse_pattern(canonical).counts == counts


def test_guided_blocks_need_times():
    with pytest.raises(BadInput, match="needs a kernel and a GPU"):
        parse_pattern("dense-block:guided").prune({"w": np.ones((40, 4))}, 0.5)


def test_map_refuses_more_blocks_than_clusters():
    with pytest.raises(
        BadInput, match="mask is not dense-block:2: its rows keep 3 different sets of columns"
    ):
        parse_pattern("dense-block:2").map(np.eye(3, dtype=bool))


def test_a_mask_without_any_block_gives_an_empty_map():
    tiles = parse_pattern("dense-block").map(np.zeros((20, 4), dtype=bool))
    assert (tiles.tile_count, tiles.density) == (0, 0)
