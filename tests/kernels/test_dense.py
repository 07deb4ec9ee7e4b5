"""cuBLAS's dense product: which kernels there are, which is chosen, and what its plan says."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels.libraries.cublas.configs import LibraryKernel, library_kernels
from prunecast.kernels.libraries.cublas.kernel import _counter_seconds, _dense_configs, plan_dense
from prunecast.kernels.libraries.cublas.launches import cublas_costs, reduction_seconds
from prunecast.kernels.libraries.cublas.programs import (
    _first_stage_bytes,
    _multicast_of,
    group_cycles,
    operand_bytes,
)
from prunecast.kernels.libraries.cublas.rank import Ranked
from prunecast.kernels.tile.config import TileConfig
from prunecast.launch import CacheState, Conditions, launch_context
from prunecast.models import estimate
from prunecast.plan.kernel_plan import BlockShape
from prunecast.plan.program import Op, When
from prunecast.simulator import simulate
from tests.toy_gpu import toy_gpu

GPUS = ("v100-sxm2-16gb", "t4", "rtx-3090", "a100-sxm4-80gb", "h100-sxm", "h200-sxm", "b200")
H200 = load_gpu("h200-sxm")
DRAWN = Path(__file__).parents[2] / "benchmarks" / "measured" / "h200-sxm-dense-drawn-2026-11-22.csv"
CYCLE_BYTES = H200.dram_bytes_per_s / H200.clock_burst_hz[0]
"""That DRAM serves in a cycle: starts are whole cycles."""
sizes = st.integers(1, 20_000)


def configs(gpu=H200, dtype: str = "fp16") -> list[TileConfig]:
    return [kernel.config for kernel in library_kernels(gpu, dtype)]


def listed() -> set[tuple[int, int]]:
    """Rows and tokens of the tiles that are taken whatever the tokens."""
    return {kernel.config.shape[:2] for kernel in library_kernels(H200, "fp16") if not kernel.deals_out}


def kernel_of(rows: int, tokens: int, gpu=H200) -> LibraryKernel:
    return next(k for k in library_kernels(gpu, "fp16") if k.config.shape[:2] == (rows, tokens))


def chosen(m: int, k: int, n: int, gpu=H200) -> Ranked:
    return _dense_configs(m, k, n, "fp16", gpu)[0]


def tile(m: int, k: int, n: int, gpu=H200) -> tuple[int, int]:
    """Rows and tokens of the chosen tile."""
    return chosen(m, k, n, gpu).kernel.config.shape[:2]


def ctas(m: int, k: int, n: int) -> int:
    rows, tokens = tile(m, k, n)
    return -(-m // rows) * -(-n // tokens) * chosen(m, k, n).slices


@pytest.mark.parametrize("capability", [70, 75, 80, 86, 89, 90, 100, 120])
def test_a_cta_of_every_config_fits_and_its_parts_tile_it(capability):
    gpu = toy_gpu(compute_capability=capability)
    for dtype in ("fp16", "bf16", "fp32", "tf32") if capability >= 80 else ("fp16",):
        for config in configs(gpu, dtype):
            assert occupancy(config.resources, gpu).blocks_per_sm > 0
            area, part = config.shape.block_m * config.shape.block_n, config.part_m * config.part_n
            # A warpgroup may have all of a tile of which it cannot have half
            assert area in (part, part * config.consumer_warps // config.warps_per_part)


@pytest.mark.parametrize(
    ("capability", "tensor", "pair"), [(80, "mma", 1), (90, "wgmma", 1), (100, "wgmma", 2), (120, "mma", 1)]
)
def test_the_dense_product_uses_native_instructions(capability, tensor, pair):
    found = configs(toy_gpu(compute_capability=capability))
    assert {(v.tensor, v.pair) for v in found} == {(tensor, pair)}


def test_large_tiles_are_shared_by_two_warpgroups():
    """Captured kernels of 256x128, 320x128 and 192x192 have `coop` in their names, 128x128 has not."""
    most = cublas_costs(90)["lone_warpgroup_elements"]
    large = {tuple(sorted(sides)) for sides in listed() if sides[0] * sides[1] > most}
    assert large == {(128, 192), (128, 256), (128, 320), (192, 192), (160, 256)}


@pytest.mark.parametrize("name", ["a100-sxm4-80gb", "rtx-3090"])
def test_warp_level_configs_have_three_stages_or_more(name):
    stages = [config.resources.stages for config in configs(load_gpu(name))]
    assert min(stages) >= 3
    assert len(stages) >= 8


def test_short_k_steps_where_shared_memory_is_small():
    steps = {config.shape[:2]: config.shape.block_k for config in configs(load_gpu("rtx-3090"))}
    assert (steps[256, 128], steps[64, 64]) == (32, 64)


@given(m=sizes, k=sizes, n=sizes, name=st.sampled_from(GPUS))
def test_configs_come_in_the_order_of_the_heuristic(m, k, n, name):
    # The tile that a table of choices names stands first, whatever its place in the roofline
    found = _dense_configs(m, k, n, "fp16", load_gpu(name))[n == 1 :]
    assert [c.seconds for c in found] == sorted(c.seconds for c in found)
    assert found[0].slices <= max(k // 64, 1)


@given(m=sizes, n=sizes)
def test_tiles_are_not_much_larger_than_the_product_needs(m, n):
    rows, tokens = tile(m, 512, n)
    assert rows <= max(2 * m, 128)
    assert tokens <= max(2 * n, 128)


@given(m=sizes, k=sizes, n=sizes)
def test_no_config_takes_less_time_for_more_work(m, k, n):
    # So many tokens that split-K is of no use to any
    less, more = (
        {c.kernel.config.shape: c.seconds for c in _dense_configs(m, k, tokens, "fp16", H200)}
        for tokens in (64_000, 128_000)
    )
    assert all(more[shape] >= less[shape] for shape in less.keys() & more.keys())


def test_large_products_take_large_tiles():
    """4096 x 4096 x 4096 and larger run kernels named nvjet with 128x256 or 256x128 on an H100."""
    rows, tokens = tile(8192, 8192, 8192)
    assert rows * tokens >= 128 * 256


def test_a_tile_is_chosen_that_fills_the_last_wave():
    """2560 x 2048 with K = 16384 reaches 864 TFLOP/s on an H100 (published table): no half empty wave."""
    assert chosen(2560, 16384, 2048).slices == 1
    assert 0.9 < ctas(2560, 16384, 2048) / H200.sm_count <= 1.0


def test_a_wide_product_of_few_rows_is_not_cut_and_a_long_one_is():
    assert chosen(64, 512, 64).slices == 1
    assert chosen(64, 32_768, 64).slices > 4


def test_long_products_are_cut_where_a_few_tiles_are_left_for_a_second_wave():
    """An A100 has 108 SMs; published times are 226 TFLOP/s, of which two waves would allow 149 (0009).

    The closed form is 10.2 % slow since it counts waits of blocks that begin together (0035).
    """
    a100 = load_gpu("a100-sxm4-80gb")
    plan = plan_dense(1024, 16_384, 3584, "bf16", a100)
    assert plan.item_count / plan.work.parts.max() > a100.sm_count
    simulated = simulate(plan, a100).seconds
    assert simulated * 1e6 == pytest.approx(536, rel=0.1)
    assert estimate(plan, a100).seconds == pytest.approx(simulated, rel=0.02)
    assert plan_dense(4096, 4096, 4096, "fp16", H200).work.parts.max() == 1


def test_parts_are_added_up_by_a_second_launch():
    cut, whole = plan_dense(64, 32_768, 64, "fp16", H200), plan_dense(4096, 4096, 2048, "fp16", H200)
    assert cut.work.parts.max() > 1
    assert launch_context(cut, H200).other_launches_s > H200.overlapped_launch_s
    assert launch_context(whole, H200).other_launches_s == 0.0
    assert not any(i.when is When.OWNER for p in cut.programs for i in p.end)


def test_the_second_launch_costs_more_for_more_sums():
    """132 parts of 1 MB pass L2 at 8.35 TB/s in 16 us."""
    few, many = (reduction_seconds(512, 512, parts, H200) for parts in (2, 134))
    assert many - few == pytest.approx(132 * 512 * 512 * 4 / H200.l2_bytes_per_s)
    assert reduction_seconds(512, 512, 1, H200) == 0.0


def test_warpgroups_write_c_together():
    consumer = next(p for p in plan_dense(4096, 512, 4096, "fp16", H200).programs if p.end)
    ops = [i.op for i in consumer.end]
    assert ops.index(Op.WAIT_MMA) < ops.index(Op.SYNC) < ops.index(Op.STORE_C)
    assert ops[-1] is Op.SYNC


def test_pairs_share_both_sides_of_their_tiles():
    """Large products run kernels named 256x128_64x4_1x2: two pairs side by side ask L2 for the same lines."""
    plan = plan_dense(4096, 4096, 4096, "fp16", H200)
    assert set(plan.shape[:2]) == {128, 256}
    steps = [i for p in plan.programs for i in p.step]
    copies = {i.op: i.multicast for i in steps if i.op in (Op.COPY_A, Op.COPY_B)}
    assert copies == {Op.COPY_A: 2, Op.COPY_B: 2}


@pytest.mark.parametrize(
    ("block_m", "block_n", "m", "n", "weights", "tokens"),
    [
        (64, 64, 768, 512, 2, 4),  # 96 tiles: 64x64_64x13_4x2 and _2x4
        (48, 64, 2304, 128, 2, 4),  # 96 tiles: 64x48_64x15_2x4, rows behind tokens
        (64, 64, 1024, 512, 2, 2),  # 128 tiles: pairs, 64x64_64x13_2x1
        (128, 8, 11_008, 1, 1, 4),  # 86 tiles and no neighbours along the tokens: 128x8_64x12_4x1
        (64, 256, 9000, 4096, 1, 4),  # pairs along the shorter side of a long tile
        (256, 256, 256, 64, 1, 1),  # a single tile
    ],
)
def test_clusters_are_as_the_library_names_them(block_m, block_n, m, n, weights, tokens):
    assert _multicast_of(BlockShape(block_m, block_n, 64), m, n) == (weights, tokens)


@given(m=sizes, n=sizes)
def test_no_more_ctas_share_than_there_are_neighbours(m, n):
    for rows, tokens in listed():
        found = _multicast_of(BlockShape(rows, tokens, 64), m, n)
        assert found.weights <= -(-n // tokens)
        assert found.tokens <= -(-m // rows)
        assert set(found) <= {1, 2, 4}


def test_a_counter_is_cleared_where_an_sm_has_more_than_two_tiles():
    """Captured graphs: 1024 x 256 with 12544 tokens (392 tiles) begins with a fill, 264 tiles do not."""
    assert [_counter_seconds(tiles, H200) for tiles in (264, 392)] == [0.0, H200.graph_launch_s]
    plan = plan_dense(1024, 256, 12_544, "fp16", H200)
    assert plan.item_count > 2 * H200.sm_count
    assert launch_context(plan, H200).other_launches_s == H200.graph_launch_s
    assert _counter_seconds(1e6, load_gpu("a100-sxm4-80gb")) == 0.0


def test_parts_do_not_wait_until_their_sums_are_stored():
    consumer = next(p for p in plan_dense(768, 4096, 16, "fp16", H200).programs if p.end)
    assert [i.posted for i in consumer.end if i.op is Op.STORE_PARTIAL] == [True]


def test_two_thirds_of_what_bulk_copies_write_cost_nothing():
    """256 x 128 and 16 columns: two warpgroups read 12 KB each, copies write 12 KB."""
    config = kernel_of(256, 128).config
    reads = config.operand_bytes_per_warp_per_k16 * config.consumer_warps
    assert operand_bytes(config, H200) * config.consumer_warps == pytest.approx(reads - 2 / 3 * 12_288, abs=8)
    a100 = load_gpu("a100-sxm4-80gb")
    assert operand_bytes(configs(a100)[0], a100) == configs(a100)[0].operand_bytes_per_warp_per_k16


def test_ampere_takes_tiles_narrower_than_64_for_few_tokens_only():
    a100 = load_gpu("a100-sxm4-80gb")
    assert min(tile(768, 768, 16, a100)) < 64
    for n in (17, 64, 192):
        assert min(tile(768, 768, n, a100)) >= 64


def queued(k: int, *, stages: int = 13, parts: int = 1, m: int = 768, n: int = 512) -> float:
    """Bytes that the first stage waits for."""
    config = kernel_of(64, 64).config
    config = replace(config, resources=config.resources._replace(stages=stages))
    return _first_stage_bytes(config, m, k, n, parts, H200)


def test_the_first_stage_comes_with_all_that_was_asked_for():
    assert queued(832) == queued(6144) == pytest.approx(2 * 832 * (768 + 512), abs=CYCLE_BYTES)
    assert queued(4096, stages=4) == pytest.approx(2 * 256 * (768 + 512), abs=CYCLE_BYTES)
    assert queued(4096, stages=4, parts=2) == pytest.approx(2 * 512 * (768 + 512), abs=CYCLE_BYTES)
    assert queued(8192, m=8192) == pytest.approx(H200.dram_queue_bytes, abs=CYCLE_BYTES)


def test_the_first_stage_of_2_4_weights_waits_for_the_bytes_that_are_stored():
    """Half of the values, and two bits for each of them."""
    dense = kernel_of(64, 64).config
    sparse = replace(dense, tensor="sparse-wgmma")
    found = [_first_stage_bytes(config, 768, 6144, 512, 1, H200) for config in (dense, sparse)]
    columns = dense.resources.stages * dense.shape.block_k
    assert found[0] - found[1] == pytest.approx(columns * 768 * (2 - 1 - 1 / 8), abs=CYCLE_BYTES)


def test_a_ring_that_holds_all_of_k_waits_for_the_steps_behind_at_most():
    cycle_bytes = H200.dram_bytes_per_s / H200.clock_burst_hz[0]
    assert queued(64) == 0.0
    assert queued(256) == pytest.approx(3 * 80 * cycle_bytes)
    assert queued(768) == pytest.approx(2 * 768 * (768 + 512), abs=CYCLE_BYTES)


def test_consumers_wait_for_the_first_stage_and_producers_for_a_share_of_the_later_ones():
    config = chosen(1024, 1024, 4096).kernel.config
    port = (config.shape.block_m + config.shape.block_n) * 128 / H200.l2_port_bytes_per_clk_per_sm
    out_of_order = _first_stage_bytes(config, 1024, 1024, 4096, 1, H200) / CYCLE_BYTES
    share = cublas_costs(90)["serial_first_stage_share"]
    expected = [share * out_of_order, H200.dram_latency_cycles + port + out_of_order]
    assert starts_of(H200, "cold") == pytest.approx(expected, abs=1.0)
    # With all operands in L2, DRAM's rate and latency are those of L2
    out_of_order *= H200.dram_bytes_per_s / H200.l2_bytes_per_s
    expected = [share * out_of_order, H200.l2_latency_cycles + port + out_of_order]
    assert starts_of(H200, "warm") == pytest.approx(expected, abs=1.0)
    assert starts_of(load_gpu("a100-sxm4-80gb"), "cold") == []


def starts_of(gpu, l2: str) -> list[int]:
    """Cycles that warps of each role wait before they copy or multiply, operands in that state."""
    context = launch_context(plan_dense(1024, 1024, 4096, "fp16", gpu), gpu, Conditions(l2=CacheState(l2)))
    return [i.amount for p in context.programs for i in p.start if i.op is Op.ISSUE and i.amount]


@given(m=st.integers(1, 128), k=st.integers(1, 128), n=st.sampled_from((1, 8, 64, 512, 2048)))
@settings(max_examples=30, deadline=None)
def test_producers_wait_less_than_consumers_by_the_first_stage_at_least(m, k, n):
    gpu = load_gpu("h100-sxm")
    producer, consumer = launch_context(plan_dense(64 * m, 64 * k, n, "fp16", gpu), gpu).programs
    (requested,), (complete,) = producer.start, consumer.start
    assert 0 <= requested.amount <= complete.amount - gpu.dram_latency_cycles


@pytest.mark.parametrize(
    ("m", "k", "n", "us"),
    [
        (2304, 768, 1, 4.16),
        (3072, 768, 1, 4.40),
        (3072, 768, 16, 4.53),
        (2048, 512, 128, 3.99),
        (512, 2048, 2048, 9.02),
    ],
)
def test_products_whose_time_is_that_of_the_first_stages(m, k, n, us):
    """cuBLAS 13.1, H100 (`recorded/h100-sxm.csv`): DRAM works for as long as a lone CTA."""
    gpu = load_gpu("h100-sxm")
    plan = plan_dense(m, k, n, "fp16", gpu)
    closed_form, simulated = (1e6 * engine(plan, gpu).seconds for engine in (estimate, simulate))
    assert (closed_form, simulated) == pytest.approx((us, us), rel=0.04)


def test_fp8_halves_what_a_product_reads_and_doubles_what_it_multiplies():
    """cuBLASLt of torch 2.11, H200, 2026-11-23 (`vendors-2026-11-23.csv`)."""
    for m, k, n, us in ((4096, 4096, 16, 6.99), (4096, 4096, 4096, 92.8), (11008, 4096, 2048, 128.6)):
        plan = plan_dense(m, k, n, "fp8", H200)
        assert 1e6 * estimate(plan, H200).seconds == pytest.approx(us, rel=0.08)


@pytest.mark.parametrize(("dtype", "gpu"), [("fp8", "a100-sxm4-80gb"), ("int8", "v100-sxm2-16gb")])
def test_a_gpu_without_tensor_cores_for_a_dtype_says_so(dtype, gpu):
    with pytest.raises(BadInput, match=f"dtype {dtype} needs {dtype} tensor cores"):
        plan_dense(256, 256, 256, dtype, load_gpu(gpu))


@pytest.mark.parametrize(("k", "us"), [(256, 3.29), (1024, 4.82), (2048, 6.37), (3328, 8.33), (6144, 12.68)])
def test_tiles_of_64_by_64_in_eights_from_4_to_96_steps(k, us):
    """cuBLAS 13.1, H200, 2026-11-21 (`h200-sxm-dense-forms-2026-11-21.csv`)."""
    plan = plan_dense(768, k, 512, "fp16", H200)
    assert 1e6 * simulate(plan, H200).seconds == pytest.approx(us, rel=0.05)


def test_one_warpgroup_multiplies_where_an_sm_has_one_small_tile():
    def multiplying(m: int, k: int, n: int) -> tuple[int, int]:
        programs = plan_dense(m, k, n, "fp16", H200).programs
        return sum(p.warps for p in programs if p.end), sum(p.warps for p in programs)

    assert multiplying(768, 2048, 512) == (4, 12)  # 96 tiles of 64 x 64
    assert multiplying(2048, 512, 3136) == (8, 12)  # several tiles for an SM
    assert multiplying(2048, 2048, 2048) == (8, 12)  # 128 tiles of 256 x 128, which two share


def test_one_warpgroup_reads_the_operands_of_a_small_tile_once():
    """64 x 64 and 16 columns: 2 KB of each side, where halves would read 6 KB; copies write 4 KB."""
    config = kernel_of(64, 64).config
    assert config.operand_bytes_per_warp_per_k16 * config.consumer_warps == 6144
    assert operand_bytes(config, H200) * config.consumer_warps == pytest.approx(4096 - 2 / 3 * 4096, abs=8)


def test_narrow_instructions_wait_for_their_operands():
    """A step of 64 x 8 reads 64 rows and 8 tokens of 128 bytes, 72 cycles, and multiplies for 16; 64 x 64
    reads as long as it multiplies. Two warpgroups wait for the latency of a group.
    """
    sides = ((64, 8), (64, 64))
    alone = [replace(kernel_of(*s).config, warpgroups=1, part_m=s[0], part_n=s[1]) for s in sides]
    assert [group_cycles(config, H200) for config in alone] == [56, 0]
    assert group_cycles(kernel_of(256, 128).config, H200) == cublas_costs(90)["group_cycles"]


def test_steps_of_small_tiles_take_the_latency_of_a_group():
    """512 x 2048 and 512 x 512 with 16 tokens differ by 24 steps and 199 cycles each, 2048 x 2048 with 128
    tokens by 168 (own records of 2026-11-21); the port needs 111.
    """
    short, long = (estimate(plan_dense(512, k, 16, "fp16", H200), H200).cycles for k in (1088, 1216))
    assert 130 < (long - short) / 2 < 200


@pytest.mark.parametrize(
    ("m", "k", "us"),
    [(512, 1024, 4.06), (768, 768, 4.06), (1024, 1024, 7.39), (1152, 768, 3.81), (1536, 1536, 6.27)],
)
def test_one_token_of_few_rows_shares_one_line_of_l2(m, k, us):
    """cuBLAS 13.1, H200, 2026-11-21 (`h200-sxm-dense-one-token-2026-11-21.csv`)."""
    gpu = load_gpu("h200-sxm")
    plan = plan_dense(m, k, 1, "fp16", gpu)
    assert plan.shape[:2] == ((8, 64) if m <= 1024 else (16, 64))
    assert 1e6 * estimate(plan, gpu).seconds == pytest.approx(us, rel=0.1)
    assert 1e6 * simulate(plan, gpu).seconds == pytest.approx(us, rel=0.1)


def test_more_rows_columns_or_tokens_take_other_tiles():
    gpu = load_gpu("h200-sxm")
    for m, k, n in ((2048, 1024, 1), (1024, 3072, 1), (1024, 1024, 8)):
        assert plan_dense(m, k, n, "fp16", gpu).shape.block_m > 16


@pytest.mark.parametrize(("tokens", "side"), [(200, (64, 104)), (336, (64, 168)), (1576, (128, 200))])
def test_tokens_that_are_no_multiple_of_64_are_dealt_out_evenly(tokens, side):
    """Tiles in captured graphs (cuBLAS 13.1, H200, 2026-11-22)."""
    dealt = {c.kernel.config.shape[:2] for c in _dense_configs(4096, 4096, tokens, "fp16", H200)}
    even = {c.kernel.config.shape[:2] for c in _dense_configs(4096, 4096, 1024, "fp16", H200)}
    assert side in dealt - even
    assert even <= listed() <= dealt


@pytest.mark.parametrize(
    ("m", "k", "n", "slices"),
    [(768, 3072, 8, 2), (1024, 4096, 8, 3), (1536, 6144, 64, 4), (5120, 5120, 8, 3), (1024, 2560, 8, 1)],
)
def test_few_tiles_of_a_long_product_are_split_whether_it_pays_or_not(m, k, n, slices):
    """Grids of `splitK` kernels in captured graphs; 40 k-steps are not split."""
    side = (128, 8) if m > 4096 else (64, 8 if n == 8 else 64)
    assert slices_of(side, m, k, n) == slices


def slices_of(side: tuple[int, int], m: int, k: int, n: int) -> int:
    """Of the config with such a tile."""
    found = _dense_configs(m, k, n, "fp16", H200)
    return next(c.slices for c in found if c.kernel.config.shape[:2] == side)


def test_more_tiles_than_half_of_the_sms_are_never_split():
    assert plan_dense(4096, 4096, 72, "fp16", H200).work.parts.max() == 1
    assert slices_of((64, 64), 4352, 16384, 64) == 1


def test_a_product_of_one_tile_is_cut_into_no_more_parts_than_there_may_be():
    assert 1 < plan_dense(64, 1 << 20, 8, "fp16", H200).work.parts.max() <= 32


def test_parts_along_k_count_for_the_size_of_clusters_and_two_token_ranges_share_tokens_alone():
    """Names in captured graphs: 2048 x 8192 with 136 tokens runs 64 tiles in two parts, in pairs of rows."""
    shape = BlockShape(64, 72, 64)
    assert _multicast_of(shape, 2048, 136) == (2, 4)
    assert _multicast_of(shape, 2048, 136, 2) == (1, 2)
    assert _multicast_of(shape, 4096, 272).weights == 2


@pytest.mark.parametrize("k", [2688, 4000, 4032, 4033])
def test_a_last_step_that_is_not_whole_counts_for_the_parts(k):
    found = chosen(60, k, 30)
    assert np.isfinite(found.seconds)
    assert found.slices == -(-k // 64) // 21


def names_of_even_tokens() -> dict[tuple[int, int, int], set[tuple[int, int]]]:
    """Rows and tokens of tiles of both layouts by size (`h200-sxm-dense-drawn-2026-11-22.csv`), not cut."""
    found: dict[tuple[int, int, int], set[tuple[int, int]]] = {}
    with DRAWN.open() as file:
        for row in csv.DictReader(file):
            m, k, n = (int(row[name]) for name in "mkn")
            tile = re.search(r"nvjet_.*?_(\d+)x(\d+)_", row["kernel"])
            if tile and n % 64 == 0 and m % 64 == 0 and k >= 512 and m >= 512 and not row["sums_grid"]:
                found.setdefault((m, k, n), set()).add((int(tile[2]), int(tile[1])))
    return found


def test_of_even_tokens_most_products_take_the_very_tile():
    names = names_of_even_tokens()
    assert len(names) > 100
    right = [tile(*size) in tiles for size, tiles in names.items()]
    assert sum(right) / len(right) >= 0.58
    in_table = [bool(tiles & listed()) for tiles in names.values()]
    assert sum(in_table) / len(in_table) > 0.95


def test_small_tiles_are_not_taken_where_large_ones_fill_half_of_the_sms():
    """1152 x 4352 with 256 tokens runs 72 tiles of 64 x 64, 1024 x 2496 with 256 has 64 of those."""
    rows, tokens = tile(1152, 4352, 256)
    assert rows * tokens >= 64 * 64
    # One row needs no more, whatever its tokens
    assert np.isfinite(chosen(1, 512, 4288).seconds)
    rows, tokens = tile(1024, 2496, 256)
    assert rows * tokens < 64 * 64


def test_clusters_of_an_odd_number_of_token_ranges_are_four_rows():
    """4096 x 4096 with 192 tokens, second proposal: 96 tiles of 128 x 64 in `1x4`."""
    assert _multicast_of(BlockShape(128, 64, 64), 4096, 192) == (1, 4)


@pytest.mark.parametrize("name", ["v100-sxm2-16gb", "t4", "a100-sxm4-80gb", "h200-sxm"])
def test_fp32_runs_on_cuda_cores_on_every_gpu(name):
    gpu = load_gpu(name)
    plan = plan_dense(4096, 4096, 4096, "fp32", gpu)
    assert plan.tensor == "none"
    assert not any(i.op in (Op.MMA, Op.WAIT_MMA) for p in plan.programs for i in (*p.step, *p.end))
    result = estimate(plan, gpu)
    least_s = 4096**3 / (gpu.sm_count * gpu.fp32_fma_per_clk_per_sm * result.clock_hz)
    assert least_s < result.seconds < (1.2 if gpu.fp32_fma_per_clk_per_sm == 64 else 1.7) * least_s
    assert simulate(plan, gpu).seconds == pytest.approx(result.seconds, rel=0.1)
    assert plan_dense(4096, 4096, 4096, "fp16", gpu).tensor in ("mma", "wgmma")


@pytest.mark.parametrize("n", [64, 256, 2048])
def test_cuda_cores_wait_for_no_tensor_core_and_read_operands_a_column_ahead(n):
    """Two quarters of a warp pass the port of shared memory together, and nobody waits for what is read."""
    plan = plan_dense(1024, 1024, n, "fp32", H200)
    config = _dense_configs(1024, 1024, n, "fp32", H200)[0].kernel.config
    code = [i for program in plan.programs for part in (program.step, program.end) for i in part]
    assert plan.tensor == "none"
    assert not [i for i in code if i.op is Op.WAIT_MMA]
    assert not [i for i in code if i.op is Op.ISSUE and i.charges]
    reads = [i for p in plan.programs for i in p.step if i.op is Op.SHARED and i.per_k16 and not i.ahead]
    assert reads
    assert all(i.posted for i in reads)
    assert sum(i.amount for i in reads) == config.operand_bytes_per_warp_per_k16 // 2
