"""The pattern that weights were pruned to finds the same mask in their zeros, as README says."""

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern

PATTERNS = (
    "tile-wise:16", "tile-wise-2d:16", "atp:64", "vector-wise:16", "shuffled-block:16", "block:16x16",
    "unstructured", "2:4", "tvw:16", "balanced:16",
)  # fmt: skip


def pruned(pattern, scores, sparsity):
    return pattern.prune({"a": scores}, sparsity)["a"]


@pytest.mark.parametrize("text", PATTERNS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_same_mask(text, dtype):
    pattern = parse_pattern(text)
    compared = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        weights = np.abs(rng.standard_normal([(64, 96), (100, 96), (128, 64)][seed % 3])).astype(dtype)
        weights[weights == 0] = 1.0  # zero weights are zeros before any pruning
        sparsity = None if text == "2:4" else (0.1, 0.5, 0.75, 0.9)[seed % 4]
        try:
            mask = pruned(pattern, weights.astype(np.float32), sparsity)
        except BadInput:
            continue
        if not mask.any():
            continue
        again = pruned(pattern, np.where(mask, weights, 0).astype(np.float32), sparsity)
        np.testing.assert_array_equal(again, mask, err_msg=f"seed {seed}")
        compared += 1
    assert compared >= 15
