"""What a layer keeps, said by its zeros: without torch."""

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.torch.kept import tiles_of

M, K = 256, 200


def pruned(seed=0, pattern="tile-wise:64"):
    weights = np.random.default_rng(seed).standard_normal((M, K)).astype(np.float32)
    mask = parse_pattern(pattern).masks({"layer": np.abs(weights)}, 0.5)["layer"]
    return weights * mask, mask


@pytest.mark.parametrize("pattern", ["tile-wise:64", "zero-tiles:64", "atp:64"])
def test_a_kept_weight_may_be_zero_by_chance(pattern):
    weights, mask = pruned(pattern=pattern if pattern.startswith("atp") else "tile-wise:64")
    weights[tuple(np.argwhere(mask)[::2000].T)] = 0.0
    tiles = tiles_of(weights, None, pattern)
    assert np.array_equal(tiles.mask(), mask)


def test_zeros_of_another_pattern_are_no_chance():
    weights, mask = pruned()
    weights[tuple(np.argwhere(mask)[::50].T)] = 0.0  # two in a hundred
    with pytest.raises(BadInput, match="mask is not tile-wise:64"):
        tiles_of(weights, None, "tile-wise:64")
    assert np.array_equal(tiles_of(weights, None, "zero-tiles:64").mask(), mask)
