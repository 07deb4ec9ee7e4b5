"""Items of a cluster, spread over its blocks: same weights, neighbouring tokens, every token once."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, PlanDoesNotFit, plan_stspmm, run_reference
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.configs import tile_configs
from prunecast.kernels.tile.stspmm import _cluster_size, spread_over_clusters
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.launch import launch_context
from prunecast.launch.memory import memory_rules
from prunecast.models import plan_traffic
from prunecast.models.amounts import plan_amounts
from prunecast.patterns import TileMap
from prunecast.plan.assignment import assign_hardware, assign_longest_first, assign_stream_k
from prunecast.plan.program import Op
from prunecast.simulator import simulate

GPU = load_gpu("h200-sxm")
VARIANT = next(v for v in wgmma_configs(GPU, "fp16", "wgmma") if v.shape[:2] == (256, 128))


def uneven_map() -> TileMap:
    """Three tiles of 256, 256 and 100 rows that keep 700, 30 and 129 of 1000 columns."""
    rng = np.random.default_rng(0)
    counts = (700, 30, 129)
    columns = [np.sort(rng.choice(1000, kept, replace=False)) for kept in counts]
    return TileMap(
        m=612,
        k=1000,
        row_start=np.array([0, 256, 512, 612]),
        row_index=rng.permutation(612),
        column_start=np.concatenate(([0], np.cumsum(counts))),
        column_index=np.concatenate(columns),
        pattern="tile-wise:256",
    )


def equal_tiles(m: int, kept: int) -> TileMap:
    """Tiles of 256 rows that all keep the first columns of 4096."""
    tiles = m // 256
    return TileMap(
        m=m,
        k=4096,
        row_start=np.arange(tiles + 1) * 256,
        row_index=np.arange(m),
        column_start=np.arange(tiles + 1) * kept,
        column_index=np.tile(np.arange(kept), tiles),
        pattern="tile-wise:256",
    )


def clustered(n: int, assignment: str, clusters: int = 3) -> KernelPlan:
    tiles = uneven_map()
    items = items_of(tiles, VARIANT, n, GPU, cluster=2)
    if assignment == "stream-k":
        assigned = assign_stream_k(items, clusters, 64)
    elif assignment == "longest-first":
        assigned = assign_longest_first(items, -(-items.k_stop // 64), clusters)
    else:
        assigned = assign_hardware(items)
    return tile_plan(
        "stspmm", tiles, n, VARIANT, spread_over_clusters(assigned, 2, 128), GPU, b_access="gather", cluster=2
    )


@pytest.mark.parametrize("assignment", ["stream-k", "longest-first", "hardware"])
@pytest.mark.parametrize("n", [129, 256, 456, 1000])
def test_a_clustered_plan_computes_the_product(n: int, assignment: str) -> None:
    plan = clustered(n, assignment)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((plan.m, plan.k)), rng.standard_normal((plan.k, n))
    wanted = (a * plan.tiles.mask()) @ b
    np.testing.assert_allclose(run_reference(plan, a, b), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("assignment", ["stream-k", "longest-first"])
def test_blocks_of_a_cluster_differ_in_tokens_alone(assignment: str) -> None:
    plan = clustered(1000, assignment)
    assert plan.blocks == 6
    work, start = plan.work, plan.work.block_start
    for block in range(0, plan.blocks, 2):
        left, right = (slice(start[b], start[b + 1]) for b in (block, block + 1))
        assert (work.tile[left] == work.tile[right]).all()
        assert (work.k_start[left] == work.k_start[right]).all()
        assert (work.token_start[right] == work.token_start[left] + 128).all()


def test_split_tiles_of_a_cluster_have_a_reduction_group_for_each_block() -> None:
    plan = clustered(1000, "stream-k")
    split = plan.work.group >= 0
    assert split.any()
    tokens = {}
    for group, token in zip(plan.work.group[split], plan.work.token_start[split], strict=True):
        assert tokens.setdefault(group, token) == token


def test_a_block_without_tokens_is_refused() -> None:
    items = items_of(uneven_map(), VARIANT, 384, GPU, cluster=2)  # 256 and 128 tokens
    with pytest.raises(BadInput, match="need tokens for every block"):
        spread_over_clusters(assign_hardware(items), 2, 128)


def test_lists_that_do_not_match_make_no_cluster() -> None:
    plan = clustered(1000, "longest-first")
    tile = plan.work.tile.copy()
    tile[plan.work.block_start[1]] = (tile[plan.work.block_start[1]] + 1) % 3
    k_stop = plan.tiles.kept_per_tile[tile]
    with pytest.raises(PlanDoesNotFit, match="different tiles or k ranges"):
        replace(plan, work=plan.work._replace(tile=tile, k_stop=k_stop))


def test_clusters_need_a_whole_number_of_blocks() -> None:
    plan = clustered(1000, "longest-first")
    with pytest.raises(PlanDoesNotFit, match="make no clusters of 4"):
        replace(plan, cluster=4)


def test_a_cluster_changes_the_fingerprint_and_one_block_alone_does_not() -> None:
    plan = clustered(1000, "longest-first")
    assert plan.fingerprint() != replace(plan, cluster=1).fingerprint()


def test_weights_are_read_once_for_a_cluster_by_both_predictors() -> None:
    plan = clustered(1000, "longest-first")
    alone = tile_plan(
        "stspmm",
        plan.tiles,
        plan.n,
        VARIANT,
        assign_longest_first(items_of(plan.tiles, VARIANT, plan.n, GPU), np.ones(24), 6),
        GPU,
        b_access="gather",
    )
    copies = [i for p in plan.programs for i in p.step if i.op is Op.COPY_A]
    assert [i.multicast for i in copies] == [2]
    # Whole stages of 64 columns, at least two, for 8 ranges of 128 tokens
    stages = np.maximum(-(-plan.tiles.kept_per_tile // 64), 2).sum() * 8
    saved = stages * 4 * VARIANT.weight_bytes_per_k16 // 2
    assert saved > 0
    modelled = [
        plan_traffic(context, memory_rules(context), plan_amounts(context.plan), 6).l2_bytes
        for context in (launch_context(alone, GPU), launch_context(plan, GPU))
    ]
    assert modelled[0] - modelled[1] == pytest.approx(saved)
    simulated = [simulate(p, GPU).l2_bytes for p in (alone, plan)]
    assert simulated[0] - simulated[1] == saved


@pytest.mark.parametrize(
    ("kept", "n", "cluster"), [(2048, 4096, 2), (256, 4096, 1), (2048, 4000, 2), (2048, 3968, 1)]
)
def test_stspmm_clusters_long_tiles_with_tokens_for_every_block(kept: int, n: int, cluster: int) -> None:
    """4000 tokens are 32 ranges of 128, the last one short; 3968 are 31."""
    tiles = equal_tiles(4096, kept)
    config = next(c for c in tile_configs(GPU, "fp16", 256) if c.shape[:2] == (256, 128))
    plan = plan_stspmm(tiles, n, "fp16", GPU, config)
    assert plan.cluster == cluster
    assert plan.blocks == 132


def test_other_forms_and_empty_maps_have_no_clusters() -> None:
    narrow = next(v for v in wgmma_configs(GPU, "fp16", "wgmma") if v.shape[:2] == (128, 256))
    assert _cluster_size(narrow, equal_tiles(4096, 4096), 4096, GPU) == 1
    assert _cluster_size(VARIANT, equal_tiles(256, 0), 4096, GPU) == 1
