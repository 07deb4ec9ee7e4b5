"""The time of a form by arithmetic: one case by hand, a law, and the choices that follow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.hardware.load import load_gpu
from prunecast.kernels.early_start import blocks_apart_cycles
from prunecast.kernels.tile.configs import tile_configs
from prunecast.kernels.tile.form_items import form_item, form_load, lead_cycles
from prunecast.kernels.tile.form_time import form_time
from prunecast.kernels.tile.step_cost import step_cost
from prunecast.kernels.tile.stspmm import choose_stspmm, plan_stspmm
from prunecast.kernels.tile.tile_wise import choose_tile_wise, plan_tile_wise
from prunecast.models import estimate
from prunecast.plan.kernel_plan import Schedule
from tests.kernels.layouts import tiles_keeping
from tests.toy_gpu import toy_gpu

ENDLESS = {"l2_bytes_per_s": 1e18, "l2_store_bytes_per_s": 1e18, "dram_bytes_per_s": 1e18}


def test_means_of_items_by_hand():
    """A tile of 200 rows is two blocks of 128; 100 columns are 2 steps of 64, or 7 quarters of one."""
    config = tile_configs(toy_gpu(), "fp16", 128)[0]
    assert config.shape == (128, 256, 64)
    load = form_load(config, tiles_keeping([100], height=200, k=640), 300)
    assert (load.items, load.steps, load.full_steps, load.longest_kept) == (4, 2.0, 7 / 4, 100)
    assert (load.tokens, load.c_bytes) == (150, 200 * 300 * 2 / 4)
    assert load.packed_bytes == 2 * 7 * 128 * 16 * 2


def test_one_wave_of_equal_items_by_hand():
    """4 items on 4 SMs: the block's start, its lead, one item, then the stores, at 1 GHz."""
    gpu = toy_gpu(**ENDLESS)
    config = tile_configs(gpu, "fp16", 128)[0]
    tiles = tiles_keeping([640] * 4, height=128, k=640)
    step = step_cost(config, 256, gpu)
    load = form_load(config, tiles, 256)
    item = form_item(config, load, step, gpu)
    # 10 steps of 2048 cycles of tensor work
    assert item.demand == 10 * 2048
    # The entry of its item, half a gather's latency and 36 issues; 4096 sums of a warp rounded in 64 + 20
    # issues, and written in 16 with twice the latency of 30, 8 KB at 128 bytes a cycle; the second half of C
    # waits until the first, 32 KB at 64 bytes a cycle, has left the staging buffer
    assert item.alone == 20480 + 136 + 84 + 16 + 60 + 64 + 512
    lead = lead_cycles(config, load, step, gpu)
    assert lead == 500 + 48 * 1024 / 64 + 20
    # Before the lead a producer sets itself up (300), finds its item (300) and waits for its indices (500),
    # where the launch before leaves no SM, and its warps for their entry. The second half of C leaves behind
    # the item; then the SM hears of it
    nanoseconds = 500 + 300 + 300 + 500 + lead + item.alone - 136 + 512 + 100
    assert form_time(config, tiles, 256, gpu, persistent=True) == pytest.approx(nanoseconds * 1e-9, rel=1e-9)


def test_a_fifth_item_waits_for_an_sm_unless_it_can_be_cut():
    gpu = toy_gpu(**ENDLESS)
    config = tile_configs(gpu, "fp16", 128)[0]
    four, five = (tiles_keeping([6400] * count, height=128, k=6400) for count in (4, 5))
    one, two = (form_time(config, tiles, 256, gpu, persistent=True) for tiles in (four, five))
    assert two / one == pytest.approx(2.0, rel=0.02)
    assert form_time(config, five, 256, gpu, persistent=True, divisible=True) < 1.5 * one


@settings(max_examples=60, deadline=None)
@given(
    kept=st.lists(st.integers(16, 500), min_size=1, max_size=12),
    more=st.integers(0, 140),
    n=st.integers(1, 1000),
    form=st.integers(0, 6),
    persistent=st.booleans(),
)
def test_more_columns_never_take_less_time(kept, more, n, form, persistent):
    gpu = toy_gpu()
    config = tile_configs(gpu, "fp16", 128)[form % len(tile_configs(gpu, "fp16", 128))]
    few, many = (tiles_keeping([c + d for c in kept], height=128, k=640) for d in (0, more))
    times = [form_time(config, tiles, n, gpu, persistent=persistent) for tiles in (few, many)]
    assert times[0] <= times[1] * (1 + 1e-12)


