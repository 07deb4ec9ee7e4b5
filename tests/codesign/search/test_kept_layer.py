"""Sums over tiles find what the weights find, and say no where they do not say all."""

import numpy as np
import pytest

from prunecast.codesign.search.option_times import KeptLayer, sums_say_all
from prunecast.patterns import TileSums, parse_pattern

IMPORTANCE = np.abs(np.random.default_rng(5).standard_normal((300, 512), np.float32))


@pytest.mark.parametrize("pattern", ["atp:64", "atp:128", "atp:256x16x0-inf", "atp:64x16x75-125"])
def test_both_ways_find_the_same_layer(pattern: str) -> None:
    rule, sums = parse_pattern(pattern), TileSums.of(IMPORTANCE, 64)
    assert sums_say_all(rule, sums)
    mask = rule.prune({"": IMPORTANCE}, 0.7)[""]
    fast, slow = KeptLayer.of_sums(rule, sums, 0.7), KeptLayer.of_mask(rule, IMPORTANCE, mask)
    assert fast.kept.fingerprint() == slow.kept.fingerprint()
    assert fast.weights == slow.weights
    assert fast.importance == pytest.approx(slow.importance, rel=1e-6)


@pytest.mark.parametrize(
    "pattern", ["atp:96", "atp:64:shuffled", "atp:64:rms", "atp-2d:64", "tile-wise:64", "2:4"]
)
def test_other_patterns_need_the_weights(pattern: str) -> None:
    assert not sums_say_all(parse_pattern(pattern), TileSums.of(IMPORTANCE, 64))
