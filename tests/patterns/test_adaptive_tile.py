import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunecast.errors import BadInput
from prunecast.patterns import imbalance, parse_pattern, retained_importance
from prunecast.patterns.adaptive_tile import UNBOUNDED
from prunecast.patterns.adaptive_tile_pattern import AdaptiveTile2DPattern, AdaptiveTilePattern
from prunecast.patterns.tile_sums import CountRange, best_counts, count_range
from prunecast.patterns.tile_wise import TileWisePattern
from prunecast.patterns.tile_wise_2d import TileWise2DPattern
from tests.naive import prune as naive
from tests.patterns.matrices import groups, importances, sparsities

intervals = st.tuples(st.integers(0, 100), st.one_of(st.integers(100, 300), st.just(UNBOUNDED)))

EQUAL_STEPS = np.zeros((10, 3), dtype=np.float32)
"""Three tiles whose one step is worth 9, as 3 + 6, 3 + 6 and 1 + 3 + 5: the last of them goes."""
EQUAL_STEPS[[0, 2, 5, 5, 8, 8, 8], [0, 2, 1, 2, 0, 1, 2]] = [3, 6, 3, 6, 1, 3, 5]


@given(
    matrix=importances(min_rows=4, most=12),
    sparsity=sparsities,
    height=st.integers(1, 4),
    quantum=st.integers(1, 4),
    interval=intervals,
)
@example(matrix=EQUAL_STEPS, sparsity=0.11, height=3, quantum=3, interval=(0, UNBOUNDED))
def test_same_as_taking_away_the_worst_step_again_and_again(matrix, sparsity, height, quantum, interval):
    low, high = interval
    rule = AdaptiveTilePattern(height=height, quantum=quantum, low=low, high=high, flexible=False)
    mask = rule.masks({"w": matrix}, sparsity)["w"]
    wanted = naive.adaptive_tile(matrix.tolist(), sparsity, height, quantum, low, high)
    np.testing.assert_array_equal(mask, wanted)


@given(group=groups(min_rows=4), sparsity=sparsities, height=st.integers(1, 4))
def test_without_an_interval_and_a_quantum_it_is_tile_wise(group, sparsity, height):
    rule = AdaptiveTilePattern(height=height, quantum=1, low=0, high=UNBOUNDED, score="rms", flexible=False)
    masks = rule.masks(group, sparsity)
    wanted = TileWisePattern(height=height).masks(group, sparsity)
    for name in group:
        np.testing.assert_array_equal(masks[name], wanted[name])


@given(group=groups(min_rows=4), sparsity=sparsities, height=st.integers(1, 4))
def test_with_rows_first_it_is_tile_wise_2d(group, sparsity, height):
    rule = AdaptiveTile2DPattern(height=height, quantum=1, low=0, high=UNBOUNDED, flexible=False, score="rms")
    masks = rule.masks(group, sparsity)
    wanted = TileWise2DPattern(height=height).masks(group, sparsity)
    for name in group:
        np.testing.assert_array_equal(masks[name], wanted[name])


@given(matrix=importances(min_rows=4, most=12), sparsity=sparsities, height=st.integers(1, 4))
def test_by_the_mean_no_choice_of_tile_wise_retains_more(matrix, sparsity, height):
    """Of tiles of equal height; the interval lets it choose what tile-wise would."""
    matrix = matrix[: matrix.shape[0] // height * height]
    assume(matrix.any())
    kept = [
        retained_importance(matrix, parse_pattern(text).prune({"w": matrix}, sparsity)["w"])
        for text in (f"atp:{height}x1x0-inf", f"tile-wise:{height}")
    ]
    assert kept[0] >= kept[1] - 1e-12


@settings(deadline=None)
@given(matrix=importances(min_rows=4, most=12), height=st.integers(2, 4))
def test_shuffled_strictly_balanced_tiles_retain_no_less(matrix, height):
    """Equal heights and equal counts: shuffling starts from the neighbours and never loses."""
    matrix = matrix[: matrix.shape[0] // height * height, : matrix.shape[1] // 2 * 2]
    assume(matrix.any() and matrix.shape[1] > 0)
    kept = []
    for text in (f"atp:{height}x1x100-100", f"atp:{height}x1x100-100:shuffled"):
        pattern = parse_pattern(text)
        mask = pattern.prune({"w": matrix}, 0.5)["w"]
        assert len(set(pattern.map(mask).kept_per_tile)) == 1
        kept.append(retained_importance(matrix, mask))
    assert kept[1] >= kept[0] - 1e-12


def test_shuffling_finds_rows_that_keep_alike():
    """Rows of two kinds in turn: neighbours share nothing, shuffled tiles lose nothing."""
    importance = np.tile([[1.0] * 4 + [0.0] * 4, [0.0] * 4 + [1.0] * 4], (4, 1))
    kept = {}
    for text in ("atp:4x4", "atp:4x4:shuffled"):
        pattern = parse_pattern(text)
        mask = pattern.prune({"w": importance}, 0.5)["w"]
        kept[text] = retained_importance(importance, mask)
    assert kept == {"atp:4x4": 0.5, "atp:4x4:shuffled": 1.0}
    assert pattern.map(mask).row_index.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


def test_rows_that_die_first_are_in_no_shuffled_tile():
    importance = np.tile([[4.0, 0.0], [0.0, 0.0], [0.0, 4.0], [0.5, 0.0]], (2, 1))
    pattern = parse_pattern("atp-2d:2x1:shuffled")
    mask = pattern.prune({"w": importance}, 0.75)["w"]
    tiles = pattern.map(mask)
    assert tiles.row_index.tolist() == [0, 4, 2, 6]
    assert tiles.column_index.tolist() == [0, 1]


tile_scores = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 3), st.integers(1, 6)), elements=st.integers(0, 9)
)


