"""Memory rules of a launch, each reckoned by hand, and that both engines follow them."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.launch import launch_context
from prunecast.launch.memory import memory_rules
from prunecast.models import estimate, plan_amounts, plan_traffic
from prunecast.patterns import TileMap, element_map_from_mask, parse_pattern
from prunecast.plan.program import Op
from prunecast.simulator import simulate
from tests.kernels.layouts import elements_of_density, tiles_keeping

H200, B200, RTX_4090 = load_gpu("h200-sxm"), load_gpu("b200"), load_gpu("rtx-4090")


def tiles_of(*columns: np.ndarray) -> TileMap:
    """Tiles of 128 rows of 256 columns that keep these."""
    return TileMap(
        m=128 * len(columns),
        k=256,
        row_start=np.arange(len(columns) + 1) * 128,
        row_index=np.arange(128 * len(columns)),
        column_start=np.cumsum([0, *(one.size for one in columns)]),
        column_index=np.concatenate(columns),
        pattern="tile-wise:128",
    )


@pytest.mark.parametrize("gpu", ["h200-sxm", "a100-sxm4-80gb", "t4"])
def test_what_comes_in_evicts_c_in_proportion_whatever_the_kernel(gpu: str) -> None:
    """256 x 512 of C, 2 x 128 x 64 weights, 96 rows of 512 tokens, which two tiles share."""
    plan = fastest_plan("stspmm", tiles_of(np.arange(64), np.arange(32, 96)), 512, "fp16", load_gpu(gpu))
    rules = memory_rules(launch_context(plan, load_gpu(gpu)))
    assert rules.write_back == pytest.approx(131_072 / (131_072 + 16_384 + 49_152))
    dense = plan_dense(768, 1024, 512, "fp16", load_gpu(gpu))
    found = memory_rules(launch_context(dense, load_gpu(gpu))).write_back
    assert found == pytest.approx(768 * 512 / (768 * 512 + 768 * 1024 + 1024 * 512))


@pytest.mark.parametrize(("kernel", "sparsity"), [("balanced", 0.875), ("balanced", 0.5), ("2:4", 0.5)])
def test_weights_that_come_in_are_those_that_the_kernel_stores(kernel: str, sparsity: float) -> None:
    """256 x 512 weights, 64 tokens: all of B comes in, and of A the kept elements, whatever the sparsity."""
    pattern = parse_pattern(KERNELS[kernel].natural_pattern)
    mask = pattern.prune({"w": np.random.default_rng(0).random((256, 512))}, sparsity)["w"]
    assert mask.mean() == 1 - sparsity
    plan = fastest_plan(kernel, pattern.map(mask), 64, "fp16", H200)
    found = memory_rules(launch_context(plan, H200)).write_back
    a, b, c = mask.sum(), 512 * 64, 256 * 64
    assert found == pytest.approx(c / (a + b + c))


def test_two_of_four_are_stored_where_fewer_are_kept() -> None:
    mask = np.arange(512) % 4 < np.array([[1], [2]])[np.arange(256) % 2]
    plan = fastest_plan("2:4", element_map_from_mask(mask, "2:4"), 64, "fp16", H200)
    assert plan.density == 3 / 8
    assert KERNELS["2:4"].read_bytes(plan) == 256 * 512 / 2 * 2


def test_a_tall_product_does_not_wait_for_its_c() -> None:
    """4096 x 256 of weights that are all kept, 2048 tokens, on an RTX 4090: 2 MB, 1 MB and 16.8 MB of C.

    Its tensor cores need 4096 * 256 * 2048 / (256 FMA * 128 SMs) cycles, 26 us, and DRAM 20 us meanwhile: L2
    has room for all of C, so that reads of the second wave do not queue behind the C of the first one.
    """
    tiles = tiles_keeping([256], height=4096, k=256)
    plan = fastest_plan("tile-wise", tiles, 2048, "fp16", RTX_4090)
    result = simulate(plan, RTX_4090)
    tensor = 4096 * 256 * 2048 / (256 * 128) / result.clock_hz * 1e6
    assert result.seconds * 1e6 == pytest.approx(tensor, abs=7.0)
    endless = simulate(plan, replace(RTX_4090, dram_write_bytes_per_s=1e18))
    assert result.seconds < 1.03 * endless.seconds


def test_launches_follow_each_other_no_faster_than_dram_moves_their_data() -> None:
    """Blocks of the next launch start early on SMs that 288 items leave free; 19 MB of C need longer."""
    gpu, rng = replace(load_gpu("h100-sxm"), dram_write_bytes_per_s=1.6e12), np.random.default_rng(0)
    place = rng.random((2304, 48, 4)).argsort(axis=2)
    kept = element_map_from_mask((place < 2).reshape(2304, -1), "2:4")
    found = simulate(fastest_plan("2:4", kept, 4096, "fp16", gpu), gpu)
    written = 2304 * 4096 * 2
    of_dram = (found.dram_bytes - written) / gpu.dram_bytes_per_s + written / gpu.dram_write_bytes_per_s
    assert 0.99 * of_dram < found.seconds < 1.05 * of_dram  # cycles are those of another clock, within 2 %


def test_a_miss_of_one_row_fetches_one_row() -> None:
    """CSR of 512 x 512 with 1024 tokens: the rows that are used come from DRAM once, of 1024 tokens each."""
    gpu = load_gpu("gtx-1080-ti")
    plan = fastest_plan("csr", elements_of_density(512, 512, 0.001), 1024, "fp32", gpu)
    rows = np.unique(plan.tiles.column_index).size
    assert rows < 256
    context = launch_context(plan, gpu)
    rules = memory_rules(context)
    assert (rules.read.rows, rules.rows_per_miss) == (rows, 1)
    compulsory = plan_traffic(context, rules, plan_amounts(plan), 1).compulsory_bytes
    assert compulsory == pytest.approx((rows + 512) * 1024 * 4, rel=0.05)  # the rest are weights
    assert compulsory <= simulate(plan, gpu).dram_bytes <= 1.05 * compulsory


@pytest.mark.parametrize(
    ("m", "k", "n"), [(4096, 4096, 4096), (128, 1024, 2048), (640, 1024, 512), (128, 8192, 4096)]
)
def test_ctas_of_a_pair_read_all_of_b_once(m: int, k: int, n: int) -> None:
    plan = plan_dense(m, k, n, "fp16", B200)
    result = simulate(plan, B200)
    compulsory = 2 * (m * k + k * n + m * n)
    assert compulsory <= result.dram_bytes <= 1.05 * compulsory


def test_pairs_of_the_b200_copy_half_a_box_each() -> None:
    plan = plan_dense(4096, 4096, 4096, "fp16", B200)
    copies = [i.amount for p in plan.programs for i in p.step if i.op is Op.COPY_B]
    assert copies == [plan.shape.block_n]  # two bytes an element, half of the tokens
    assert memory_rules(launch_context(plan, B200)).box_parts == 2
    assert memory_rules(launch_context(plan_dense(4096, 4096, 4096, "fp16", H200), H200)).box_parts == 1


@pytest.mark.parametrize(("m", "parts"), [(64, 1), (128, 1), (129, 2)])
def test_a_cta_of_a_pair_without_a_neighbour_copies_all_tokens(m: int, parts: int) -> None:
    configs = KERNELS["dense"].configs(m, 4096, 4096, "fp16", B200)
    kernel = next(found for found in configs if found.kernel.config.shape.block_m == 128)
    plan = plan_dense(m, 4096, 4096, "fp16", B200, config=kernel)
    rules = memory_rules(launch_context(plan, B200))
    l2_bytes = plan_traffic(launch_context(plan, B200), rules, plan_amounts(plan), 1).l2_bytes
    row_ranges = -(-m // 128)
    assert rules.box_parts == parts
    assert l2_bytes > 2 * 4096 * 4096 * row_ranges / parts  # each CTA copies its tokens, or a half of them
    shape, resources = plan.shape, plan.resources
    stage = 2 * shape.block_k * (shape.block_m + shape.block_n // parts)
    assert resources.stages * stage <= resources.shared_bytes <= B200.shared_bytes_per_block


def split_plan() -> KernelPlan:
    """Four tiles of 128 rows, each in two parts."""
    return fastest_plan("stspmm", tiles_keeping([2048] * 4, height=128, k=2048), 128, "fp16", H200, split=2)


def test_partial_sums_of_an_own_workspace_are_written_like_c() -> None:
    """Of each tile one part writes block_m x block_n sums of four bytes, and both engines count them."""
    plan = split_plan()
    parts = int((plan.work.owner == 0).sum())
    assert parts >= 4
    context = launch_context(plan, H200)
    rules = memory_rules(context)
    assert rules.partials == parts * 4 * plan.shape.block_m * plan.shape.block_n
    traffic = plan_traffic(context, rules, plan_amounts(plan), 132)
    assert traffic.written_bytes == traffic.c_bytes + rules.partials
    simulated = simulate(plan, H200)
    assert simulated.dram_bytes == pytest.approx(traffic.dram_bytes, rel=0.02)


def test_partial_sums_of_a_library_stay_in_l2() -> None:
    plan = plan_dense(64, 8192, 64, "fp16", H200)
    assert plan.work.parts.max() > 1
    assert memory_rules(launch_context(plan, H200)).partials == 0.0


@pytest.mark.parametrize("gpu_name", ["a100-sxm4-40gb", "rtx-4090", "h200-sxm"])
def test_one_token_is_as_fast_as_dram_brings_its_weights(gpu_name: str) -> None:
    """Balanced weights of 6000 x 3000 in fp32, a fifth of them kept, with 2 bytes of place each: 21.6 MB."""
    gpu, pattern = load_gpu(gpu_name), parse_pattern("balanced:64")
    weights = np.random.default_rng(5).random((6000, 3000), np.float32)
    kept = pattern.map(pattern.prune({"w": weights}, 0.8)["w"])
    plan = fastest_plan("balanced", kept, 1, "fp32", gpu)
    least = 6000 * 3000 * 0.2 * 6 / gpu.dram_bytes_per_s
    for engine in (estimate, simulate):
        seconds = engine(plan, gpu).seconds
        assert least <= seconds <= least + 7e-6
    assert estimate(plan, gpu).seconds == pytest.approx(simulate(plan, gpu).seconds, rel=0.1)


def test_parts_that_begin_apart_share_no_reads_where_l2_is_small() -> None:
    """Two blocks of one token range: side by side they read B once, half a tile apart each reads its own."""
    gpu = load_gpu("v100-sxm2-16gb")
    tiles = tiles_keeping([4096] * 19, height=128, k=4096)
    plan = fastest_plan("stspmm", tiles, 2048, "fp16", gpu, assignment="stream-k")
    context = launch_context(plan, gpu)
    assert np.any(plan.work.k_start > 0)
    found = plan_traffic(context, memory_rules(context), plan_amounts(plan), plan.blocks)
    one_range = 4096 * plan.shape.block_n * 2
    assert one_range * -(-2048 // plan.shape.block_n) > gpu.l2_usable_bytes
    assert found.read_again_bytes > 0.5 * found.b_bytes
    assert found.dram_bytes == pytest.approx(simulate(plan, gpu).dram_bytes, rel=0.3)


@pytest.mark.parametrize("gpu_name", ["t4", "v100-sxm2-16gb", "a100-sxm4-40gb"])
@pytest.mark.parametrize(("m", "k", "n"), [(768, 1024, 256), (1024, 4096, 512), (2048, 512, 2048)])
def test_a_library_chooses_the_same_kernel_whatever_dram_does(gpu_name: str, m: int, k: int, n: int) -> None:
    gpu = load_gpu(gpu_name)
    rates = ("dram_bytes_per_s", "dram_write_bytes_per_s")
    faster = replace(gpu, **{name: 2.0 * getattr(gpu, name) for name in rates})
    before, after = (plan_dense(m, k, n, "fp16", one) for one in (gpu, faster))
    assert before.config == after.config
    assert before.blocks == after.blocks
    assert estimate(after, faster).seconds <= 1.02 * estimate(before, gpu).seconds
