"""Work items of a grouped launch, which multiplies the matrices of all experts of a MoE layer.

In a grouped launch, A is the matrices of all experts stacked along M. The columns of B are tokens sorted by
expert. The tokens of each expert are padded to whole blocks, so that a block has tokens of only one expert.
All experts write the same rows of C, in different columns.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.assignment import assign_hardware
from prunecast.plan.kernel_plan import KernelPlan, WorkList
from prunecast.plan.tile_rows import stacked_tiles
from prunecast.plan.work_items import Raster, raster, raster_items, whole_items

RANGES_TOGETHER = 8
"""Number of token ranges of an expert that all its tiles process before the next ranges. Weights are read
once for these ranges, and their rows of B (16 MB for 4096 features and 256 tokens) stay in L2. Kind:
choice."""


class ExpertItems(NamedTuple):
    """Items of a grouped launch, one per tile and token range of its expert."""

    items: WorkList
    n: int
    """Number of columns of B: tokens of all experts, padded to whole blocks for each expert."""


def stacked_experts(maps: Sequence[TileMap]) -> TileMap:
    """Return the tile map of the experts' matrices, which have one shape, stacked along M.

    Raises
    ------
    BadInput : no maps, different shapes, or a map with rows in no tile
    """
    if not maps or len({(one.m, one.k) for one in maps}) != 1:
        raise BadInput(f"grouped experts: wanted maps of one shape, got {len({(o.m, o.k) for o in maps})}")
    if any(one.row_index.size != one.m for one in maps):
        raise BadInput("grouped experts: wanted every row of an expert in a tile")
    return stacked_tiles(maps)


def expert_items(tiles: TileMap, loads: Sequence[int], block_n: int) -> ExpertItems:
    """Return unsplit items in the order in which a grouped kernel processes them: expert after expert.

    Within an expert, all tiles process the first `RANGES_TOGETHER` token ranges, then the next ones. The
    ranges of a tile in such a group are consecutive.

    Parameters
    ----------
    tiles : tile map of the experts' matrices stacked along M; no tile is taller than a block
    loads : number of tokens of each expert; tiles of experts without tokens have no items
    block_n : tokens of a block

    Raises
    ------
    BadInput : no expert has a token, a negative number of tokens, or M is not a multiple of the experts
    """
    if not loads or min(loads) < 0 or max(loads) < 1 or tiles.m % len(loads):
        raise BadInput(
            f"grouped experts: wanted loads of experts that divide {tiles.m} rows, got {len(loads)}"
        )
    of_tile = tiles.row_index[tiles.row_start[:-1]] // (tiles.m // len(loads))
    first_tile = np.searchsorted(of_tile, np.arange(len(loads) + 1))
    ranges = [-(-load // block_n) for load in loads]
    first_range = np.concatenate(([0], np.cumsum(ranges)))
    own = [
        raster(int(first_tile[e + 1] - first_tile[e]), count, RANGES_TOGETHER)
        for e, count in enumerate(ranges)
    ]
    order = Raster(
        np.concatenate([one.tile + first_tile[e] for e, one in enumerate(own)]).astype(np.int32),
        np.concatenate([one.token_range + first_range[e] for e, one in enumerate(own)]).astype(np.int32),
    )
    n = int(first_range[-1]) * block_n
    return ExpertItems(whole_items(tiles.kept_per_tile, order, n=n, block_n=block_n), n)


def most_ranges(places: int, experts: int, block_n: int) -> int:
    """Return the maximum number of token ranges over all distributions of the tokens to experts.

    Parameters
    ----------
    places : number of (token, expert) pairs
    experts : number of experts
    block_n : tokens of a block, the length of a token range
    """
    return (places + min(experts, places) * (block_n - 1)) // block_n


def one_item_per_tile(plan: KernelPlan) -> KernelPlan:
    """Return a plan of the same kernel in which every tile, in order, multiplies one token range."""
    block_n = plan.shape.block_n
    items = raster_items(plan.tiles.kept_per_tile, n=block_n, block_n=block_n)
    return dataclasses.replace(plan, n=block_n, experts=1, **assign_hardware(items)._asdict())
