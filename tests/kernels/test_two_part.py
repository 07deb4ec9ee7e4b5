import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import run_reference
from prunecast.kernels.libraries.cusparse.kernel import plan_csr
from prunecast.models import estimate
from prunecast.patterns import element_map_from_mask, parse_pattern
from prunecast.patterns.dense_block_pattern import cheaper_parts
from prunecast.patterns.tile_element import split_parts
from prunecast.plan.program import Op
from prunecast.workload.two_parts import plan_in_two

H200 = load_gpu("h200-sxm")
masks = hnp.arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 9)))


def product_of(plan, mask, a, b):
    """C (M, N) float64 of both launches."""
    return sum(run_reference(launch, np.where(mask, a, 0.0), b) for launch in plan)


@given(mask=masks, height=st.integers(1, 4), share=st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_every_kept_element_is_in_one_part(mask, height, share):
    parts = split_parts(element_map_from_mask(mask, "by hand"), height=height, least_share=share)
    tiled, rest = parts.tiles.mask(), parts.rest.mask()
    assert not (tiled & rest).any()
    assert not (mask & ~tiled & ~rest).any()
    assert not (rest & ~mask).any()
    for first in range(0, mask.shape[0], height):
        rows = slice(first, first + height)
        kept = mask[rows].mean(axis=0)
        np.testing.assert_array_equal(tiled[rows].any(axis=0), (kept > 0) & (kept >= share - 1e-12))


def parts_of(seed, share):
    pattern = parse_pattern("tile-element:64x5")
    importance = np.random.default_rng(seed).random((256, 256))
    mask = pattern.prune({"w": importance}, 0.75)["w"]
    return mask, split_parts(pattern.map(mask), height=64, least_share=share)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), share=st.sampled_from([0.0, 0.1, 1.0]))
def test_both_launches_together_mean_the_product(seed, share):
    mask, parts = parts_of(seed, share)
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(256, 256)), random.normal(size=(256, 40))
    plan = plan_in_two(parts, 40, "fp16", H200)
    result = product_of(plan, mask, a, b)
    np.testing.assert_allclose(result, (a * mask) @ b, rtol=1e-10, atol=1e-10)


def test_dense_blocks_with_leftovers_are_two_parts():
    random = np.random.default_rng(1)
    scores = random.random((128, 96))
    found = cheaper_parts(scores, 0.6, lambda parts: 1.0 + parts.tiles.density)
    plan = plan_in_two(found, 32, "fp16", H200)
    mask = found.tiles.mask() | found.rest.mask()
    a, b = random.normal(size=(128, 96)), random.normal(size=(96, 32))
    result = product_of(plan, mask, a, b)
    np.testing.assert_allclose(result, (a * mask) @ b, rtol=1e-10, atol=1e-10)


def test_the_second_launch_reads_c_and_leaves_out_rows_without_work():
    mask = np.zeros((128, 64), bool)
    mask[:, :8] = True
    mask[5, 20] = mask[70, 30] = True
    parts = split_parts(element_map_from_mask(mask, "by hand"), height=64, least_share=0.5)
    plan = plan_in_two(parts, 256, "fp16", H200)
    assert [launch.kernel for launch in plan] == ["stspmm", "csr"]
    assert sorted(set(plan[1].work.tile.tolist())) == [5, 70]
    alone = plan_csr(parts.rest, 256, "fp16", H200)
    ends = [[ins.op for ins in launch.programs[0].end] for launch in (alone, plan[1])]
    assert Op.LOAD_INDEX not in ends[0]
    assert ends[1].index(Op.LOAD_INDEX) < ends[1].index(Op.STORE_C)
    assert all(estimate(launch, H200).seconds > 0 for launch in plan)


def test_a_part_that_is_empty_is_not_launched():
    everything = np.ones((64, 64), bool)
    scattered = np.eye(64, dtype=bool)
    nothing = np.zeros((64, 64), bool)
    kernels = {}
    for name, mask in {"tiles": everything, "rest": scattered, "none": nothing}.items():
        parts = split_parts(element_map_from_mask(mask, "by hand"), height=32, least_share=1.0)
        plan = plan_in_two(parts, 64, "fp16", H200)
        kernels[name] = [launch.kernel for launch in plan]
        result = product_of(plan, mask, np.ones((64, 64)), np.ones((64, 64)))
        np.testing.assert_array_equal(result, mask.astype(float) @ np.ones((64, 64)))
    assert kernels == {"tiles": ["stspmm"], "rest": ["csr"], "none": ["stspmm"]}


def test_a_share_that_is_none_is_refused():
    with pytest.raises(BadInput, match=r"wanted a share of 0 to 1, got 1\.5"):
        split_parts(element_map_from_mask(np.eye(4, dtype=bool), "by hand"), height=2, least_share=1.5)
