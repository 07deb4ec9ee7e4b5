"""The CSR product is dealt out by elements, and counts what the library launches besides."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.hardware.load import load_gpu
from prunecast.kernels.libraries.cusparse.kernel import plan_csr
from prunecast.kernels.libraries.cusparse.programs import (
    chain_cycles,
    cusparse_costs,
    meeting_cycles,
    missed_after,
    missed_share,
)
from prunecast.models import estimate
from prunecast.patterns.element_map import ElementMap, element_map_from_columns, element_map_from_mask
from prunecast.simulator import simulate

COSTS = cusparse_costs(90)
ELEMENTS = 96
"""Of a CTA."""


def elements(kept: list[int]) -> ElementMap:
    """Rows that keep their first so many of 512 columns."""
    columns = np.concatenate([np.arange(count) for count in kept])
    start = np.concatenate([[0], np.cumsum(kept)])
    return element_map_from_columns(start, columns, 512, "unstructured")


@pytest.mark.parametrize("n", [16, 128, 300])
def test_every_block_gets_the_same_number_of_elements_and_none_is_lost(n):
    kept = [0, 1, 300, 0, 512, 512, 512, 7, 204] * 11 + [0]
    gpu = load_gpu("h200-sxm")
    plan = plan_csr(elements(kept), n, "fp16", gpu)
    work, ranges = plan.work, -(-n // plan.shape.block_n)
    lengths = work.k_stop - work.k_start
    assert np.bincount(work.tile, lengths).tolist() == [ranges * count for count in kept]
    assert np.bincount(work.tile, work.owner).tolist() == [ranges] * len(kept)
    # 22,528 elements are 235 blocks of 96 for each range of tokens, dealt to 132 SMs, cut at whole k-steps
    blocks = np.bincount(np.arange(235 * ranges) % 132, minlength=132)
    of_list = np.repeat(np.arange(plan.blocks), np.diff(work.block_start))
    assert plan.blocks == 132
    assert np.abs(np.bincount(of_list, lengths) - ELEMENTS * blocks)[:-1].max() <= 96


@pytest.mark.parametrize("gpu", ["rtx-4090", "v100-sxm2-16gb"])
@pytest.mark.parametrize("rows", [64, 256, 512])
def test_a_faster_l2_lengthens_no_wait_unless_its_reads_last_longest(gpu, rows):
    spec = load_gpu(gpu)
    faster = replace(spec, l2_bytes_per_s=2 * spec.l2_bytes_per_s)
    before, after = (plan_csr(elements([48] * rows), 512, "fp16", one) for one in (spec, faster))
    assert simulate(after, faster).cycles <= 1.01 * simulate(before, spec).cycles
    # At an eighth of the rate they last longest, and the first CTAs wait meanwhile
    slow = plan_csr(elements([48] * rows), 512, "fp16", replace(spec, l2_bytes_per_s=spec.l2_bytes_per_s / 8))
    assert slow.programs[0].start[0].amount <= before.programs[0].start[0].amount


def test_blocks_of_one_sm_stand_in_one_list():
    gpu = load_gpu("h200-sxm")
    plan = plan_csr(elements([480] * 132), 16, "fp16", gpu)
    of_list = np.repeat(np.arange(plan.blocks), np.diff(plan.work.block_start))
    lengths = np.bincount(of_list, plan.work.k_stop - plan.work.k_start)
    # Five blocks of 96 in each row, 660 in all
    assert lengths.tolist() == [5 * ELEMENTS] * 132


def test_many_blocks_are_dealt_out_several_at_a_time():
    plan = plan_csr(elements([512] * 8192), 16, "fp16", load_gpu("h200-sxm"))
    # 43,691 blocks where 8 * 10 * 132 are eight rounds: four at a time
    assert plan.work.tile.size < 43_691 / 4 + 8192
    of_list = np.repeat(np.arange(plan.blocks), np.diff(plan.work.block_start))
    lengths = np.bincount(of_list, plan.work.k_stop - plan.work.k_start)
    assert lengths.max() - lengths.min() <= 5 * ELEMENTS


def wait_cycles(kept: list[int], n: int) -> int:
    """Of the program that all warps run."""
    return plan_csr(elements(kept), n, "fp16", load_gpu("h200-sxm")).programs[0].start[0].amount


def test_lone_blocks_take_a_chain_of_loads_and_full_sms_their_work():
    lone, half, full = (wait_cycles([96] * 132 * blocks, 16) for blocks in (1, 5, 10))
    assert lone > half > full == 0
    missed = missed_share(ELEMENTS, 512, 32, 233_472)
    work = ELEMENTS * (COSTS["slots_per_element_32"] + COSTS["missed_slots"] * round(missed, 2)) / 4
    assert lone == pytest.approx(chain_cycles(0.25, missed, 32, COSTS) - work, abs=1)


def test_where_blocks_follow_one_another_the_last_ones_take_longer():
    missed = missed_after(96 * 1321 / 132, 512, 32, 233_472)
    assert wait_cycles([96] * 1321, 16) == pytest.approx(chain_cycles(0.25, missed, 32, COSTS), abs=1)


def test_blocks_of_one_wave_do_not_shorten_the_loads_of_each_other():
    """Measured, H200: 512 x 1024, 16 tokens, us by the elements of a row; 1 to 5 blocks per SM."""
    gpu = load_gpu("h200-sxm")
    for per_row, us in ((16, 9.93), (64, 9.91), (128, 9.98)):
        plan = plan_csr(map_of_equal_rows(512, 1024, per_row), 16, "fp16", gpu)
        assert estimate(plan, gpu).seconds == pytest.approx(us * 1e-6, rel=0.04)


@given(
    elements=st.integers(1, 100_000),
    columns=st.integers(1, 20_000),
    tokens=st.integers(1, 128),
    l1_bytes=st.integers(0, 300_000),
)
def test_what_l1_cannot_answer_is_a_share_that_grows_with_columns_and_falls_with_l1(
    elements, columns, tokens, l1_bytes
):
    share = missed_share(elements, columns, 2 * tokens, l1_bytes)
    assert 0.0 <= share <= 1.0
    assert missed_share(elements, columns + 1, 2 * tokens, l1_bytes) >= share - 1e-9
    assert missed_share(elements, columns, 2 * tokens, l1_bytes + 1000) <= share + 1e-9


@pytest.mark.parametrize(("elements", "columns"), [(8000, 1024), (8000, 16384), (500, 512), (50_000, 3000)])
@pytest.mark.parametrize("rows_kept", [200, 100_000])
def test_reads_that_l1_cannot_answer_are_those_of_a_cache_of_random_rows(elements, columns, rows_kept):
    rng, row_bytes = np.random.default_rng(3), 64
    cache: list[int] = []
    kept, missed, late = set(), 0, []
    for row in rng.integers(0, columns, elements).tolist():
        missed += row not in kept
        late.append(row not in kept)
        if row not in kept:
            if len(cache) >= rows_kept:
                at = int(rng.integers(len(cache)))
                kept.discard(cache[at])
                cache[at] = row
            else:
                cache.append(row)
            kept.add(row)
    said = missed_share(elements, columns, row_bytes, rows_kept * row_bytes)
    assert said == pytest.approx(missed / elements, abs=0.03)
    last = missed_after(0.9 * elements, columns, row_bytes, rows_kept * row_bytes)
    assert last == pytest.approx(np.mean(late[-elements // 5 :]), abs=0.05)


def test_odd_counts_of_tokens_cost_more():
    """Measured, H200: 2,048 rows of 400 of 1,024 columns, us."""
    gpu, kept = load_gpu("h200-sxm"), map_of_equal_rows(2048, 1024, 400)
    for n, us in ((9, 69.3), (16, 41.0), (17, 66.1), (41, 63.7), (56, 42.7), (100, 47.6), (101, 68.1)):
        assert estimate(plan_csr(kept, n, "fp16", gpu), gpu).seconds == pytest.approx(us * 1e-6, rel=0.08)


def test_warps_of_a_long_row_wait_for_one_another_with_odd_tokens_only():
    """Measured, H200: 1,408 rows of 2,048 of 6,144 columns, us."""
    gpu, kept = load_gpu("h200-sxm"), map_of_equal_rows(1408, 6144, 2048)
    for n, us in ((3, 1848), (8, 128), (9, 1149), (17, 839), (101, 534)):
        assert estimate(plan_csr(kept, n, "fp16", gpu), gpu).seconds == pytest.approx(us * 1e-6, rel=0.08)
    # 13 warps of a row come one after another, of 24 elements each
    assert (
        meeting_cycles(np.full(1000, 321), 9, 24, COSTS)
        == meeting_cycles(np.full(10, 5000), 8, 24, COSTS)
        == 0.0
    )
    # 83.4 warps are 70 too many
    assert meeting_cycles(np.array([2001.6, 2001.6]), 9, 24, COSTS) == pytest.approx(2 * 0.75 / 3 * 70**2)


@pytest.mark.parametrize("engine", [simulate, estimate])
def test_one_token_streams_elements_from_dram(engine):
    """Measured, H200: rows, columns, kept of a row, us."""
    gpu = load_gpu("h200-sxm")
    for m, k, per_row, us in ((512, 1024, 32, 8.29), (4096, 4096, 512, 11.0), (4096, 4096, 2048, 20.2)):
        plan = plan_csr(map_of_equal_rows(m, k, per_row), 1, "fp16", gpu)
        assert engine(plan, gpu).seconds == pytest.approx(us * 1e-6, rel=0.1)


def test_one_token_of_long_rows_takes_longer_for_each_element_before_hopper():
    """Published, RTX 3090, CUDA 12, us: rows of 4096 x 4096, 14336 x 4096 and 4096 x 14336."""
    gpu = load_gpu("rtx-3090")
    for m, k, kept, us in ((4096, 4096, 4096, 712), (14336, 4096, 819, 135), (4096, 14336, 7168, 3277)):
        seconds = estimate(plan_csr(map_of_equal_rows(m, k, kept), 1, "fp16", gpu), gpu).seconds
        assert seconds == pytest.approx(us * 1e-6, rel=0.12)


def test_one_token_on_hopper_does_not_mind_long_rows():
    gpu = load_gpu("h200-sxm")
    long, short = (
        plan_csr(map_of_equal_rows(m, 8192, kept), 1, "fp16", gpu) for m, kept in ((1056, 4096), (8448, 512))
    )
    assert estimate(long, gpu).seconds <= 1.05 * estimate(short, gpu).seconds


def test_parts_of_rows_share_no_indices_however_long_the_steps_of_the_simulator():
    gpu = load_gpu("h200-sxm")
    for m in (64, 3200):
        result = simulate(plan_csr(map_of_equal_rows(m, 4096, 2048), 1, "fp16", gpu), gpu)
        # 4 + 2 bytes an element, each read once
        assert result.dram_bytes == result.l2_bytes == 6 * 2048 * m


def map_of_equal_rows(m: int, k: int, per_row: int) -> ElementMap:
    """Columns drawn at random."""
    rng = np.random.default_rng(7)
    columns = np.concatenate([np.sort(rng.permutation(k)[:per_row]) for _ in range(m)])
    return element_map_from_columns(np.arange(m + 1) * per_row, columns, k, "unstructured")


def test_rows_lengthen_the_chain_of_many_tokens_only():
    short, long = [8] * 12, [96]
    assert wait_cycles(short, 64) == wait_cycles(long, 64)
    # A warp has 24 elements, so three rows instead of a quarter of one
    assert wait_cycles(short, 128) - wait_cycles(long, 128) == pytest.approx(
        2.75 * COSTS["row_chain_cycles"], abs=1
    )


def test_token_ranges_that_are_narrow_cost_less():
    """Measured (H200): 1024 x 1024 at 75 % takes 33.5 us with 192 tokens and 34.5 with 256."""
    issues = [plan_csr(elements([512] * 64), n, "fp16", load_gpu("h200-sxm")).programs for n in (192, 256)]
    assert issues[0][0].step[2].issue < issues[1][0].step[2].issue


@pytest.mark.parametrize(("tokens", "width"), [(1, 32), (32, 32), (33, 64), (65, 128), (300, 128)])
def test_blocks_are_as_wide_as_the_tokens_ask_for(tokens, width):
    assert plan_csr(elements([8] * 4), tokens, "fp16", load_gpu("h200-sxm")).shape == (1, width, 32)


def test_times_rise_in_rounds_of_blocks():
    """Measured, H200, 16 tokens: 104,610 elements 11.06 us, 156,993 15.44, 127,132 in 4,096 rows 15.95."""
    gpu, rng = load_gpu("h200-sxm"), np.random.default_rng(0)
    for m, k, density, us in ((512, 2048, 0.1, 11.06), (512, 1024, 0.3, 15.44), (4096, 1024, 0.031, 15.95)):
        kept = element_map_from_mask(rng.random((m, k)) < density, "unstructured")
        for engine in (simulate, estimate):
            assert engine(plan_csr(kept, 64 if m > 512 else 16, "fp16", gpu), gpu).seconds == pytest.approx(
                us * 1e-6, rel=0.1
            )


@pytest.mark.parametrize("engine", [simulate, estimate])
def test_other_launches_are_part_of_the_launch_floor(engine):
    gpu = load_gpu("h200-sxm")
    result = engine(plan_csr(elements([8] * 4), 64, "fp16", gpu), gpu)
    zeros_s = 4 * 64 * 2 / gpu.dram_write_bytes_per_s
    assert result.launch_s == pytest.approx(gpu.graph_launch_s + COSTS["partition_launches_s"] + zeros_s)
    assert result.seconds == result.launch_s + result.cycles / result.clock_hz


def test_rows_of_b_that_stay_in_l1_save_time():
    """Measured (H200): a round takes 6.7 to 6.9 us with 1,024 to 1,280 columns, 7.4 with 5,120 (n = 128)."""
    gpu, rng = load_gpu("h200-sxm"), np.random.default_rng(0)
    cycles = []
    for k in (1024, 5120):
        kept = element_map_from_mask(rng.random((1024 * 1024 // k, k)) < 0.25, "unstructured")
        cycles.append(estimate(plan_csr(kept, 2048, "fp16", gpu), gpu).cycles)
    assert 0.90 < cycles[0] / cycles[1] < 0.95
