"""Grouped launches: the tiles of all experts of a layer, each with the tokens of its expert."""

import dataclasses

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS, Schedule, run_reference
from prunecast.kernels.libraries.experts.routing import expert_loads
from prunecast.launch import launch_context
from prunecast.launch.memory import memory_rules
from prunecast.models import estimate, packed_bytes, plan_amounts
from prunecast.models.amounts import launch_amounts
from prunecast.models.block_times import rows_after_weights
from prunecast.models.roofline import look_up
from prunecast.models.terms import Quantity
from prunecast.models.traffic import plan_traffic
from prunecast.patterns import TileMap, parse_pattern
from prunecast.plan.expert_items import RANGES_TOGETHER, expert_items, stacked_experts
from prunecast.plan.kernel_plan import PlanDoesNotFit
from prunecast.simulator import simulate
from tests.kernels.plan_laws import checb_access

H200 = load_gpu("h200-sxm")
LOADS = (0, 1, 5, 9, 300)
GROUPED = ("stspmm", "small-n")


def expert_maps(experts: int, m: int, k: int, *, density: float = 0.4, seed: int = 0) -> list[TileMap]:
    """Maps of experts with tiles of 64 rows and different numbers of columns."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(experts):
        mask = np.repeat(rng.random((-(-m // 64), k)) < density * rng.uniform(0.5, 1.5), 64, axis=0)[:m]
        found.append(parse_pattern("tile-wise:64").map(mask))
    return found


def plan_of(kernel: str, maps: list[TileMap], loads: tuple[int, ...], gpu=H200):
    mean = -(-sum(loads) // max(np.count_nonzero(loads), 1))
    return fastest_plan(kernel, stacked_experts(maps), mean, "fp16", gpu, loads=loads)


@pytest.mark.parametrize("kernel", GROUPED)
def test_every_expert_is_multiplied_with_its_tokens_only(kernel):
    maps = expert_maps(5, 192, 320)
    loads = LOADS if kernel == "stspmm" else (0, 1, 5, 9, 40)
    plan = plan_of(kernel, maps, loads)
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(5 * 192, 320)), rng.normal(size=(320, plan.n))
    c = run_reference(plan, a, b)
    assert c.shape == (192, plan.n)
    first = 0
    for expert, load in enumerate(loads):
        stop = first + -(-load // plan.shape.block_n) * plan.shape.block_n
        own = a[expert * 192 : (expert + 1) * 192] * maps[expert].mask()
        np.testing.assert_allclose(c[:, first:stop], own @ b[:, first:stop], rtol=1e-12, atol=1e-12)
        first = stop
    assert first == plan.n
    checb_access(plan)


@pytest.mark.parametrize("kernel", GROUPED)
def test_a_grouped_plan_counts_what_its_experts_read(kernel):
    """Weights once for each expert with tokens, B once for each of its tokens, C for all tokens."""
    maps = expert_maps(5, 192, 320)
    loads = LOADS if kernel == "stspmm" else (0, 12, 14, 16, 16)
    plan = plan_of(kernel, maps, loads)
    active = [one for one, load in zip(maps, loads, strict=True) if load]
    alone = [KERNELS[kernel].plan(one, plan.shape.block_n, "fp16", H200, plan.config) for one in active]
    # Without the padding of the columns of an item
    assert packed_bytes(plan) == pytest.approx(sum(packed_bytes(one) for one in alone))
    amounts = plan_amounts(plan)
    assert float(amounts.total[Quantity.C]) == 192 * plan.n * 2
    assert simulate(plan, H200).dram_bytes == pytest.approx(dram_bytes(plan), rel=0.02)
    kept = plan.tiles.rows_per_tile * plan.tiles.kept_per_tile
    assert float(kept @ plan.tokens_of_tile) == pytest.approx(
        sum(one.density * 192 * 320 * tokens for one, tokens in zip(maps, padded(plan, loads), strict=True))
    )


def dram_bytes(plan):
    context = launch_context(plan, H200)
    rules, amounts = memory_rules(context), launch_amounts(context)
    return plan_traffic(context, rules, amounts, H200.sm_count).dram_bytes


def padded(plan, loads):
    return [-(-load // plan.shape.block_n) * plan.shape.block_n for load in loads]


def test_tiles_of_an_expert_share_token_ranges_in_groups():
    tiles = stacked_experts(expert_maps(2, 128, 64))
    items, n = expert_items(tiles, (5, 16 * (RANGES_TOGETHER + 1)), 16)
    assert n == 16 * (RANGES_TOGETHER + 2)
    order = list(zip(items.tile.tolist(), (items.token_start // 16).tolist(), strict=True))
    ranges = range(1, RANGES_TOGETHER + 1)
    assert order == [
        (0, 0),
        (1, 0),
        *((tile, own) for tile in (2, 3) for own in ranges),
        (2, RANGES_TOGETHER + 1),
        (3, RANGES_TOGETHER + 1),
    ]


def test_blocks_of_a_grouped_launch_take_items_in_turn():
    plan = plan_of("stspmm", expert_maps(16, 1024, 256), (200,) * 16)
    items, _ = expert_items(plan.tiles, (200,) * 16, plan.shape.block_n)
    assert plan.schedule is Schedule.STATIC
    assert plan.item_count > plan.blocks == H200.sm_count
    for block in (0, 1, plan.blocks - 1):
        own = slice(plan.work.block_start[block], plan.work.block_start[block + 1])
        np.testing.assert_array_equal(plan.work.tile[own], items.tile[block :: plan.blocks])
        np.testing.assert_array_equal(plan.work.token_start[own], items.token_start[block :: plan.blocks])


EXPERTS = {
    "qwen3-30b-a3b gate and up": (128, 8, 1536, 2048),
    "qwen3-30b-a3b down": (128, 8, 2048, 768),
    "olmoe gate and up": (64, 8, 2048, 2048),
    "deepseek-v2-lite gate and up": (64, 6, 2816, 2048),
    "deepseek-v2-lite down": (64, 6, 2048, 1408),
    "gpt-oss-20b down": (32, 4, 2880, 2880),
}
"""Experts, experts of a token, M and K of products of published models."""


def drawn(seed: int):
    """A random layer of experts of a published model, and the kernel and GPU that multiply it."""
    rng = np.random.default_rng(seed)
    gpu = load_gpu(str(rng.choice(["h200-sxm", "h100-sxm", "a100-sxm4-80gb"])))
    experts, per_token, m, k = EXPERTS[str(rng.choice(list(EXPERTS)))]
    tokens = int(rng.choice([1, 4, 16, 32, 1000]))
    routing = str(rng.choice(["balanced", "random", "power-law:1.01", "power-law:1.2"]))
    loads = tuple(int(load) for load in expert_loads(experts, per_token, tokens, routing) if load > 0)
    maps = expert_maps(len(loads), m, k, density=float(rng.choice([0.1, 0.25, 0.5])), seed=seed)
    few = max(loads) <= 64 and gpu.has_wgmma  # of the A100, other draws are on the page
    kernel = str(rng.choice(GROUPED)) if few else "stspmm"
    return plan_of(kernel, maps, loads, gpu), gpu


def test_both_engines_agree_on_grouped_launches_drawn_at_random():
    """As on single matrices, see docs/decisions/0025-grouped-experts.md."""
    apart = []
    for seed in range(30):
        plan, gpu = drawn(seed)
        apart.append(abs(np.log(estimate(plan, gpu).seconds / simulate(plan, gpu).seconds)))
    assert np.mean(np.array(apart) < np.log(1.1)) >= 0.9
    assert max(apart) < np.log(1.25)


def test_waves_of_few_k_steps_wait_for_the_weights_of_all_blocks():
    """Rows of B of other experts follow all weights of a wave: DRAM idles while all blocks multiply."""
    rng = np.random.default_rng(3)
    gpu = load_gpu("h100-sxm")
    maps = [
        parse_pattern("tile-wise:64").map(np.repeat(rng.random((32, 1408)) < share, 64, axis=0))
        for share in rng.uniform(0.08, 0.15, 40)
    ]
    grouped = plan_of("small-n", maps, (2,) * 40, gpu)
    single = fastest_plan("small-n", stacked_experts(maps), 8, "fp16", gpu)
    waits, none = (rows_after_weights(look_up(launch_context(plan, gpu))) for plan in (grouped, single))
    assert waits > 0.9
    assert none == 0.0
    assert estimate(grouped, gpu).seconds == pytest.approx(simulate(grouped, gpu).seconds, rel=0.1)
    # All DRAM traffic of the launch, and nearly half of that time in addition
    assert estimate(grouped, gpu).cycles > 1.3 * estimate(grouped, gpu).bound_cycles["dram"]


def test_one_grouped_launch_is_faster_than_a_launch_for_each_expert():
    maps = expert_maps(32, 768, 1024, density=0.25)
    loads = (16,) * 32
    grouped = estimate(plan_of("stspmm", maps, loads), H200).seconds
    alone = sum(estimate(fastest_plan("stspmm", one, 16, "fp16", H200), H200).seconds for one in maps)
    assert grouped < 0.5 * alone


def test_bad_groups_are_refused():
    maps = expert_maps(2, 128, 64)
    stacked = stacked_experts(maps)
    with pytest.raises(BadInput, match="one shape"):
        stacked_experts([*maps, *expert_maps(1, 192, 64)])
    half = dataclasses.replace(
        maps[0],
        row_start=maps[0].row_start[:2],
        row_index=maps[0].row_index[:64],
        column_start=maps[0].column_start[:2],
        column_index=maps[0].column_index[: maps[0].column_start[1]],
    )
    with pytest.raises(BadInput, match="every row of an expert in a tile"):
        stacked_experts([half])
    for loads in ((0, 0), (3, -1), (1, 1, 1)):
        with pytest.raises(BadInput, match="grouped experts: wanted loads"):
            expert_items(stacked, loads, 16)
    with pytest.raises(BadInput, match="csr has no grouped form"):
        fastest_plan("csr", stacked, 8, "fp16", H200, loads=(8, 8))
    plan = plan_of("stspmm", maps, (8, 8))
    same_tokens = plan.work._replace(
        token_start=np.zeros_like(plan.work.tile), token_stop=np.full_like(plan.work.tile, 8)
    )
    with pytest.raises(PlanDoesNotFit, match="two experts have the same tokens"):
        dataclasses.replace(plan, work=same_tokens)
    with pytest.raises(PlanDoesNotFit, match="3 experts need all of 256 rows"):
        dataclasses.replace(plan, experts=3)


@pytest.mark.parametrize("kernel", GROUPED)
def test_weights_of_experts_without_tokens_are_not_read(kernel):
    maps = expert_maps(5, 192, 320)
    kept = [int(each.mask().sum()) for each in maps]
    share = (kept[1] + kept[3] + kept[4]) / sum(kept)
    assert plan_of(kernel, maps, (0, 12, 0, 16, 4)).read_share == pytest.approx(share, rel=1e-12)
    assert plan_of(kernel, maps, (1, 12, 2, 16, 4)).read_share == 1.0
