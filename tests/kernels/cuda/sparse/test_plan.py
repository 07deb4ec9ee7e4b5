"""What the planner asks of the sparse kernel."""

import numpy as np
import pytest

from prunecast.choice import TIE, fastest_plan, product_of
from prunecast.hardware import load_gpu
from prunecast.kernels import Schedule, run_reference
from prunecast.kernels.two_of_four.cuda.operator import SparseOperator, _check_sparse_form
from prunecast.kernels.two_of_four.kernel import _sparse_tensor_times
from prunecast.models import estimate
from prunecast.patterns import NestedMap, TileMap, parse_pattern, weigh
from prunecast.patterns.element_map import element_map_from_mask
from prunecast.workload.engines import simulate
from tests.kernels.cuda.sparse.layouts import FORMS, GPU, elements_in, plan_of


def tiles_of(height: int, tiles: int = 32, k: int = 256, kept: int = 64) -> TileMap:
    return tiles_with(height, k, [kept] * tiles)


def tiles_with(height: int, k: int, counts: list[int]) -> TileMap:
    """The first columns of each tile, so many."""
    return TileMap(
        m=height * len(counts),
        k=k,
        row_start=np.arange(len(counts) + 1) * height,
        row_index=np.arange(height * len(counts)),
        column_start=np.concatenate(([0], np.cumsum(counts))),
        column_index=np.concatenate([np.arange(kept) for kept in counts]),
        pattern=f"tvw:{height}",
    )


def nested(tiles: TileMap) -> NestedMap:
    return NestedMap(tiles=tiles, inner=elements_in(tiles))


def test_one_heavy_tile_is_split_and_the_product_stays() -> None:
    kept = nested(tiles_with(256, 8192, [8192, *[512] * 7]))
    p = fastest_plan("2:4", kept, 100, "fp16", GPU)
    _check_sparse_form(p)
    assert p.work.parts.max() > 1
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((p.m, p.k)), rng.standard_normal((p.k, p.n))
    np.testing.assert_allclose(run_reference(p, a, b), (a * kept.inner.mask()) @ b, atol=1e-9)


def test_equal_tiles_of_few_k_steps_are_split_where_the_planner_prices_partial_sums_too_high() -> None:
    """Eight tiles of 16 k-steps leave most of 108 SMs idle."""
    gpu = load_gpu("a100-sxm4-40gb")
    weights = np.random.default_rng(7).standard_normal((1024, 1000), np.float32)
    pattern = parse_pattern("2:4")
    kept = pattern.map(pattern.prune({"a": weigh("a", weights)}, 0.5)["a"])
    chosen = fastest_plan("2:4", kept, 128, "fp16", gpu)
    whole = product_of("2:4", kept, 128, "fp16", gpu).plan(chosen.config)
    assert (chosen.work.parts.max(), whole.work.parts.max()) == (2, 1)
    for engine in (estimate, simulate):
        assert engine(chosen, gpu).seconds < 0.9 * engine(whole, gpu).seconds


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("slices", [1, 2])
def test_only_plans_with_split_tiles_are_compiled_to_add_sums(form: tuple[int, int], slices: int) -> None:
    p = plan_of(200, form, blocks=3, slices=slices)
    assert p.work.parts.max() == slices
    assert SparseOperator.compile_inputs(p).defines.get("SPLIT_K", 0) == slices - 1


@pytest.mark.parametrize("counts", [[8192, *[512] * 7], [4096, 3000, 2000, 1000] * 8])
@pytest.mark.parametrize("n", [100, 2048])
def test_a_split_plan_is_taken_where_the_closed_form_finds_it_faster(counts: list[int], n: int) -> None:
    kept = nested(tiles_with(256, 8192, counts))
    chosen = estimate(fastest_plan("2:4", kept, n, "fp16", GPU), GPU).seconds
    for config in product_of("2:4", kept, n, "fp16", GPU).configs():
        whole, *split = product_of("2:4", kept, n, "fp16", GPU).plans(config)
        assert whole.work.parts.max() == 1
        assert all(plan.work.parts.max() > 1 for plan in split)
        assert chosen <= TIE * min(estimate(plan, GPU).seconds for plan in (whole, *split))


@pytest.mark.parametrize(("name", "is_persistent"), [("h200-sxm", True), ("a100-sxm4-80gb", False)])
def test_only_blocks_of_a_persistent_grid_fill_their_stages_once(name: str, is_persistent: bool) -> None:
    gpu = load_gpu(name)
    kept = element_map_from_mask(np.tile([True, False, True, False], (512, 64)), "2:4")
    configs = product_of("2:4", kept, 512, "fp16", gpu).configs()
    assert (fastest_plan("2:4", kept, 512, "fp16", gpu).schedule is Schedule.STATIC) == is_persistent
    for times in _sparse_tensor_times(configs, kept, 512, "fp16", gpu):
        assert (times.once > 0.0) == is_persistent


def test_equal_tiles_that_fill_the_gpu_are_not_split() -> None:
    p = fastest_plan("2:4", nested(tiles_of(256, tiles=33, kept=256)), 2048, "fp16", GPU)
    assert p.work.parts.max() == 1


def test_blocks_without_wgmma_split_heavy_tiles_alone() -> None:
    a100 = load_gpu("a100-sxm4-80gb")
    p = fastest_plan("2:4", nested(tiles_with(256, 8192, [8192, *[512] * 7])), 100, "fp16", a100)
    heavy = p.tiles.kept_per_tile[p.work.tile] == 8192
    assert p.work.parts[heavy].min() > 1
    assert p.work.parts[~heavy].max() == 1


@pytest.mark.parametrize(("height", "form"), [(256, (256, 128)), (512, (256, 128)), (128, (128, 256))])
def test_tiles_that_fill_256_rows_get_them(height: int, form: tuple[int, int]) -> None:
    tiles = tiles_of(height)
    p = fastest_plan("2:4", nested(tiles), 8192, "fp16", GPU)
    _check_sparse_form(p)
    assert p.shape[:2] == form
    assert p.schedule is Schedule.STATIC
    assert p.blocks == GPU.sm_count


def test_a_plain_matrix_is_one_tile_cut_to_the_blocks_height() -> None:
    mask = np.tile([True, False, False, True], (1000, 64))
    p = fastest_plan("2:4", element_map_from_mask(mask, "2:4"), 8192, "bf16", GPU)
    _check_sparse_form(p)
    assert p.tiles.rows_per_tile.tolist() == [256, 256, 256, 232]
    assert (p.tiles.kept_per_tile == 256).all()


@pytest.mark.parametrize("rows", [1, 40, 64, 100])
def test_low_matrices_get_the_lowest_form(rows: int) -> None:
    mask = np.tile([True, False, False, True], (rows, 64))
    p = fastest_plan("2:4", element_map_from_mask(mask, "2:4"), 64, "fp16", GPU)
    _check_sparse_form(p)
    assert p.shape.block_m == 128
