"""Nested masks: what is pruned stays pruned, whatever the pattern."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunecast.errors import BadInput
from prunecast.patterns import PATTERNS, SCOPES, parse_pattern
from prunecast.patterns.cut import importance_within
from tests.naive import prune as naive
from tests.patterns.matrices import groups, importances, sparsities

EXACT = ["unstructured", "block:2x3", "tile-wise:3"]
FIXED_PLACES = [
    *EXACT,
    "apriori:3x20",
    "vector-wise:3",
    "balanced:4",
    "atp:3x2",
    "atp:3x1x50-150",
    "tile-element:3x1",
]
GROUPED = [
    "shuffled-block:3",
    "atp:3x2:shuffled",
    "atp:3x1x50-inf:shuffled:rms",
    "tile-wise-2d:3",
    "atp-2d:3x2",
    "atp-2d:3x1:shuffled",
    "dense-block:2",
]
OWN_SPARSITY = ["2:4", "1:3", "vnm:3:2:5", "dense", "zeros", "zero-tiles:3"]
TEXTS = [*FIXED_PLACES, *GROUPED, "tvw:3"]


def test_the_lists_name_every_family():
    families = {parse_pattern(text).family for text in [*TEXTS, *OWN_SPARSITY]}
    assert families == set(PATTERNS)


def two_levels(text, levels):
    """Both sparsities as the pattern can have them, the lower one first."""
    low, high = sorted(levels)
    if text.startswith("tvw"):
        return 0.5 + low / 2, 0.5 + high / 2
    most = 0.75 if text == "balanced:4" else 0.95
    return min(low, most), min(high, most)


@st.composite
def random_groups(draw):
    """One or two layers of whole numbers, many of them 0, from a seed: dense-block needs 17 rows and more."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shapes = draw(st.lists(st.tuples(st.integers(18, 25), st.integers(6, 13)), min_size=1, max_size=2))
    zeros = draw(st.sampled_from([0.0, 0.5, 0.9]))
    group = {f"layer{index}": random.integers(1, 7, shape) for index, shape in enumerate(shapes)}
    for matrix in group.values():
        matrix[random.random(matrix.shape) < zeros] = 0
        matrix[0, 0] = 3
    return {name: matrix.astype(np.float32) for name, matrix in group.items()}


def rescored(group, seed):
    """New importance for the same layers, as training between two steps brings it."""
    random = np.random.default_rng(seed)
    return {name: random.integers(0, 7, matrix.shape) + 0.5 for name, matrix in group.items()}


@settings(deadline=None)
@given(
    group=random_groups(),
    levels=st.tuples(sparsities, sparsities),
    text=st.sampled_from(TEXTS),
    scope=st.sampled_from(SCOPES),
    seed=st.integers(0, 2**32),
)
def test_a_second_step_is_inside_the_first_and_reaches_the_sparsity(group, levels, text, scope, seed):
    pattern = parse_pattern(text)
    low, high = two_levels(text, levels)
    first = pattern.prune(group, low, scope)
    second = pattern.prune(rescored(group, seed), high, scope, within=first)
    for name, mask in second.items():
        assert not (mask & ~first[name]).any()
        np.testing.assert_array_equal(pattern.map(mask).mask(), mask)
    if text not in ("tvw:3", "balanced:4"):
        parts = [second] if scope == "global" else [{name: mask} for name, mask in second.items()]
        for part in parts:
            total = sum(mask.size for mask in part.values())
            gone = total - sum(int(np.count_nonzero(mask)) for mask in part.values())
            assert gone >= naive.target(round(high, 4), total)


@settings(deadline=None)
@given(
    group=random_groups(),
    sparsity=sparsities,
    text=st.sampled_from([text for text in TEXTS if text != "tvw:3"]),
    scope=st.sampled_from(SCOPES),
)
def test_pruning_again_to_the_same_sparsity_changes_nothing(group, sparsity, text, scope):
    pattern = parse_pattern(text)
    level, _ = two_levels(text, (sparsity, sparsity))
    first = pattern.prune(group, level, scope)
    again = pattern.prune(group, level, scope, within=first)
    for name in group:
        np.testing.assert_array_equal(again[name], first[name])


@given(group=groups(min_rows=3, min_columns=5), text=st.sampled_from(OWN_SPARSITY))
def test_pruning_again_changes_nothing_where_the_sparsity_is_the_patterns_own(group, text):
    pattern = parse_pattern(text)
    first = pattern.prune(group)
    again = pattern.prune(group, within=first)
    for name in group:
        np.testing.assert_array_equal(again[name], first[name])


