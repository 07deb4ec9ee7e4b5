"""`stspmm`: tiles on a persistent grid, heavy ones split and the parts redistributed."""

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.clusters import cluster_size, spread_over_clusters
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.item_cost import ItemCost, item_cost, item_cycles
from prunecast.kernels.tile.splitting import even_slices
from prunecast.kernels.tile.tile_plan import check_tokens, items_of, resident_blocks, tile_plan
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import KernelPlan, WorkList
from prunecast.plan.order import Assigned, assign_dynamic, assign_longest_first, assign_stream_k
from prunecast.plan.tile_rows import cut_rows
from prunecast.plan.work_items import split_items

__all__ = ["ASSIGNMENTS", "plan_stspmm"]

ASSIGNMENTS = ("longest-first", "stream-k", "dynamic")


def plan_stspmm(
    tiles: TileMap,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    config: TileConfig,
    *,
    assignment: str = "longest-first",
    split: str | int | None = "auto",
) -> KernelPlan:
    """Plan the product of a tile map with `n` tokens so that all blocks finish together.

    Parameters
    ----------
    config : one of `tile_map_configs`
    assignment : `longest-first` (fixed lists), `dynamic` (one list, drawn from) or `stream-k` (equal shares
        of all k-steps, cut wherever they end)
    split : `auto` cuts what keeps blocks from finishing together, a number is the most k-steps of one part,
        None cuts nothing; stream-k cuts by itself and ignores it

    Raises
    ------
    BadInput : n below 1, a dtype that the GPU has no tensor cores for, an unknown assignment or split
    """
    _check(assignment, split)
    check_tokens(n)
    tiles = cut_rows(tiles, config.shape.block_m)
    cluster = cluster_size(config, tiles, n, gpu) if assignment != "dynamic" else 1
    items = items_of(tiles, config, n, gpu, cluster=cluster)
    cost = item_cost(config, tiles, n, gpu)
    assigned = _assign(items, config, cost, gpu, assignment, split, cluster)
    spread = spread_over_clusters(assigned, cluster, config.shape.block_n)
    return tile_plan("stspmm", tiles, n, config, spread, gpu, b_access="gather", cluster=cluster)


def _check(assignment: str, split: str | int | None) -> None:
    if assignment not in ASSIGNMENTS:
        raise BadInput(f"stspmm: assignment must be one of {', '.join(ASSIGNMENTS)}, got {assignment!r}")
    if split is None or split == "auto":
        return
    if isinstance(split, str) or split < 1:
        raise BadInput(f"stspmm: split must be auto, None or a number of k-steps from 1, got {split!r}")


def _assign(
    items: WorkList,
    config: TileConfig,
    cost: ItemCost,
    gpu: GpuSpec,
    assignment: str,
    split: str | int | None,
    cluster: int,
) -> Assigned:
    """Items of clusters, and lists of clusters, where blocks share their weights."""
    block_k = config.shape.block_k
    steps = np.maximum(-(-items.k_stop // block_k), 1)
    everywhere = resident_blocks(config, gpu, int(steps.sum()), cluster=cluster)
    if assignment == "stream-k":
        return assign_stream_k(items, everywhere, block_k)
    if split is not None:
        auto = split == "auto"
        cut = even_slices(items, everywhere, block_k, cost) if auto else -(-steps // int(split))
        items = split_items(items, cut, block_k)
    cycles = item_cycles(items, block_k, cost)
    blocks = resident_blocks(config, gpu, items.tile.size, cluster=cluster)
    if assignment == "dynamic":
        return assign_dynamic(items, cycles, blocks)
    return assign_longest_first(items, cycles, blocks)
