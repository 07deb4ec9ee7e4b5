"""The token form of the tile kernel, alone and in clusters, on an emulated machine."""

from pathlib import Path

import pytest

from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.stspmm import spread_over_clusters
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.plan.assignment import assign_hardware, assign_stream_k
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import check_around, check_c, make_operands
from tests.kernels.cuda.on_cpu.tile_run import run_fill, run_tiles
from tests.kernels.cuda.plans import GPU, ragged_map

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")


def plan_of(
    n: int,
    *,
    k: int = 300,
    dtype: str = "fp16",
    clusters: int = 0,
    cluster: int = 1,
    shuffled: bool = True,
) -> KernelPlan:
    """One item per block, or equal shares for `clusters` clusters."""
    tiles = ragged_map(256, k=k, shuffled=shuffled)
    variant = next(v for v in wgmma_configs(GPU, dtype, "wgmma") if v.shape[:2] == (256, 128))
    items = items_of(tiles, variant, n, GPU, cluster=cluster)
    assigned = assign_stream_k(items, clusters, 64) if clusters else assign_hardware(items)
    spread = spread_over_clusters(assigned, cluster, 128)
    return tile_plan("stspmm", tiles, n, variant, spread, GPU, b_access="gather", cluster=cluster)


def check(plan: KernelPlan, folder: Path, *, activation: str = "none", bias: bool = False, **choices) -> None:
    operands = make_operands(plan, bias=bias, align=8)
    run_tiles(plan, operands, folder, activation=activation, **choices)
    run_fill(plan, operands, folder, activation=activation)
    check_c(plan, operands, activation)
    check_around(operands.c, -(-plan.n // 8) * 8)


@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
def test_blocks_alone(landing: str, cubins: Path) -> None:
    plan = plan_of(203, k=700, clusters=5)
    assert plan.work.parts.max() == 2
    check(plan, cubins, landing=landing)


@pytest.mark.parametrize(
    ("landing", "seed"), [("oldest", 0), ("newest", 0), ("at-once", 0), ("oldest", 1), ("at-once", 2)]
)
def test_clusters_that_share_their_weights(landing: str, seed: int, cubins: Path) -> None:
    plan = plan_of(392, dtype="bf16", clusters=2, cluster=2)
    assert plan.blocks == 4
    check(plan, cubins, landing=landing, seed=seed)


@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
def test_rows_that_follow_one_another_are_stored_in_boxes(landing: str, cubins: Path) -> None:
    check(plan_of(392, k=700, clusters=2, cluster=2, shuffled=False), cubins, landing=landing)


def test_one_item_per_block_of_a_cluster(cubins: Path) -> None:
    check(plan_of(200, cluster=2), cubins, backwards=True)


def test_bias_and_activation(cubins: Path) -> None:
    check(plan_of(136, clusters=1, cluster=2), cubins, activation="gelu", bias=True)


SEEDS = range(6)
WRONG = {
    "a block tells only itself that a slot is empty": (
        {},
        {"barrier_arrive_at(held, warp % 4);": "barrier_arrive_at(held, cluster_rank());"},
        "a race",
    ),
    "a block starts before its neighbour is ready": (
        {"landing": "at-once"},
        {
            "range.end - range.begin);\n  }\n  start_together();": "range.end - range.begin); }\n"
            "__syncthreads();"
        },
        "never initialised",
    ),
    "weights go to one block only": (
        {},
        {"ring.full(), (1 << 2) - 1);": "ring.full(), 1);"},
        "deadlock|wrong; tile",
    ),
    "rows are staged while they are being stored": (
        {},
        {"void empty_staging() const {\n    bulk_stores_read();": "void empty_staging() const {"},
        "asynchronous proxy|a race|wrong; tile",
    ),
    "rows are staged before all warps have stored": (
        {},
        {"bulk_stores_read();\n    warpgroup_sync(barrier);": "bulk_stores_read();"},
        "a race|asynchronous proxy|wrong; tile",
    ),
    "rows are stored before all warps have staged": (
        {},
        {"fence_async_proxy();\n    warpgroup_sync(barrier);": "fence_async_proxy();"},
        "a race|asynchronous proxy|wrong; tile",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    choices, changes, message = WRONG[wrong]
    plan = plan_of(392, k=700, clusters=2, cluster=2, shuffled=False)
    assert_noticed(lambda seed: check(plan, cubins, changes=changes, seed=seed, **choices), message, SEEDS)
