"""The config that is chosen: the best of all by the closed form, or near it, and what measurements said."""

import contextlib

import pytest

from prunecast.choice import fastest_plan, product_of
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels import KERNELS, KernelPlan, PlanDoesNotFit, Schedule, plan_stspmm
from prunecast.kernels.tile.configs import tile_configs
from prunecast.models import estimate
from tests.kernels.layouts import (
    PLANNED,
    elements_of_density,
    example,
    tiles_keeping,
)
from tests.toy_gpu import toy_gpu

H200 = load_gpu("h200-sxm")
A100 = load_gpu("a100-sxm4-80gb")


def stspmm(kept: list[int], n: int, gpu=H200, *, height: int = 128, k: int = 4096) -> KernelPlan:
    return fastest_plan("stspmm", tiles_keeping(kept, height=height, k=k), n, "fp16", gpu)


@pytest.mark.parametrize("gpu", [H200, A100], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("kernel", ["stspmm", "tile-wise"])
@pytest.mark.parametrize(
    ("m", "kept", "k", "n"),
    [(768, 80, 768, 4096), (3072, 192, 768, 4096), (768, 1536, 3072, 4096), (4096, 1024, 4096, 4096)],
)
def test_the_chosen_config_is_the_models_best_within_two_per_cent(gpu, kernel, m, kept, k, n):
    tiles = tiles_keeping([kept] * (m // 128), height=128, k=k)
    seconds = [
        estimate(product_of(kernel, tiles, n, "fp16", gpu).plan(config), gpu).seconds
        for config in product_of(kernel, tiles, n, "fp16", gpu).configs()
    ]
    chosen = fastest_plan(kernel, tiles, n, "fp16", gpu)
    assert estimate(chosen, gpu).seconds <= 1.02 * min(seconds)


@pytest.mark.parametrize("kernel", [name for name in PLANNED if KERNELS[name].times is not None])
def test_every_config_of_a_kernel_can_be_planned_and_told_by_its_name(kernel):
    kept = example(kernel, 256, 512)
    configs = product_of(kernel, kept, 40, "fp16", H200).configs()
    assert len({str(config) for config in configs}) == len(configs) > 1
    planned = 0
    for config in configs:
        with contextlib.suppress(PlanDoesNotFit):  # records of a balanced layout may be too long
            plan = product_of(kernel, kept, 40, "fp16", H200).plan(config)
            assert str(plan.config) == str(config)
            assert occupancy(plan.resources, H200).blocks_per_sm > 0
            planned += 1
    assert planned > 1


def test_a_search_plans_no_more_configs_than_it_may():
    tiles = tiles_keeping([1024] * 32, height=128, k=4096)
    first = fastest_plan("stspmm", tiles, 4096, "fp16", H200, most=1)
    chosen = fastest_plan("stspmm", tiles, 4096, "fp16", H200)
    assert estimate(chosen, H200).seconds <= estimate(first, H200).seconds


def test_a_config_can_be_asked_for():
    tiles = tiles_keeping([192] * 6, height=128, k=768)
    for config in tile_configs(H200, "fp16", 128):
        assert product_of("stspmm", tiles, 512, "fp16", H200).plan(config).shape == config.shape
        plan = product_of("tile-wise", tiles, 512, "fp16", H200).plan(config)
        assert (plan.shape, plan.schedule) == (config.shape, Schedule.HARDWARE)


def test_a_gpu_that_no_config_fits_is_refused():
    gpu, tiles = toy_gpu(shared_bytes_per_block=4096), tiles_keeping([64], height=64, k=64)
    with pytest.raises(PlanDoesNotFit, match="stspmm: no config of the kernel fits on an SM of toy"):
        fastest_plan("stspmm", tiles, 64, "fp16", gpu)


def test_a_map_that_a_kernel_does_not_run_is_refused():
    with pytest.raises(BadInput, match="stspmm runs TileMap, got ElementMap"):
        fastest_plan("stspmm", elements_of_density(64, 64, 0.5), 64, "fp16", H200)
    with pytest.raises(BadInput, match="kernel must be one of"):
        fastest_plan("stspm", tiles_keeping([64], height=64, k=64), 64, "fp16", H200)


def test_192_token_blocks_win_where_256_leave_sms_idle():
    """768 x 3072 x 4096, 75 %, H200: 132 tiles of 128 x 192 take 11.8 us, 96 of 128 x 256 13 (2026-11-21)."""
    tiles = tiles_keeping([768] * 6, height=128, k=3072)
    assert fastest_plan("tile-wise", tiles, 4096, "fp16", H200).shape[:2] == (128, 192)


def test_large_products_take_the_largest_blocks():
    """128 x 128 blocks were 6 to 19 % slower on an H200 (2026-11-20)."""
    assert stspmm([1024] * 32, 4096).shape[:2] == (128, 256)


def test_tall_tiles_take_blocks_that_gather_fewer_tokens():
    assert stspmm([1024] * 16, 4096, height=256).shape[:2] == (256, 128)


def test_short_tiles_get_two_blocks_to_an_sm_where_one_would_wait_for_its_own_stores():
    """A100, 3 k-steps: one block of 128 x 256 to an SM leaves it idle while C is written.

    The time is 28 us, with two blocks of 128 x 128 27 us. With 6 k-steps both are equal within 2 %.
    """
    plan = stspmm([96] * 24, 4096, A100, k=768)
    assert occupancy(plan.resources, A100).blocks_per_sm == 2


def test_items_that_have_an_sm_each_are_split_only_where_that_is_faster():
    """A100, 104 items of 64 x 128 on 108 SMs of two slots: halves hide each other's waits, or do not."""
    tiles = tiles_keeping([512] * 8, height=64, k=1024)
    config = next(c for c in tile_configs(A100, "fp16", 64) if c.shape[:2] == (64, 128))
    assert occupancy(config.resources, A100).blocks_per_sm == 2
    plan, whole = (plan_stspmm(tiles, 1568, "fp16", A100, config, split=split) for split in ("auto", None))
    assert whole.item_count == 104
    assert plan.work.parts.max() == 1 or estimate(plan, A100).seconds < estimate(whole, A100).seconds


def test_splits_that_would_not_be_made_count_for_no_config():
    """H200: 50 items of 128 x 128 would be even in 2.6 parts each; whole they take 13.7 us, 128 x 64 11.5."""
    assert stspmm([1996] * 10, 640, k=3072).shape[:2] == (128, 64)


def test_what_is_read_drives_out_c_before_the_last_item_multiplies():
    """H200: 98 blocks of 128 x 256 that read 6 MB and write 6 take 6.6 us, 196 of 128 x 128 5.7."""
    assert stspmm([128], 25088, k=256).shape[:2] != (128, 256)
