"""Laws that every pattern obeys, and what `Pattern.prune` refuses."""

import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import SCOPES, ElementMap, NestedMap, TileMap, parse_pattern
from tests.naive import prune as naive
from tests.patterns.matrices import groups, pruned_elements, sparsities

FREE = [
    "unstructured",
    "block:2x3",
    "vector-wise:3",
    "shuffled-block:3",
    "tile-wise:3",
    "tile-wise-2d:3",
    "apriori:3x20",
    "atp:3x2",
    "atp-2d:3x2",
    "atp:3x2:shuffled",
    "atp-2d:3x2:shuffled:rms",
]
MADE = {"elements": ElementMap, "tiles": TileMap, "elements in tiles": NestedMap}
NESTED = ["unstructured", "block:2x3", "tile-wise:3"]
LARGEST_PIECE = {"unstructured": 1, "block:2x3": 6, "tile-wise:3": 3, "apriori:3x20": 3}


@given(
    group=groups(min_rows=3, min_columns=4),
    sparsity=sparsities,
    text=st.sampled_from(list(LARGEST_PIECE)),
    scope=st.sampled_from(SCOPES),
)
def test_sparsity_is_reached_with_less_than_one_piece_in_excess(group, sparsity, text, scope):
    masks = parse_pattern(text).prune(group, sparsity, scope)
    parts = [masks] if scope == "global" else [{name: mask} for name, mask in masks.items()]
    for part in parts:
        total = sum(mask.size for mask in part.values())
        excess = pruned_elements(part) - naive.target(sparsity, total)
        assert 0 <= excess < LARGEST_PIECE[text]


@given(group=groups(min_rows=3, min_columns=3), sparsity=sparsities)
def test_two_steps_reach_the_sparsity_too(group, sparsity):
    masks = parse_pattern("tile-wise-2d:3").prune(group, sparsity, "global")
    assert pruned_elements(masks) >= naive.target(sparsity, sum(mask.size for mask in masks.values()))


@given(
    group=groups(min_rows=3, min_columns=3),
    levels=st.lists(sparsities, min_size=2, max_size=4),
    text=st.sampled_from(NESTED),
    scope=st.sampled_from(SCOPES),
)
def test_a_higher_sparsity_only_takes_away(group, levels, text, scope):
    pattern = parse_pattern(text)
    masks = [pattern.prune(group, level, scope) for level in sorted(levels)]
    for lower, higher in itertools.pairwise(masks):
        for name in group:
            assert not (higher[name] & ~lower[name]).any()


@settings(deadline=None)
@given(group=groups(min_rows=3, min_columns=4), sparsity=sparsities, text=st.sampled_from(FREE))
def test_map_and_mask_say_the_same(group, sparsity, text):
    pattern = parse_pattern(text)
    for mask in pattern.prune(group, sparsity).values():
        described = pattern.map(mask)
        assert described.pattern == text
        assert isinstance(described, MADE[pattern.keeps])
        assert described.density == np.count_nonzero(mask) / mask.size
        np.testing.assert_array_equal(described.mask(), mask)


@pytest.mark.parametrize("text", ["dense", "2:4", "1:3", "zeros"])
@given(group=groups(min_rows=3, min_columns=4))
def test_map_and_mask_say_the_same_without_a_sparsity(text, group):
    pattern = parse_pattern(text)
    for mask in pattern.prune(group).values():
        np.testing.assert_array_equal(pattern.map(mask).mask(), mask)


@pytest.mark.parametrize("text", FREE)
def test_equal_scores_give_the_same_mask_whatever_the_precision(text):
    matrix = np.full((7, 8), 2.0)
    masks = [
        parse_pattern(text).prune({"w": matrix.astype(dtype)}, 0.4)["w"] for dtype in ("f2", "f4", "f8", "i8")
    ]
    for mask in masks[1:]:
        np.testing.assert_array_equal(mask, masks[0])


def test_dense_keeps_everything_and_zeros_what_is_there():
    importance = {"w": np.array([[0.0, 1.0], [2.0, 0.0]])}
    assert parse_pattern("dense").prune(importance)["w"].all()
    np.testing.assert_array_equal(
        parse_pattern("zeros").prune(importance)["w"], [[False, True], [True, False]]
    )
    assert not parse_pattern("zeros").prune({"w": np.zeros((2, 2))})["w"].any()


