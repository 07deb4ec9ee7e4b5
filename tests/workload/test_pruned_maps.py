import numpy as np
import pytest

from prunecast.patterns import parse_pattern
from prunecast.patterns.sources.weight_set import Layer
from prunecast.workload.pruned_maps import (
    Guide,
    MapMaker,
    fit_pattern,
    retained_importance,
    sparsity_retaining,
)


def layer_of(name: str, m: int, scale: float) -> Layer:
    weights = (scale * np.random.default_rng(m).random((m, 128))).astype(np.float32)
    return Layer(name=name, shape=weights.shape, load=lambda: weights, dtype="fp32")


@pytest.mark.parametrize(
    ("text", "m", "k", "fitted"),
    [
        ("tile-wise:128", 100, 256, "tile-wise:64"),
        ("block:64x64", 128, 40, "block:64x32"),
        ("atp:128", 100, 256, "atp:64"),
        ("atp:128x64x90-110:shuffled", 100, 48, "atp:64x32x90-110:shuffled"),
        ("vnm:64:2:8", 48, 64, "vnm:32:2:8"),
        ("2:4", 1, 4, "2:4"),
    ],
)
def test_a_pattern_is_cut_to_powers_of_two_that_fit(text, m, k, fitted):
    found = fit_pattern(text, m, k)
    assert found.pattern.canonical == fitted
    assert (found.note == "") == (text == fitted)


@pytest.mark.parametrize("sparsity", [0.5, 0.75])
def test_layers_of_one_fitted_pattern_are_ranked_together_and_others_apart(sparsity):
    """Layers of 64, 128 and 32 rows: the last one gets lower tiles, and has the largest weights."""
    layers = {m: layer_of(f"w{m}", m, scale) for m, scale in ((64, 1.0), (128, 3.0), (32, 9.0))}
    maker = MapMaker({layer.name: layer for layer in layers.values()}, "global")
    maker.map_of("w64", "tile-wise:64", 0.25, natural=True)  # must not decide for other sparsities
    kept = {m: maker.map_of(f"w{m}", "tile-wise:64", sparsity, natural=True).mask() for m in layers}
    scores = {f"w{m}": np.abs(layers[m].weights) for m in (64, 128)}
    ranked = parse_pattern("tile-wise:64").prune(scores, sparsity, "global")
    for m in (64, 128):
        np.testing.assert_array_equal(kept[m], ranked[f"w{m}"])
    alone = parse_pattern("tile-wise:32").prune({"": np.abs(layers[32].weights)}, sparsity)[""]
    np.testing.assert_array_equal(kept[32], alone)


@pytest.mark.parametrize("wanted", [0.3, 0.9, 0.999])
def test_the_sparsity_that_retains_enough_is_the_highest_of_all_steps(wanted):
    pattern, importance = parse_pattern("tile-wise:16"), np.random.default_rng(0).random((64, 96)) ** 3
    enough = [
        step / 1000
        for step in range(991)
        if retained_importance(importance, pattern.prune({"": importance}, step / 1000)[""]) >= wanted
    ]
    assert sparsity_retaining(pattern, importance, wanted) == max(enough)


def test_only_maps_of_guided_patterns_belong_to_a_kernel():
    maker = MapMaker({"w": layer_of("w", 64, 1.0)}, "layer", remember=True)
    guides = [
        Guide(kernel, lambda _, tiles: float(tiles.kept_count), lambda *_: 1.0) for kernel in ("a", "b")
    ]
    options = {"sparsity": 0.5, "natural": False}
    plain = [maker.map_of("w", "atp:16", guide=guide, **options) for guide in (None, *guides)]
    assert plain[0] is plain[1] is plain[2]
    guided = [maker.map_of("w", "atp:16:guided", guide=guide, **options) for guide in (*guides, guides[0])]
    assert guided[0] is not guided[1]
    assert guided[0] is guided[2]


@pytest.mark.parametrize("of_layer", [False, True])
def test_maps_of_a_layer_are_held_until_the_next_layer_only_for_several_passes(of_layer):
    """A map of 2:4 needs two bytes for each weight, so that maps of all layers must not be held."""
    layers = {name: layer_of(name, m, 1.0) for name, m in (("a", 64), ("b", 32))}
    maker = MapMaker(layers, "layer", of_layer=of_layer)

    def made(name, pattern):
        return maker.map_of(name, pattern, 0.5, natural=False)

    first, second = made("a", "tile-wise:16"), made("a", "unstructured")
    assert made("a", "unstructured") is second
    assert (made("a", "tile-wise:16") is first) == of_layer
    made("b", "unstructured")
    assert made("a", "tile-wise:16") is not first
    assert made("a", "unstructured") is not second
