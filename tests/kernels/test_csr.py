"""The CSR product is dealt out by elements, and counts what the library launches besides."""

import numpy as np
import pytest

from prunecast.hardware.load import load_gpu
from prunecast.kernels.csr import ELEMENTS, OTHER_LAUNCHES_S, plan_csr
from prunecast.models import estimate
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.simulator import simulate


def elements(kept: list[int]) -> ElementMap:
    """Rows that keep their first so many of 512 columns."""
    columns = np.concatenate([np.arange(count) for count in kept])
    start = np.concatenate([[0], np.cumsum(kept)])
    return ElementMap(m=len(kept), k=512, row_start=start, column_index=columns, pattern="unstructured")


@pytest.mark.parametrize("n", [16, 128, 300])
def test_every_block_gets_the_same_number_of_elements_and_none_is_lost(n):
    kept = [0, 1, 300, 0, 512, 512, 512, 7, 204] * 11 + [0]
    gpu = load_gpu("h200-sxm")
    plan = plan_csr(elements(kept), n, "fp16", gpu)
    work, ranges = plan.work, -(-n // plan.shape.block_n)
    lengths = work.k_stop - work.k_start
    assert np.bincount(work.tile, lengths).tolist() == [ranges * count for count in kept]
    assert np.bincount(work.tile, work.owner).tolist() == [ranges] * len(kept)
    # 22 blocks of 1,024 elements for each range of tokens, each a list of its own
    assert sum(kept) == 22 * ELEMENTS
    of_list = np.repeat(np.arange(plan.blocks), np.diff(work.block_start))
    assert np.abs(np.bincount(of_list, lengths) - ELEMENTS).max() < 32


def test_blocks_of_one_sm_stand_in_one_list():
    gpu = load_gpu("h200-sxm")
    plan = plan_csr(elements([512] * 600), 16, "fp16", gpu)
    of_list = np.repeat(np.arange(plan.blocks), np.diff(plan.work.block_start))
    lengths = np.bincount(of_list, plan.work.k_stop - plan.work.k_start)
    # 300 blocks on 132 SMs: three rounds, of which the last has 36
    assert lengths.tolist() == [3 * ELEMENTS] * 36 + [2 * ELEMENTS] * 96


@pytest.mark.parametrize(("tokens", "width"), [(1, 32), (32, 32), (33, 64), (65, 128), (300, 128)])
def test_blocks_are_as_wide_as_the_tokens_ask_for(tokens, width):
    assert plan_csr(elements([8] * 4), tokens, "fp16", load_gpu("h200-sxm")).shape == (1, width, 32)


def test_times_rise_in_rounds_of_blocks():
    """Measured, H200, 2026-11-21, 16 tokens: 104,610 elements 11.06 us, 156,993 15.44, both to 15 %."""
    gpu, rng = load_gpu("h200-sxm"), np.random.default_rng(0)
    for m, k, density, us in ((512, 2048, 0.1, 11.06), (512, 1024, 0.3, 15.44)):
        kept = element_map_from_mask(rng.random((m, k)) < density, "unstructured")
        for engine in (simulate, estimate):
            assert engine(plan_csr(kept, 16, "fp16", gpu), gpu).seconds == pytest.approx(us * 1e-6, rel=0.15)


@pytest.mark.parametrize("engine", [simulate, estimate])
def test_other_launches_are_part_of_the_launch_floor(engine):
    gpu = load_gpu("h200-sxm")
    result = engine(plan_csr(elements([8] * 4), 64, "fp16", gpu), gpu)
    assert result.launch_s == gpu.graph_launch_s + OTHER_LAUNCHES_S
    assert result.seconds == result.launch_s + result.cycles / result.clock_hz


def test_rows_of_b_that_stay_in_l1_save_time():
    """Measured (H200): a round takes 6.7 to 6.9 us with 1,024 to 1,280 columns, 7.4 with 5,120 (n = 128)."""
    gpu, rng = load_gpu("h200-sxm"), np.random.default_rng(0)
    cycles = []
    for k in (1024, 5120):
        kept = element_map_from_mask(rng.random((1024 * 1024 // k, k)) < 0.25, "unstructured")
        cycles.append(estimate(plan_csr(kept, 2048, "fp16", gpu), gpu).cycles)
    assert 0.90 < cycles[0] / cycles[1] < 0.95
