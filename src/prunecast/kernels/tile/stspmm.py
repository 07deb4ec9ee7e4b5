"""`stspmm`: tiles on a persistent grid; heavy tiles are split along K and the slices distributed over the
blocks.

Two effects make blocks of a persistent grid end at different times: tiles that exceed a block's share of the
work, and a partly filled last wave. Splitting has a cost: the fp32 partial sums of every slice are written
and read again.

A cluster consists of neighbouring blocks with the same weights and neighbouring tokens. Items are first
planned for whole clusters, with the tokens of all their blocks. Then every block of a cluster gets the
cluster's list with its own token range.
"""

from itertools import pairwise

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.costs import load_costs
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.item_cost import item_cost
from prunecast.kernels.tile.tile_plan import items_of, resident_blocks, tile_plan
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.assignment import (
    Assigned,
    assign_hardware,
    assign_lists,
    assign_longest_first,
    assign_stream_k,
)
from prunecast.plan.expert_items import expert_items
from prunecast.plan.kernel_plan import KernelPlan, Schedule, WorkList
from prunecast.plan.tile_rows import cut_rows

STREAM_K = {"stream-k": 1, "stream-k/2": 2, "stream-k/4": 4}
"""Assignment -> divisor of the number of resident blocks. The quotient is the number of blocks that get equal
shares of all k-steps. Fewer blocks are tried because a block with one or two k-steps costs more than it
saves. Kind: choice, candidates."""
ASSIGNMENTS = ("longest-first", *STREAM_K)
OTHER_SLICES = (16, 32)
"""Maximum k-steps per slice that `other_splits` tries if the planner's costs are guesses. Kind: choice,
candidates."""


