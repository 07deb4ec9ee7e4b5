"""Every plan, executed item by item, is (A * mask) @ B."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.choice import fastest_plan
from prunecast.kernels import (
    plan_csr,
    plan_dense,
    run_reference,
)
from prunecast.kernels.tile.stspmm import ASSIGNMENTS
from prunecast.kernels.two_of_four.kernel import _sparse_tensor_configs, plan_sparse_tensor
from prunecast.patterns.element_map import element_map_from_mask
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import KernelPlan
from tests.kernels.layouts import (
    elements_of_density,
    tiles_keeping,
    tiles_of_density,
    two_of_four,
    whole_numbers,
)
from tests.kernels.plan_laws import check_plan
from tests.toy_gpu import toy_gpu

CAPABILITIES = (70, 75, 80, 89, 90, 100, 120)
TILE_KERNELS = ("tile-wise", "stspmm", "block-sparse")


def check_meaning(plan: KernelPlan, mask: np.ndarray) -> None:
    check_plan(plan)
    a, b = whole_numbers(plan.m, plan.k, 1), whole_numbers(plan.k, plan.n, 2)
    a[~mask] = np.nan  # what is pruned must not be touched
    kept = np.where(mask, a, 0.0)
    np.testing.assert_array_equal(run_reference(plan, a, b), kept @ b)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("density", [0, 0.03, 0.5, 1])
@pytest.mark.parametrize("kernel", TILE_KERNELS)
def test_a_tile_kernel_multiplies_what_its_tiles_keep(kernel, density, capability):
    tiles = tiles_of_density(200, 150, 64, density)
    plan = fastest_plan(kernel, tiles, 300, "fp16", toy_gpu(compute_capability=capability))
    check_meaning(plan, tiles.mask())


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize("split", ["auto", None, 1, 3])
@pytest.mark.parametrize("capability", [80, 90])
def test_stspmm_means_the_same_however_it_is_assigned_and_split(capability, split, assignment):
    tiles = tiles_keeping([900, 0, 70, 1], height=64, k=1000, m=250)
    gpu = toy_gpu(compute_capability=capability)
    plan = fastest_plan("stspmm", tiles, 70, "fp16", gpu, assignment=assignment, split=split)
    by_blocks, several = assignment != "longest-first", len(plan.work.block_start) > 2
    if assignment == "stream-k" or (several if by_blocks else isinstance(split, int)):
        assert plan.work.parts.max() > 1
    check_meaning(plan, tiles.mask())


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (129, 65, 257), (40, 700, 8), (300, 64, 64)])
def test_the_dense_kernel_multiplies_everything(capability, m, k, n):
    plan = plan_dense(m, k, n, "fp16", toy_gpu(compute_capability=capability))
    check_meaning(plan, np.ones((m, k), bool))


def test_the_dense_kernel_with_split_k_multiplies_everything():
    plan = plan_dense(60, 4000, 30, "fp16", toy_gpu(sm_count=132))
    assert plan.work.parts.max() > 1
    check_meaning(plan, np.ones((60, 4000), bool))


@pytest.mark.parametrize("capability", [80, 89, 90, 100, 120])
@pytest.mark.parametrize("k", [64, 150])
def test_the_2_of_4_kernel_multiplies_only_the_kept_elements(capability, k):
    elements = two_of_four(200, k)
    plan = fastest_plan("2:4", elements, 90, "fp16", toy_gpu(compute_capability=capability))
    check_meaning(plan, elements.mask())


def test_2_of_4_inside_tiles_counts_neighbours_in_the_tiles_own_list():
    tiles = tiles_keeping([100, 30], height=64, k=150, seed=3)
    mask = tiles.mask()
    for tile in range(2):
        columns = tiles.column_index[tiles.column_start[tile] : tiles.column_start[tile + 1]]
        mask[64 * tile : 64 * tile + 64, columns[2::4]] = False
        mask[64 * tile : 64 * tile + 64, columns[3::4]] = False
    elements = element_map_from_mask(mask, "tile-wise-2d:64x2:4")
    config = _sparse_tensor_configs(elements, 90, "fp16", toy_gpu(), tiles=tiles)[0]
    plan = plan_sparse_tensor(elements, 90, "fp16", toy_gpu(), config, tiles=tiles)
    assert plan.b_access == "gather"
    check_meaning(plan, mask)


@pytest.mark.parametrize("density", [0, 0.05, 0.7, 1])
@pytest.mark.parametrize("n", [5, 128, 300])
def test_the_csr_kernel_multiplies_the_kept_elements(density, n):
    elements = elements_of_density(70, 90, density)
    check_meaning(plan_csr(elements, n, "fp16", toy_gpu()), elements.mask())


@pytest.mark.parametrize("kernel", TILE_KERNELS)
@pytest.mark.parametrize("height", [16, 100, 256, 700])
def test_tiles_of_any_height_are_cut_to_the_block(kernel, height):
    tiles = tiles_keeping([90, 40], height=height, k=100)
    plan = fastest_plan(kernel, tiles, 70, "fp16", toy_gpu())
    assert plan.tiles.rows_per_tile.max() <= plan.shape.block_m
    check_meaning(plan, tiles.mask())


@pytest.mark.parametrize("kernel", TILE_KERNELS)
def test_shuffled_rows_and_rows_in_no_tile(kernel):
    rows = np.random.default_rng(0).permutation(200)[:130]
    tiles = tiles_keeping([50, 0, 90], height=64, k=100, m=200, rows=rows)
    check_meaning(fastest_plan(kernel, tiles, 70, "fp16", toy_gpu()), tiles.mask())


@pytest.mark.parametrize("kernel", TILE_KERNELS)
def test_no_tile_at_all_gives_zeros(kernel):
    tiles = tiles_keeping([], height=64, k=10, m=20, rows=np.zeros(0, int))
    plan = fastest_plan(kernel, tiles, 7, "fp16", toy_gpu())
    assert plan.item_count == 0
    assert not run_reference(plan, whole_numbers(20, 10, 0), whole_numbers(10, 7, 1)).any()


@pytest.mark.parametrize(("capability", "b_access"), [(80, "dense_tile"), (90, "gather")])
def test_a_block_sparse_map_is_read_in_slabs(capability, b_access):
    """On sm_90 the project's own kernel gathers them."""
    kept = np.random.default_rng(1).random((3, 5)) < 0.5
    mask = kept.repeat(64, axis=0).repeat(64, axis=1)
    tiles = _tiles_from(mask, 64)
    plan = fastest_plan("block-sparse", tiles, 100, "fp16", toy_gpu(compute_capability=capability))
    assert plan.b_access == b_access
    check_meaning(plan, mask)


