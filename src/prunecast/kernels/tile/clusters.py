"""Clusters of the tile kernel: neighbouring blocks with the same weights and neighbouring tokens.

Items are planned for whole clusters, with the tokens of all their blocks, and spread over the blocks last:
each of a cluster's blocks walks the cluster's list with a token range of its own.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig, tile_costs
from prunecast.patterns.tile_map import IntArray, TileMap
from prunecast.plan.kernel_plan import WorkList
from prunecast.plan.order import Assigned

__all__ = ["CLUSTERED_SHAPE", "cluster_size", "spread_over_clusters"]

CLUSTERED_SHAPE = (256, 128)
"""Tile of C of the config that runs in clusters. Kind: CUDA source, `tile_tokens_sm90.cu`."""


def cluster_size(config: TileConfig, tiles: TileMap, n: int, gpu: GpuSpec) -> int:
    """Blocks that should share their weights: 2 where tiles are long and every block has tokens, else 1.

    Any GPU with wgmma can hold as many clusters of two as it has pairs of SMs, since SMs come in pairs.
    """
    shape = config.shape
    if config.tensor != "wgmma" or (shape.block_m, shape.block_n) != CLUSTERED_SHAPE:
        return 1
    steps = -(-tiles.kept_per_tile // shape.block_k)
    long_enough = steps.size > 0 and float(steps.mean()) >= tile_costs(gpu)["cluster_fewest_steps"]
    in_pairs = -(-n // shape.block_n) % 2 == 0
    return 2 if long_enough and in_pairs else 1


def spread_over_clusters(assigned: Assigned, cluster: int, block_n: int) -> Assigned:
    """From lists of clusters to lists of blocks, of which block r of a cluster takes the r-th token range.

    Parameters
    ----------
    assigned : items of up to `cluster * block_n` tokens, fixed lists, one per cluster
    block_n : tokens of a block

    Raises
    ------
    BadInput : an item leaves a block of its cluster without tokens
    """
    if cluster == 1:
        return assigned
    work = assigned.work
    if np.any(work.token_stop - work.token_start <= (cluster - 1) * block_n):
        raise BadInput(f"clusters of {cluster} blocks of {block_n} tokens need tokens for every block")
    source, rank = _order(work.block_start, cluster)
    start = work.token_start[source] + rank * block_n
    columns = WorkList(work.block_start, *(column[source] for column in work[1:]))
    spread = columns._replace(
        block_start=_spread_starts(work.block_start, cluster),
        token_start=start,
        token_stop=np.minimum(start + block_n, work.token_stop[source]),
        group=np.where(columns.group < 0, -1, columns.group * cluster + rank),
    )
    return Assigned(spread, assigned.schedule, assigned.blocks * cluster)


class _Order(NamedTuple):
    source: IntArray
    """(items of all blocks,): item of the cluster."""
    rank: IntArray
    """(items of all blocks,): place of the block in its cluster."""


def _order(start: IntArray, cluster: int) -> _Order:
    """Every cluster's list, once for each of its blocks."""
    lists = [np.arange(a, b) for a, b in pairwise(start)]
    source = [own for own in lists for _ in range(cluster)]
    rank = [np.full(own.size, r) for own in lists for r in range(cluster)]
    return _Order(np.concatenate(source), np.concatenate(rank))


def _spread_starts(start: IntArray, cluster: int) -> IntArray:
    lengths = np.repeat(np.diff(start), cluster)
    return np.concatenate(([0], np.cumsum(lengths)))
