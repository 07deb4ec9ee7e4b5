"""Masks over a schedule: nested, exact, and in the pattern where that is said."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from prunecast.codesign.schedule import cubic_sparsities
from prunecast.codesign.schedule_masks import NESTED_FAMILIES, MaskPath, natural_way, without_pruned
from prunecast.errors import BadInput
from prunecast.patterns import density, parse_pattern

STEPWISE = (
    "unstructured",
    "block:16x16",
    "balanced:16",
    "vector-wise:16",
    "shuffled-block:16",
    "tile-wise:16",
    "atp:16x8",
    "atp:16x8x80-120",
    "atp:16x8:rms",
    "atp:16x8:shuffled",
)
TOWARDS = (
    ("tile-wise-2d:16", 0.75),
    ("tile-element:16", 0.75),
    ("atp-2d:16", 0.75),
    ("dense-block:4", 0.75),
    ("tvw:16", 0.75),
    ("vnm:16:2:8", 0.75),
    ("2:4", 0.5),
)
SHAPES = {"up": (64, 32), "down": (32, 64)}


def layers(seed, decay=None):
    """Skewed importance, as trained weights have it; `decay` changes it as training would."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, (m, k) in SHAPES.items():
        scores = np.abs(rng.normal(size=(m, k))) * np.exp(rng.normal(size=(m, 1)) + rng.normal(size=k))
        found[name] = scores.astype(np.float32)
    return found


def walk(pattern, sparsities, *, scope="layer", way=None, seed=0):
    """The masks of every stage, under importance that is drawn afresh for each."""
    rule = parse_pattern(pattern)
    path = MaskPath(rule, sparsities[-1], scope=scope, way=way)
    masks = []
    for i, sparsity in enumerate(sparsities):
        importances = {
            name: np.where(path.masks.get(name, True), scores, 0).astype(np.float32)
            for name, scores in layers(seed + i).items()
        }
        masks.append(path.advance(importances, sparsity))
    return masks


def assert_nested(masks):
    for before, after in pairwise(masks):
        for name in before:
            assert not np.any(after[name] & ~before[name])


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("pattern", STEPWISE)
@given(seed=st.integers(0, 10**6), updates=st.integers(2, 5), final=st.floats(0.3, 0.9))
@settings(max_examples=15, deadline=None)
def test_stepwise_masks_are_nested_and_every_one_has_the_pattern(pattern, scope, seed, updates, final):
    if "shuffled" in pattern and scope == "global":
        return  # see the test of natural ways
    rule = parse_pattern(pattern)
    masks = walk(pattern, cubic_sparsities(final, updates), scope=scope, seed=seed)
    assert_nested(masks)
    for stage in masks:
        for mask in stage.values():
            rule.map(mask)


@pytest.mark.parametrize(("pattern", "final"), TOWARDS)
@given(seed=st.integers(0, 10**6), updates=st.integers(2, 5))
@settings(max_examples=8, deadline=None)
def test_masks_towards_a_final_one_are_nested_and_exact(pattern, final, seed, updates):
    sparsities = cubic_sparsities(final, updates)
    masks = walk(pattern, sparsities, seed=seed)
    assert_nested(masks)
    for sparsity, stage in zip(sparsities[:-1], masks, strict=False):
        for name, mask in stage.items():
            most = 1.0 - density(masks[-1][name])
            assert 1.0 - density(mask) == pytest.approx(min(sparsity, most), abs=1 / mask.size)
    for mask in masks[-1].values():
        parse_pattern(pattern).map(mask)


@given(seed=st.integers(0, 10**6), final=st.floats(0.3, 0.9))
@settings(max_examples=15, deadline=None)
def test_kept_counts_of_atp_stay_on_the_quantum(seed, final):
    rule = parse_pattern("atp:16x8")
    for stage in walk("atp:16x8", cubic_sparsities(final, 4), seed=seed):
        for mask in stage.values():
            assert not np.any(rule.map(mask).kept_per_tile % 8)


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("pattern", STEPWISE)
def test_one_stage_is_what_the_pattern_itself_prunes(pattern, scope):
    rule = parse_pattern(pattern)
    path = MaskPath(rule, 0.75, scope=scope)
    found, wanted = path.advance(layers(0), 0.75), rule.prune(layers(0), 0.75, scope)
    assert all(np.array_equal(found[name], wanted[name]) for name in SHAPES)


def test_every_way_reaches_the_sparsity():
    for way in ("stepwise", "towards"):
        last = walk("tile-wise:16", (0.3, 0.6, 0.75), way=way)[-1]
        assert sum(mask.sum() for mask in last.values()) <= 0.25 * sum(m * k for m, k in SHAPES.values())


def test_families_that_divide_anew_go_towards_a_final_mask():
    assert {parse_pattern(pattern).family for pattern in STEPWISE} <= NESTED_FAMILIES
    for pattern, _ in TOWARDS:
        assert natural_way(parse_pattern(pattern)) == "towards"
    assert natural_way(parse_pattern("atp:16:shuffled"), "global") == "towards"
    assert natural_way(parse_pattern("shuffled-block:16"), "global") == "towards"


def test_groups_of_layers_can_be_pruned_apart():
    path = MaskPath(parse_pattern("tile-wise:16"), 0.75)
    everything = layers(0)
    path.advance({"up": everything["up"]}, 0.5)
    assert set(path.masks) == {"up"}
    path.advance({"down": everything["down"]}, 0.75)
    assert set(path.masks) == {"up", "down"}


def test_kept_zeros_rank_above_pruned_ones():
    mask = np.array([[True, False]])
    scores = without_pruned(np.zeros((1, 2), np.float32), mask)
    assert scores[0, 0] > 0
    assert scores[0, 1] == 0


def test_bad_input_is_refused():
    with pytest.raises(BadInput, match="way must be one of"):
        MaskPath(parse_pattern("tile-wise:16"), 0.5, way="sideways")
    with pytest.raises(BadInput, match="only has sparsity"):
        MaskPath(parse_pattern("2:4"), 0.75)
    with pytest.raises(BadInput, match=r"at most the final 0\.5"):
        MaskPath(parse_pattern("tile-wise:16"), 0.5).advance(layers(0), 0.6)