@pytest.mark.parametrize("gpu_name", ["h200-sxm", "a100-sxm4-80gb", "l4"])
@pytest.mark.parametrize(("m", "kept", "k", "n"), [(768, 192, 768, 4096), (2048, 1024, 4096, 2048)])
def test_forms_take_what_the_model_says_within_a_tenth(gpu_name, m, kept, k, n):
    """Whole tiles, so that what a cut costs, which is measured here and modelled there, stays outside."""
    gpu = load_gpu(gpu_name)
    tiles = tiles_keeping([kept] * (m // 128), height=128, k=k)
    for form in choose_stspmm(tiles, n, "fp16", gpu, divisible=False):
        result = estimate(plan_stspmm(tiles, n, "fp16", gpu, split=None, config=form.config), gpu)
        seconds = result.seconds - result.launch_s
        assert form.cycles / gpu.max_clock_hz == pytest.approx(seconds, rel=0.1), form.config.shape


@pytest.mark.parametrize("gpu_name", ["h200-sxm", "a100-sxm4-80gb"])
@pytest.mark.parametrize(
    ("m", "kept", "k", "n"),
    [(768, 80, 768, 4096), (3072, 192, 768, 4096), (768, 1536, 3072, 4096), (4096, 1024, 4096, 4096)],
)
def test_the_chosen_form_is_the_models_best_within_two_per_cent(gpu_name, m, kept, k, n):
    gpu = load_gpu(gpu_name)
    tiles = tiles_keeping([kept] * (m // 128), height=128, k=k)
    seconds = [
        estimate(plan_stspmm(tiles, n, "fp16", gpu, config=form.config), gpu).seconds
        for form in choose_stspmm(tiles, n, "fp16", gpu)
    ]
    assert seconds[0] <= 1.02 * min(seconds)


def test_blocks_that_leave_sms_start_before_the_last_of_them_ends():
    """H200, 96 blocks: the next launch needs none of the SMs that end last: 100 cycles and a third
    of what blocks do first, for they start in three groups of up to 36."""
    gpu = load_gpu("h200-sxm")
    tiles = tiles_keeping([192] * 6, height=128, k=768)
    config = next(v for v in tile_configs(gpu, "fp16", 128) if v.shape[:2] == (128, 256))
    assert blocks_apart_cycles(96, 1900.0, gpu) == 100 + 1900 / 3
    assert blocks_apart_cycles(80, 1900.0, gpu) == 100 + 1900 / 2
    assert blocks_apart_cycles(129, 1900.0, gpu) == 0.0
    loads = np.full(96, 5000.0)
    even, apart = (
        form_time(config, tiles, 4096, gpu, persistent=True, block_loads=x)
        for x in (np.full(132, 5000.0), loads)
    )
    assert 0.9 * 625 < (even - apart) * gpu.max_clock_hz < 1.3 * 850


def test_lists_that_end_apart_let_the_next_launch_begin():
    """Of lists whose longest block is the same the uneven ones let long blocks start on SMs that are left."""
    gpu = load_gpu("h200-sxm")
    tiles = tiles_keeping([192] * 6, height=128, k=768)
    config = next(v for v in tile_configs(gpu, "fp16", 128) if v.shape[:2] == (128, 256))
    loads = np.full(132, 8000.0), np.linspace(8000.0, 4000.0, 132)
    even, uneven = (form_time(config, tiles, 4096, gpu, persistent=True, block_loads=x) for x in loads)
    assert 0.0 < even - uneven < 1.1 * gpu.most_before_b_cycles / gpu.clock_burst_hz[-1]


def test_short_tiles_get_two_blocks_to_an_sm_where_one_would_wait_for_its_own_stores():
    """A100, 6 k-steps: one block of 128 x 256 to an SM leaves it idle while C is written."""
    tiles = tiles_keeping([192] * 24, height=128, k=768)
    first = choose_stspmm(tiles, 4096, "fp16", load_gpu("a100-sxm4-80gb"))[0]
    assert (first.config.shape[:2], first.blocks_per_sm) == ((128, 128), 2)


def test_a_form_can_be_asked_for():
    gpu = load_gpu("h200-sxm")
    tiles = tiles_keeping([192] * 6, height=128, k=768)
    for form in choose_stspmm(tiles, 512, "fp16", gpu):
        assert plan_stspmm(tiles, 512, "fp16", gpu, config=form.config).shape == form.config.shape
    for form in choose_tile_wise(tiles, 512, "fp16", gpu):
        plan = plan_tile_wise(tiles, 512, "fp16", gpu, config=form.config)
        assert (plan.shape, plan.schedule) == (form.config.shape, Schedule.HARDWARE)


def test_items_that_have_an_sm_each_are_cut_only_where_that_is_faster():
    """A100, 104 items of 64 x 128 on 108 SMs of two slots: halves hide each other's waits, or do not."""
    gpu = load_gpu("a100-sxm4-80gb")
    tiles = tiles_keeping([512] * 8, height=64, k=1024)
    form = next(f for f in choose_stspmm(tiles, 1568, "fp16", gpu) if f.config.shape[:2] == (64, 128))
    assert form.blocks_per_sm == 2
    plan, whole = (
        plan_stspmm(tiles, 1568, "fp16", gpu, config=form.config, split=split) for split in ("auto", None)
    )
    assert whole.item_count == 104
    assert plan.work.parts.max() == 1 or estimate(plan, gpu).seconds < estimate(whole, gpu).seconds


def test_cuts_that_would_not_be_made_count_for_no_form():
    """H200: 50 items of 128 x 128 would be even in 2.6 parts each; whole they take 13.7 us, 128 x 64 11.5."""
    tiles = tiles_keeping([1996] * 10, height=128, k=3072)
    assert choose_stspmm(tiles, 640, "fp16", load_gpu("h200-sxm"))[0].config.shape[:2] == (128, 64)


def test_what_is_read_drives_out_c_before_the_last_item_multiplies():
    """H200: 98 blocks of 128 x 256 that read 6 MB and write 6 take 6.6 us, 196 of 128 x 128 5.7."""
    tiles = tiles_keeping([128], height=128, k=256)
    assert choose_stspmm(tiles, 25088, "fp16", load_gpu("h200-sxm"))[0].config.shape[:2] != (128, 256)
