"""The choice of a config is plain arithmetic that can be redone by hand."""

import numpy as np
import pytest

from prunecast.hardware.load import load_gpu
from prunecast.kernels.libraries.cublas.planner import dense_configs
from prunecast.kernels.tile.choose import Demand, best, candidates
from prunecast.kernels.tile.configs import tile_configs
from prunecast.kernels.tile.step_cost import FIX_UP_OVER_TRANSFER, fix_up_cycles, step_cost
from prunecast.kernels.tile.stspmm import choose_stspmm
from prunecast.kernels.tile.tile_wise import choose_tile_wise
from prunecast.plan.kernel_plan import PlanDoesNotFit
from tests.kernels.layouts import tiles_keeping
from tests.toy_gpu import toy_gpu


def demand(tiles: int, rows: int, kept: int, n: int) -> Demand:
    return Demand(np.full(tiles, rows, np.int32), np.full(tiles, kept, np.int32), n)


def test_the_cost_of_a_step_by_level():
    """128 x 256 x 64 in fp16: 2 MiFMA; 80 KB of operands and 48 KB of copies; 48 KB through port and L2."""
    gpu = toy_gpu(l2_bytes_per_s=64e9, clock_burst_hz=(1e9, 0.5e9))
    cost = step_cost(tile_configs(gpu, "fp16", 128)[0], 4096, gpu)
    assert cost == (2048, 1024, 768, 48 * 1024 / (128 / 4))
    assert cost.cycles == 2048


def test_few_tokens_few_busy_sms_and_clusters_read_less():
    gpu = toy_gpu(l2_bytes_per_s=64e9)
    config = tile_configs(gpu, "fp16", 128)[0]
    assert step_cost(config, 64, gpu).l2_port == (16 + 8) * 1024 / 64
    assert step_cost(config, 4096, gpu, multicast=2).l2_port == (16 + 16) * 1024 / 64
    assert step_cost(config, 4096, gpu, busy_sms=1).l2 == 48 * 1024 / 64


def test_the_sums_of_a_part_pass_the_l2_port():
    gpu = toy_gpu()
    transfer_cycles = 128 * 256 * 4 / 64 + 200
    assert fix_up_cycles(tile_configs(gpu, "fp16", 128)[0], gpu) == FIX_UP_OVER_TRANSFER * transfer_cycles


def test_a_candidate_by_hand():
    """8 tiles x 2 token ranges on 4 SMs, one block each: 4 waves of 10 steps of 2048 cycles and 2500."""
    gpu = toy_gpu()
    found = candidates(tile_configs(gpu, "fp16", 128)[:1], demand(8, 128, 640, 512), gpu)
    assert len(found) == 1
    assert (found[0].items, found[0].waves, found[0].blocks_per_sm) == (16, 4.0, 1)
    assert found[0].cycles == 4 * (10 * 2048 + 2500)


def test_a_partial_wave_counts_whole_unless_work_is_divisible():
    gpu = toy_gpu()
    configs = tile_configs(gpu, "fp16", 128)[:1]
    whole = candidates(configs, demand(5, 128, 6400, 256), gpu)[0]
    divisible = candidates(configs, demand(5, 128, 6400, 256), gpu, divisible=True)[0]
    assert whole.cycles == 2 * (100 * 2048 + 2500)
    fix_up = FIX_UP_OVER_TRANSFER * (128 * 256 * 4 / 64 + 200)
    assert divisible.cycles == 1.25 * (100 * 2048 + 2500) + 2 * fix_up


def test_one_heavy_tile_is_waited_for():
    gpu = toy_gpu()
    uneven = Demand(np.full(4, 128, np.int32), np.array([6400, 64, 64, 64], np.int32), 256)
    assert candidates(tile_configs(gpu, "fp16", 128)[:1], uneven, gpu)[0].cycles == 100 * 2048 + 2500


def test_candidates_come_fastest_first():
    cycles = [c.seconds for c in dense_configs(4096, 4096, 4096, "fp16", toy_gpu())]
    assert cycles == sorted(cycles)
    assert len(cycles) >= 5


def test_192_token_blocks_win_where_256_leave_sms_idle():
    """768 x 3072 x 4096, 75 %, H200: 132 tiles of 128 x 192 take 11.8 us, 96 of 128 x 256 13 (2026-11-21)."""
    tiles = tiles_keeping([768] * 6, height=128, k=3072)
    assert choose_tile_wise(tiles, 4096, "fp16", load_gpu("h200-sxm"))[0].config.shape[:2] == (128, 192)


def test_large_products_take_the_largest_blocks():
    """128 x 128 blocks were 6 to 19 % slower on an H200 (2026-11-20)."""
    tiles = tiles_keeping([1024] * 32, height=128, k=4096)
    h200 = load_gpu("h200-sxm")
    assert choose_stspmm(tiles, 4096, "fp16", h200)[0].config.shape[:2] == (128, 256)


def test_of_equally_fast_forms_the_one_that_gathers_fewer_tokens_is_taken():
    tiles = tiles_keeping([1024] * 16, height=256, k=4096)
    assert choose_stspmm(tiles, 4096, "fp16", load_gpu("h200-sxm"))[0].config.shape[:2] == (256, 128)


def test_a_gpu_that_no_form_fits_is_refused():
    gpu = toy_gpu(shared_bytes_per_block=4096)
    assert dense_configs(64, 64, 64, "fp16", gpu) == []
    with pytest.raises(PlanDoesNotFit, match="dense: no config of the kernel fits on an SM of toy"):
        best([], "dense", gpu)
