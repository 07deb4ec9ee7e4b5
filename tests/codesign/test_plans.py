"""From the map of every pattern to a plan that multiplies just what the mask keeps."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import run_reference
from prunecast.patterns import NestedMap, parse_pattern
from prunecast.workload.candidates import kernels_of
from tests.kernels.layouts import whole_numbers
from tests.toy_gpu import toy_gpu

TEXTS = [
    "balanced:16",
    "vector-wise:32",
    "shuffled-block:32",
    "atp:32",
    "atp-2d:32",
    "tvw:32",
    "dense-block:3",
    "tile-element:32",
    "vnm:32:2:8",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_kernel_of_a_pattern_multiplies_what_the_mask_keeps(text):
    m, k, n = 96, 144, 40
    importance = np.abs(np.random.default_rng(0).standard_normal((m, k)))
    pattern = parse_pattern(text)
    mask = pattern.prune({"w": importance}, 0.75)["w"]
    kept = pattern.map(mask)
    a, b = whole_numbers(m, k, 0), whole_numbers(k, n, 1)
    wanted = np.where(mask, a, 0.0) @ b
    a[~mask] = np.nan  # what is pruned must not be touched
    for kernel in kernels_of(text):
        if kernel == "two-part":
            continue
        plan = fastest_plan(kernel, kept, n=n, dtype="fp16", gpu=toy_gpu())
        assert (plan.kernel, plan.pattern) == (kernel, text)
        assert plan.density == np.count_nonzero(mask) / mask.size
        np.testing.assert_array_equal(run_reference(plan, a, b), wanted)


def test_sparse_tensor_cores_fetch_the_columns_of_the_tiles():
    pattern = parse_pattern("vnm:32:2:8")
    kept = pattern.map(pattern.prune({"w": np.ones((64, 128))})["w"])
    assert isinstance(kept, NestedMap)
    plan = fastest_plan("2:4", kept, n=40, dtype="fp16", gpu=toy_gpu())
    assert plan.b_access == "gather"
    assert set(plan.tiles.kept_per_tile) == {64}


@pytest.mark.parametrize(
    ("kernel", "pattern", "said"),
    [
        ("stspmm", "2:4", "stspmm runs TileMap, got ElementMap of 2:4"),
        ("balanced", "tile-wise:64", "balanced runs ElementMap, got TileMap of tile-wise:64"),
        ("dense", "tile-wise:64", "dense runs no map, got TileMap"),
    ],
)
def test_a_map_of_another_kind_is_refused(kernel, pattern, said):
    parsed = parse_pattern(pattern)
    mask = parsed.prune({"w": np.random.default_rng(0).random((128, 128))}, 0.5)["w"]
    with pytest.raises(BadInput, match=said):
        fastest_plan(kernel, parsed.map(mask), n=64, dtype="fp16", gpu=load_gpu("h200-sxm"))
