"""The roofline that ranks configs: waves by hand, and laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.choice import product_of
from prunecast.hardware import load_gpu
from prunecast.kernels.kernel import ItemTimes
from prunecast.kernels.tile.configs import tile_configs
from prunecast.kernels.tile.item_cost import item_times
from prunecast.models.config_roofline import roofline_seconds
from tests.kernels.layouts import tiles_keeping
from tests.toy_gpu import toy_gpu

ENDLESS = {"l2_bytes_per_s": 1e18, "l2_store_bytes_per_s": 1e18, "dram_bytes_per_s": 1e18}
GPU = toy_gpu(**ENDLESS)


def times(tiles: int, *, alone: float = 1000.0, pipe: float = 600.0, **changes) -> ItemTimes:
    items = np.full(tiles, alone), np.full(tiles, pipe)
    return ItemTimes(*items, ranges=1, slots=1, weight_bytes=0.0, read_bytes=0.0)._replace(**changes)


def cycles(item_times: ItemTimes) -> float:
    return (roofline_seconds([item_times], 0.0, GPU)[0] - GPU.graph_launch_s) * GPU.clock_burst_hz[0]


def test_waves_of_items_on_four_sms():
    assert GPU.sm_count == 4
    assert cycles(times(4)) == pytest.approx(1000)
    assert cycles(times(5)) == pytest.approx(2000)
    assert cycles(times(4, once=300.0)) == pytest.approx(1300)


def test_blocks_of_an_sm_hide_each_others_waits_until_a_pipe_is_full():
    assert cycles(times(8, slots=2)) == pytest.approx(2 * 600)
    assert cycles(times(5, slots=2, pipe=300.0)) == pytest.approx(1000)


def test_blocks_of_overlapping_launches_meet_on_few_sms():
    assert cycles(times(2, slots=2, co_resident=True)) == pytest.approx(2 * 600 + 400)


def test_a_fifth_item_waits_for_an_sm_unless_it_can_be_split():
    whole, split = times(5, alone=9e4, pipe=9e4), times(5, alone=9e4, pipe=9e4, fix_up=1000.0)
    assert cycles(split) == pytest.approx(5 / 4 * 9e4 + 2000)
    assert cycles(whole) == pytest.approx(2 * 9e4)


def test_one_heavy_tile_is_waited_for():
    uneven = times(4, once=1e-9)._replace(alone=np.array([9e4, 10.0, 10.0, 10.0]), pipe=np.full(4, 10.0))
    assert cycles(uneven) == pytest.approx(9e4)


@pytest.mark.parametrize(("pipe", "mean_cycles"), [(100.0, 1125 / 2), (600.0, 600.0)])
def test_uneven_items_share_the_sms_by_latency_or_by_the_pipe(pipe, mean_cycles):
    """Eight items on four SMs of two blocks: one of 2000 cycles, seven of 1000, so that the mean is 1125."""
    uneven = times(8, pipe=pipe, slots=2)._replace(alone=np.array([2000.0] + [1000.0] * 7))
    assert cycles(uneven) == pytest.approx(2 * mean_cycles + 2000 / 2)
    split = uneven._replace(fix_up=10.0)
    assert cycles(split) == pytest.approx(2 * mean_cycles + 2 * 10)
    persistent = uneven._replace(alone=np.array([1300.0] + [1100.0] * 7), once=50.0)
    assert cycles(persistent) == pytest.approx(50 + max(2 * max(1125 / 2, pipe), 1300))


def test_items_within_a_tenth_of_their_mean_make_whole_waves():
    for longest, expected in ((1.09, 2 * 1000), (1.11, 5 / 4 * 1000 + 0.5 * 1110)):
        others = (5 - longest) / 4
        alone = 1000 * np.array([longest] + [others] * 4)
        assert cycles(times(5)._replace(alone=alone)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fix_up", "expected"),
    [
        (1000.0, 22_507.5 + 2 * 1000),  # 8 slices need 9e4 / 8 + 7 x 1000 cycles, less than an even share
        (9000.0, 9e4 / 3 + 2 * 9000),  # three slices are the best number
        (1e5, 9e4),  # the whole tile needs less than two slices
    ],
)
def test_a_heavy_tile_is_cut_into_the_number_of_slices_that_ends_first(fix_up, expected):
    one_heavy = times(4, fix_up=fix_up)._replace(
        alone=np.array([9e4, 10.0, 10.0, 10.0]), pipe=np.full(4, 1.0)
    )
    assert cycles(one_heavy) == pytest.approx(expected)


def test_dram_and_l2_bound_a_launch():
    gpu = toy_gpu()
    reads = times(1)._replace(weight_bytes=1e9, read_bytes=3e9)
    wanted = max((1e9 + 5e8) / gpu.dram_bytes_per_s, 3e9 / gpu.l2_bytes_per_s)
    assert roofline_seconds([reads], 5e8, gpu)[0] == pytest.approx(wanted + gpu.graph_launch_s)


@settings(max_examples=60, deadline=None)
@given(
    kept=st.lists(st.integers(16, 500), min_size=1, max_size=12),
    more=st.integers(0, 140),
    n=st.integers(1, 1000),
    place=st.integers(0, 6),
    gpu_name=st.sampled_from(("h200-sxm", "a100-sxm4-80gb", "t4")),
)
def test_more_columns_of_all_tiles_never_rank_a_config_lower(kept, more, n, place, gpu_name):
    gpu = load_gpu(gpu_name)
    configs = tile_configs(gpu, "fp16", 128)
    few, many = (
        item_times(
            configs[place % len(configs) :][:1],
            tiles_keeping([most + d] * len(kept), height=128, k=640),
            n,
            "fp16",
            gpu,
            persistent=False,
        )[0]
        for most in (max(kept),)
        for d in (0, more)
    )
    fewer, more = roofline_seconds([few, many], 0.0, gpu)
    assert fewer <= more * (1 + 1e-12)


def test_rows_of_b_that_no_tile_reads_take_no_time():
    """Tiles that keep the same 64 of 4096 columns are ranked by their work, not by all rows of B."""
    gpu, k, tokens = load_gpu("v100-sxm2-16gb"), 4096, 8192
    product = product_of("stspmm", tiles_keeping([64, 64], height=128, k=k), tokens, "fp16", gpu)
    seconds = product.roofline_seconds(product.configs())
    assert min(seconds) < 0.5 * 2 * k * tokens / gpu.dram_bytes_per_s
    assert len(set(seconds)) > 1