@given(
    group=groups(min_rows=3, min_columns=6),
    sparsity=sparsities,
    text=st.sampled_from([*FIXED_PLACES, "2:4", "vnm:3:2:5", "zeros", "zero-tiles:3"]),
    data=st.data(),
)
def test_any_mask_will_do_where_pieces_have_fixed_places(group, sparsity, text, data):
    pattern = parse_pattern(text)
    within = {name: data.draw(hnp.arrays(np.bool_, matrix.shape)) for name, matrix in group.items()}
    told = min(sparsity, 0.75 if text == "balanced:4" else 0.95) if text in FIXED_PLACES else None
    for name, mask in pattern.prune(group, told, "layer", within=within).items():
        assert not (mask & ~within[name]).any()
        np.testing.assert_array_equal(pattern.map(mask).mask(), mask)


@given(
    matrix=importances(min_rows=3, min_columns=3),
    levels=st.tuples(sparsities, sparsities),
    text=st.sampled_from(EXACT),
)
def test_with_the_same_importance_two_steps_are_one(matrix, levels, text):
    low, high = sorted(levels)
    pattern = parse_pattern(text)
    matrix = matrix + np.float32(0.5)
    first = pattern.prune({"w": matrix}, low)
    steps = pattern.prune({"w": matrix}, high, within=first)["w"]
    np.testing.assert_array_equal(steps, pattern.prune({"w": matrix}, high)["w"])


@pytest.mark.parametrize("text", ["unstructured", "tile-wise:2", "vector-wise:2", "atp:2x1"])
def test_zero_importance_inside_outranks_any_importance_outside(text):
    """Columns 0 and 1 score nothing but may be kept; 2 and 3 are pruned, whatever they score."""
    importance = np.tile([0.0, 0.0, 5.0, 9.0], (2, 1))
    within = np.tile([True, True, False, False], (2, 1))
    for sparsity, kept in ((0.0, 2), (0.5, 2), (0.75, 1)):
        mask = parse_pattern(text).prune({"w": importance}, sparsity, within={"w": within})["w"]
        assert np.count_nonzero(mask) == 2 * kept
        assert not mask[:, 2:].any()


@pytest.mark.parametrize("text", [*TEXTS, *OWN_SPARSITY])
def test_where_nothing_may_be_kept_nothing_is(text):
    pattern = parse_pattern(text)
    importance = {"w": np.zeros((18, 8))}
    within = {"w": np.zeros((18, 8), dtype=bool)}
    if text == "dense":
        with pytest.raises(BadInput, match="within: dense keeps everything, wanted all True, got 144 False"):
            pattern.prune(importance, within=within)
        return
    told = None if text in OWN_SPARSITY else 0.75
    assert not pattern.prune(importance, told, within=within)["w"].any()


def test_a_layer_without_a_mask_may_keep_everything():
    group = {"a": np.ones((2, 2)), "b": np.full((2, 2), 2.0)}
    within = {"b": np.array([[True, False], [True, True]])}
    masks = parse_pattern("unstructured").prune(group, 0.25, "global", within=within)
    assert (np.count_nonzero(masks["a"]), np.count_nonzero(masks["b"])) == (3, 3)


def test_2_to_4_stays_where_columns_of_a_tile_go():
    """Four of the first eight columns go as one group; the second group keeps its two of four."""
    importance = np.array([[1.0, 2.0, 1.0, 2.0, 9.0, 8.0, 1.0, 1.0]])
    pattern = parse_pattern("tvw:1")
    first = pattern.prune({"w": importance}, 0.5)
    second = pattern.prune({"w": importance}, 0.75, within=first)["w"]
    assert np.flatnonzero(second).tolist() == [4, 5]


@pytest.mark.parametrize("text", ["shuffled-block:2", "atp:2x1:shuffled", "dense-block:1", "tvw:2"])
def test_a_mask_that_shows_no_groups_is_refused(text):
    within = np.random.default_rng(0).random((18, 8)) < 0.9
    with pytest.raises(BadInput, match="mask is not"):
        parse_pattern(text).prune({"w": np.ones((18, 8))}, 0.5, within={"w": within})


@pytest.mark.parametrize(
    ("within", "message"),
    [
        ({"v": np.ones((2, 2), bool)}, "within: wanted masks of w, got one of 'v'"),
        ({"w": np.ones((2, 3), bool)}, r"within of 'w': wanted a bool mask of shape \(2, 2\), got bool"),
        ({"w": np.ones((2, 2))}, r"within of 'w': wanted a bool mask of shape \(2, 2\), got float64"),
    ],
)
def test_masks_that_fit_no_layer_are_refused(within, message):
    with pytest.raises(BadInput, match=message):
        parse_pattern("unstructured").prune({"w": np.ones((2, 2))}, 0.5, within=within)


def test_importance_is_raised_without_changing_what_matters():
    scores = np.array([[0.0, 1e-40, 3.0]], dtype=np.float32)
    room = np.array([[True, True, False]])
    left = importance_within(scores, room)
    assert left.dtype == np.float32
    assert (left[0, :2] > 0).all()
    assert left[0, 2] == 0
