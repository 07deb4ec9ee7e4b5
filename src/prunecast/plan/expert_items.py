"""Work items of a grouped launch: the tiles of all experts of a layer, each with the tokens of its expert.

A of a grouped launch has the matrices of all experts below each other. The columns of B are tokens sorted by
expert, and the tokens of an expert are padded to whole blocks, so that a block has tokens of one expert.
Several experts write the same rows of C, in different columns.
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
from prunecast.plan.work_items import Raster, raster, whole_items

RANGES_TOGETHER = 8
"""Token ranges of an expert that its tiles have in common before the next ones begin: weights are read once
for all of them, and their rows of B (16 MB for 4096 features and 256 tokens) stay in L2. Kind: choice."""


class ExpertItems(NamedTuple):
    """Items of a grouped launch, one per tile and token range of its expert."""

    items: WorkList
    n: int
    """Columns of B: tokens of all experts, each padded to whole blocks."""


def stacked_experts(maps: Sequence[TileMap]) -> TileMap:
    """Return the map of matrices of one shape below each other.

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
    """Return whole items in the order in which a grouped kernel finds them: expert after expert.

    Within an expert, all tiles process the first `RANGES_TOGETHER` token ranges, then the next ones; the
    ranges of a tile are consecutive.

    Parameters
    ----------
    tiles : of matrices below each other, one for each load, no taller than a block
    loads : tokens of each expert; tiles of experts without tokens have no items

    Raises
    ------
    BadInput : no expert has a token, or rows that the experts do not divide
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
    """Return the most token ranges that `places` may have, however they are divided among experts."""
    return (places + min(experts, places) * (block_n - 1)) // block_n


def one_item_per_tile(plan: KernelPlan) -> KernelPlan:
    """Return a plan of the same kernel that multiplies every tile with one token range, in their order."""
    order, block_n = raster(plan.tiles.tile_count, 1, 1), plan.shape.block_n
    items = whole_items(plan.tiles.kept_per_tile, order, n=block_n, block_n=block_n)
    return dataclasses.replace(plan, n=block_n, experts=1, **assign_hardware(items)._asdict())