@given(scores=tile_scores, quantum=st.integers(1, 3), data=st.data())
def test_counts_of_equal_tiles_are_the_best_of_all(scores, quantum, data):
    """Against every choice of counts, for widths that are multiples of the quantum: all steps are equal."""
    scores = np.repeat(scores, quantum, axis=1)
    tiles, k = scores.shape
    to_prune = data.draw(st.integers(0, tiles * k // quantum)) * quantum * 2
    to_prune = min(to_prune, 2 * tiles * k)
    heights = [2] * tiles
    counts = best_counts(scores, np.array(heights), to_prune, CountRange(0, k), quantum)
    best = naive.best_counts(
        scores.tolist(),
        heights,
        range(0, k + 1, quantum),
        lambda counts: 2 * (tiles * k - sum(counts)) >= to_prune,
    )
    assert naive.retained_by_counts(scores.tolist(), heights, counts.tolist()) == best


@given(scores=tile_scores, quantum=st.integers(1, 3), data=st.data())
def test_counts_of_uneven_tiles_lose_less_than_one_step(scores, quantum, data):
    tiles, k = scores.shape
    heights = data.draw(st.lists(st.integers(1, 3), min_size=tiles, max_size=tiles))
    to_prune = data.draw(st.integers(0, sum(heights) * k))
    counts = best_counts(scores, np.array(heights), to_prune, CountRange(0, k), quantum)
    pruned = sum(height * (k - count) for height, count in zip(heights, counts, strict=True))
    best = naive.best_counts(
        scores.tolist(),
        heights,
        sorted({*range(0, k + 1, quantum), k}),
        lambda counts: sum(h * (k - c) for h, c in zip(heights, counts, strict=True)) >= to_prune,
    )
    assert to_prune <= pruned < to_prune + max(heights) * quantum
    lost = best - naive.retained_by_counts(scores.tolist(), heights, counts.tolist())
    assert 0 <= lost <= max(heights) * quantum * scores.max()


@given(matrix=importances(min_rows=3, min_columns=2, most=12), sparsity=sparsities, quantum=st.integers(1, 4))
def test_equal_bounds_balance_to_one_quantum(matrix, sparsity, quantum):
    quantum = min(quantum, matrix.shape[1])
    pattern = parse_pattern(f"atp:3x{quantum}x100-100")
    mask = pattern.prune({"w": matrix}, sparsity)["w"]
    tiles = pattern.map(mask)
    kept = tiles.kept_per_tile
    assert all(count % quantum == 0 or count == tiles.k for count in kept)
    assert kept.max() - kept.min() <= quantum
    mean = np.count_nonzero(mask) / mask.shape[0]
    if matrix.shape[0] % 3 == 0 and mean > 0:
        assert imbalance(tiles) <= 1 + quantum / mean + 1e-12


@given(matrix=importances(min_rows=3, most=12), sparsity=sparsities, interval=intervals)
def test_at_least_the_sparsity_and_less_than_a_step_more(matrix, sparsity, interval):
    low, high = interval
    rule = AdaptiveTilePattern(height=3, quantum=2, low=low, high=high, flexible=False)
    mask = rule.masks({"w": matrix}, sparsity)["w"]
    excess = mask.size - np.count_nonzero(mask) - naive.target(sparsity, mask.size)
    assert 0 <= excess < 3 * 2


def test_the_default_interval_does_not_open_a_quantum_that_exceeds_it():
    """A mean of 128 with a quantum of 16: 97 to 103 % are 124 to 132, so that only 128 is left."""
    assert count_range(128 * 256, 256, 512, quantum=16, low=97, high=103) == (128, 128)
    assert count_range(128 * 256, 256, 512, quantum=16, low=87, high=113) == (112, 144)
    assert count_range(120 * 256, 256, 512, quantum=16, low=100, high=100) == (112, 128)
    assert count_range(508 * 256, 256, 510, quantum=16, low=100, high=100) == (496, 510)


def pruned(matrix, text, sparsity):
    pattern = parse_pattern(text)
    mask = pattern.prune({"w": matrix}, sparsity)["w"]
    return pattern.map(mask), float((matrix * mask).sum(dtype=np.float64))


@given(matrix=importances(min_rows=4, min_columns=3, most=12), sparsity=sparsities, quantum=st.integers(1, 3))
def test_the_default_interval_is_the_least_that_retains_enough(matrix, sparsity, quantum):
    tiles, found = pruned(matrix, f"atp:2x{quantum}", sparsity)
    free = pruned(matrix, f"atp:2x{quantum}x0-inf", sparsity)[1]
    strict = pruned(matrix, f"atp:2x{quantum}x97-103", sparsity)[1]
    assert found >= 0.98 * free - 1e-9
    if strict >= 0.98 * free:
        assert found == strict
        return
    slow = (pruned(matrix, f"atp:2x{quantum}x0-{high}", sparsity) for high in range(100, 5000))
    first = next(found for found in slow if found[1] >= 0.98 * free - 1e-9)
    assert tiles.kept_per_tile.max() == first[0].kept_per_tile.max()


@settings(deadline=None)
@given(
    matrix=importances(min_rows=4, min_columns=3, most=12),
    sparsity=sparsities,
    rule=st.sampled_from(["", "x1", "x2x50-150", "x1x0-inf"]),
)
def test_shuffled_tiles_retain_no_less_under_any_rule(matrix, sparsity, rule):
    rule = rule or "x3"
    assert pruned(matrix, f"atp:2{rule}:shuffled", sparsity)[1] >= pruned(matrix, f"atp:2{rule}", sparsity)[1]


def test_columns_move_to_the_tile_where_they_retain_most():
    """Two tiles at 50 %: the second is worth more. 4 and 4 strictly, 2 and 6 within half of the mean."""
    importance = np.repeat([[1.0] * 8, [2.0] * 8], 2, axis=0)
    kept = {}
    for text in ("atp:2x2x100-100", "atp:2x2x50-150", "atp:2x2x0-inf"):
        pattern = parse_pattern(text)
        kept[text] = list(pattern.map(pattern.prune({"w": importance}, 0.5)["w"]).kept_per_tile)
    assert list(kept.values()) == [[4, 4], [2, 6], [0, 8]]


@pytest.mark.parametrize("family", ["atp", "atp-2d"])
@pytest.mark.parametrize("height", [1, 2, 64])
@pytest.mark.parametrize("interval", ["", "x16x97-103"])
def test_a_matrix_of_a_single_tile_has_a_map(family, height, interval):
    pattern = parse_pattern(f"{family}:{height}{interval}")
    importance = np.random.default_rng(0).random((height, 512))
    mask = pattern.prune({"w": importance}, 0.5)["w"]
    kept = pattern.map(mask)
    assert kept.tile_count == int(mask.any())  # rows first: the only row may go
    np.testing.assert_array_equal(kept.mask(), mask)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ([3, 4], "mask is not atp:2x2x97-103: tile 0 keeps 3 columns, no multiple of 2"),
        (
            [0, 12],
            "mask is not atp:2x2x97-103: tile 1 keeps 12 columns, more than the 8 that 103 % of the mean",
        ),
    ],
)
def test_map_refuses_what_the_pattern_does_not_allow(kept, message):
    mask = np.repeat(np.arange(16) < np.array(kept)[:, None], 2, axis=0)
    with pytest.raises(BadInput, match=message):
        parse_pattern("atp:2x2x97-103").map(mask)