@pytest.mark.parametrize(
    ("text", "sparsity", "message"),
    [
        ("unstructured", 1.0, r"sparsity must be in \[0, 1\), got 1.0"),
        ("unstructured", -0.1, r"sparsity must be in \[0, 1\), got -0.1"),
        ("unstructured", float("nan"), r"sparsity must be in \[0, 1\), got nan"),
        ("2:4", 1.5, r"sparsity must be in \[0, 1\), got 1.5"),
        ("tile-wise:2", None, "tile-wise:2 has no sparsity of its own"),
        ("dense", 0.5, "dense only has sparsity 0, got 0.5"),
        ("zeros", 0.5, "zeros takes its sparsity from the file: wanted none, got 0.5"),
    ],
)
def test_sparsities_that_a_pattern_does_not_have(text, sparsity, message):
    with pytest.raises(BadInput, match=message):
        parse_pattern(text).prune({"w": np.ones((4, 4))}, sparsity)


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("tile-wise:5", "5x1"),
        ("tile-wise-2d:5", "5x1"),
        ("vector-wise:5", "5x1"),
        ("shuffled-block:5", "5x1"),
        ("atp:4", "4x16"),
        ("tvw:5", "5x4"),
        ("dense-block:8", "17x1"),
        ("tile-element:5", "5x1"),
        ("vnm:2:2:5", "2x5"),
        ("atp-2d:5x2", "5x2"),
        ("block:4x5", "4x5"),
        ("block:5x4", "5x4"),
        ("2:5", "1x5"),
    ],
)
def test_a_matrix_smaller_than_a_tile_is_refused_by_name(text, needed):
    with pytest.raises(BadInput, match=f"{text} needs a matrix of {needed} or more, got 4x4 in 'fc1'"):
        parse_pattern(text).prune({"fc1": np.ones((4, 4))}, 0.6)


def test_importance_that_ranks_nothing_is_refused_by_name():
    with pytest.raises(BadInput, match="importance of 'fc1' is zero everywhere"):
        parse_pattern("unstructured").prune({"fc0": np.ones((2, 2)), "fc1": np.zeros((2, 2))}, 0.5)


def test_importance_that_is_not_finite_is_refused_by_name():
    with pytest.raises(BadInput, match="importance of 'fc1': wanted finite values, got 4 NaN or Inf"):
        parse_pattern("dense").prune({"fc1": np.full((2, 2), np.inf)})


def test_unknown_scope_and_no_layers_are_refused():
    with pytest.raises(BadInput, match="scope: wanted layer or global, got 'model'"):
        parse_pattern("unstructured").prune({"w": np.ones((2, 2))}, 0.5, "model")
    with pytest.raises(BadInput, match="unstructured: no layer to prune"):
        parse_pattern("unstructured").prune({}, 0.5)


@pytest.mark.parametrize(
    "text",
    [
        "dense",
        "unstructured",
        "2:4",
        "balanced:2",
        "vector-wise:2",
        "shuffled-block:2",
        "tile-wise:2",
        "tile-wise-2d:2",
        "tile-element:2",
        "dense-block:2",
        "atp:2x2",
        "atp-2d:2x2",
        "tvw:2",
        "vnm:2:2:4",
        "2x2",
        "zeros",
    ],
)
@pytest.mark.parametrize("mask", [np.ones((4, 4)), np.ones(4, dtype=bool), np.ones((0, 4), dtype=bool)])
def test_maps_want_bool_matrices(text, mask):
    with pytest.raises(BadInput, match=r"wanted a bool mask \(M, K\)"):
        parse_pattern(text).map(mask)


def test_importing_the_room_loads_no_heavy_library():
    code = (
        "import sys, prunecast.patterns, prunecast.patterns.sources;"
        "print([name for name in ('scipy', 'numba', 'safetensors', 'ml_dtypes') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("text", [*FREE, "2:4", "3:8", "balanced:24", "tvw:3", "tvw:3:even"])
def test_importance_in_float16_gives_the_masks_of_float32(text):
    pattern = parse_pattern(text)
    sparsity = None if text in ("2:4", "3:8") else 0.6
    # Squares of the smallest vanish in float16, those of the largest overflow; many values are equal
    scores = np.exp(np.random.default_rng(5).normal(0, 4, (150, 46))).clip(6e-8, 6e4).astype(np.float16)
    half, single = (pattern.prune({"w": each}, sparsity)["w"] for each in (scores, scores.astype(np.float32)))
    np.testing.assert_array_equal(half, single)


@pytest.mark.parametrize(
    ("text", "sparsity"),
    [("tile-wise:128", 0.75), ("block:32x32", 0.75), ("balanced:64", 0.75), ("2:4", None), ("4:8", None)],
)
def test_patterns_that_look_at_pieces_never_convert_a_whole_fp16_layer(text, sparsity):
    """A float32 copy of the importance would need 4 bytes per weight. The mask is that of such a copy."""
    importance = np.abs(np.random.default_rng(0).standard_normal((1024, 4096), np.float32)).astype(np.float16)
    pattern = parse_pattern(text)
    tracemalloc.start()
    mask = pattern.prune({"a": importance}, sparsity)["a"]
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 * importance.size
    wanted = pattern.prune({"a": importance.astype(np.float32)}, sparsity)["a"]
    np.testing.assert_array_equal(mask, wanted)


def test_dense_removes_nothing_and_is_not_asked_to():
    importance = {"w": np.zeros((3, 5))}
    for sparsity in (None, 0.0):
        assert parse_pattern("dense").prune(importance, sparsity)["w"].all()
    with pytest.raises(BadInput, match=r"dense only has sparsity 0, got 0\.5"):
        parse_pattern("dense").prune(importance, 0.5)