def plan_stspmm(
    tiles: TileMap,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    config: TileConfig,
    *,
    assignment: str = "longest-first",
    split: str | int | None = "auto",
    loads: tuple[int, ...] = (),
) -> KernelPlan:
    """Return the plan of a product of a tile map with `n` tokens that balances the load of all blocks.

    A grouped launch (`loads`) splits no tile and assigns items round-robin: of B blocks, block b has the
    items b, b + B, b + 2 B and so on. This rule lets the GPU build the lists itself, from the number of
    tokens that the router sends to each expert.

    Parameters
    ----------
    config : one of `tile_map_configs`
    assignment : `longest-first` assigns items by descending cost, each to the least loaded block. `stream-k`
        gives equal shares of all k-steps, cut at any k-step, to all blocks that the GPU can hold,
        `stream-k/2` and `stream-k/4` to half and a quarter of these blocks
    split : `auto` splits items that unbalance the load; a number is the maximum number of k-steps per slice;
        None splits nothing. Ignored by stream-k, which always splits
    loads : number of tokens of each expert, if `tiles` is the map of several experts' matrices stacked along
        M; `n` is then ignored

    Raises
    ------
    BadInput : n below 1, a dtype for which the GPU has no tensor cores, an unknown assignment or split
    """
    _check(assignment, split)
    tiles = cut_rows(tiles, config.shape.block_m)
    if loads:
        items, n = expert_items(tiles, loads, config.shape.block_n)
        # With equal costs, longest-first assigns the items round-robin
        in_turn = np.ones(items.tile.size, np.int64)
        assigned = assign_longest_first(items, in_turn, resident_blocks(config, gpu, in_turn.size))
        return tile_plan("stspmm", tiles, n, config, assigned, gpu, b_access="gather", experts=len(loads))
    cluster = _cluster_size(config, tiles, n, gpu)
    items = items_of(tiles, config, n, gpu, cluster=cluster)
    cost = item_cost(config, tiles.kept_per_tile, tiles.row_index.size, n, gpu)
    most_blocks, block_k = gpu.sm_count * cost.slots // cluster, config.shape.block_k
    if assignment in STREAM_K:
        steps = int(np.maximum(-(-items.k_stop // block_k), 1).sum())
        blocks = max(min(most_blocks, steps), 1) // STREAM_K[assignment]
        assigned = assign_stream_k(items, max(blocks, 1), block_k)
    else:
        assigned = assign_lists(items, most_blocks, block_k, cost, split=split)
    spread = spread_over_clusters(assigned, cluster, config.shape.block_n)
    return tile_plan("stspmm", tiles, n, config, spread, gpu, b_access="gather", cluster=cluster)


def other_splits(plan: KernelPlan, config: TileConfig, gpu: GpuSpec) -> list[KernelPlan]:
    """Return alternative plans, which may be faster if the planner's costs are guesses. The list is empty for
    wgmma configs, grouped launches and plans without fixed lists.

    The alternatives have no splits, slices of fixed length, equal shares of all k-steps (stream-k), or whole
    items that the hardware schedules.
    """
    if config.tensor_path == "wgmma" or plan.experts > 1 or plan.schedule is not Schedule.STATIC:
        return []
    tiles, n = plan.tiles, plan.n
    found = [plan_stspmm(tiles, n, plan.dtype, gpu, config, split=split) for split in (None, *OTHER_SLICES)]
    found += [plan_stspmm(tiles, n, plan.dtype, gpu, config, assignment=shares) for shares in STREAM_K]
    placed = assign_hardware(items_of(tiles, config, n, gpu))
    found.append(tile_plan("stspmm", tiles, n, config, placed, gpu, b_access="gather"))
    distinct = {other.fingerprint(): other for other in found}
    distinct.pop(plan.fingerprint(), None)
    return list(distinct.values())


def _check(assignment: str, split: str | int | None) -> None:
    if assignment not in ASSIGNMENTS:
        raise BadInput(f"stspmm: assignment must be one of {', '.join(ASSIGNMENTS)}, got {assignment!r}")
    if split is None or split == "auto":
        return
    if isinstance(split, str) or split < 1:
        raise BadInput(f"stspmm: split must be auto, None or a number of k-steps from 1, got {split!r}")


def _cluster_size(config: TileConfig, tiles: TileMap, n: int, gpu: GpuSpec) -> int:
    """Return the blocks per cluster: 2 for `TOKEN_FORM` if tiles have many k-steps on average and the number
    of token ranges is even, so that every block has tokens; else 1.

    SMs come in pairs, so a GPU with wgmma can hold as many clusters of two as it has pairs of SMs.
    """
    shape = config.shape
    if not config.tokens_first:
        return 1
    steps = -(-tiles.kept_per_tile // shape.block_k)
    long_enough = (
        steps.size > 0
        and float(steps.mean()) >= load_costs(__package__, gpu.compute_capability)["cluster_fewest_steps"]
    )
    in_pairs = -(-n // shape.block_n) % 2 == 0
    return 2 if long_enough and in_pairs else 1


def spread_over_clusters(assigned: Assigned, cluster: int, block_n: int) -> Assigned:
    """Convert lists of clusters to lists of blocks; block r of a cluster has the r-th token range of each
    item.

    Parameters
    ----------
    assigned : one fixed list per cluster, whose items have up to `cluster * block_n` tokens
    cluster : blocks per cluster
    block_n : tokens of a block

    Raises
    ------
    BadInput : an item has too few tokens for all blocks of its cluster
    """
    if cluster == 1:
        return assigned
    work = assigned.work
    if np.any(work.token_stop - work.token_start <= (cluster - 1) * block_n):
        raise BadInput(f"clusters of {cluster} blocks of {block_n} tokens need tokens for every block")
    # Every block of a cluster processes the cluster's list
    lists = [np.arange(a, b) for a, b in pairwise(work.block_start)]
    source = np.concatenate([own for own in lists for _ in range(cluster)])
    rank = np.concatenate([np.full(own.size, r) for own in lists for r in range(cluster)])
    start = work.token_start[source] + rank * block_n
    columns = WorkList(work.block_start, *(column[source] for column in work[1:]))
    lengths = np.repeat(np.diff(work.block_start), cluster)
    spread = columns._replace(
        block_start=np.concatenate(([0], np.cumsum(lengths))),
        token_start=start,
        token_stop=np.minimum(start + block_n, work.token_stop[source]),
        group=np.where(columns.group < 0, -1, columns.group * cluster + rank),
    )
    return Assigned(spread, assigned.schedule, assigned.blocks * cluster)