def _tiles_from(mask: np.ndarray, height: int) -> TileMap:
    columns = [np.flatnonzero(row) for row in mask[::height]]
    return TileMap(
        m=mask.shape[0],
        k=mask.shape[1],
        row_start=np.arange(len(columns) + 1) * height,
        row_index=np.arange(mask.shape[0]),
        column_start=np.concatenate(([0], np.cumsum([c.size for c in columns]))),
        column_index=np.concatenate(columns),
        pattern=f"block:{height}x{height}",
    )


@settings(max_examples=60, deadline=None)
@given(
    kept=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    height=st.sampled_from([16, 32, 48, 128]),
    n=st.integers(1, 200),
    capability=st.sampled_from(CAPABILITIES),
    assignment=st.sampled_from(ASSIGNMENTS),
    split=st.one_of(st.sampled_from(["auto", None]), st.integers(1, 9)),
    dtype=st.sampled_from(["fp16", "bf16", "fp32", "tf32"]),
)
def test_any_stspmm_plan_means_its_mask(kept, height, n, capability, assignment, split, dtype):
    if capability < 80 and dtype != "fp32":
        dtype = "fp16"
    tiles = tiles_keeping(kept, height=height, k=300)
    gpu = toy_gpu(compute_capability=capability)
    plan = fastest_plan("stspmm", tiles, n, dtype, gpu, assignment=assignment, split=split)
    check_meaning(plan, tiles.mask())
