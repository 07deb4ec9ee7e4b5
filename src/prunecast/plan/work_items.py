"""Create work items, and choose the order of tiles and token ranges (rasterization)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import WorkList

Sizes = npt.NDArray[np.integer]
"""Counts or costs, one per item."""


class Raster(NamedTuple):
    """Tile and token range of each work item, in the order in which thread blocks process the items."""

    tile: IntArray
    token_range: IntArray


def raster(tile_count: int, range_count: int, together: int) -> Raster:
    """Return the order: all tiles of the first `together` token ranges, then all tiles of the next `together`
    token ranges, and so on.

    Inside such a group, the ranges of a tile are consecutive. If `together` is 1, the tiles of a token range
    run concurrently and share its rows of B in L2. If it is larger, a tile's weights are read less often.

    Raises BadInput for negative counts, or if `together` is below 1.
    """
    if tile_count < 0 or range_count < 0 or together < 1:
        raise BadInput(f"raster of {tile_count} tiles x {range_count} ranges in groups of {together}")
    index = np.arange(tile_count * range_count, dtype=np.int64)
    group, inside = np.divmod(index, max(tile_count * together, 1))
    width = np.minimum(together, range_count - group * together)
    return Raster(
        tile=(inside // np.maximum(width, 1)).astype(np.int32),
        token_range=(group * together + inside % np.maximum(width, 1)).astype(np.int32),
    )


def ranges_together(packed_bytes: int, round_bytes: float, block_m: int, ranges: int, gpu: GpuSpec) -> int:
    """Return the number of token ranges that all tiles process before the next ranges (a group): 4 if L2
    evicts weights before their reuse, else 1.

    Parameters
    ----------
    packed_bytes : bytes of the packed weights of all tiles
    round_bytes : bytes of B and C that pass through L2 between two uses of a tile's weights if ranges are
        processed one by one
    block_m : rows of a block
    ranges : number of token ranges

    Groups are faster if the weights need more than half of L2; otherwise they lose more reuse of B at their
    edges than they save. Measured on an H200, 18 products
    (`benchmarks/measured/h200-sxm-walks-2026-11-21.json`): 0.6 to 5.9 % faster than 1 from 22 MB of weights
    on, up to 3 % slower with 17 MB or less. Groups of 8 gain no more. Blocks of 64 rows depend more on the
    reuse of B: 11008 x 4096 was 3 to 7 % faster with only two ranges (four products), and 14 % slower in
    groups of four of 16 ranges (suite, 2026-11-22).
    """
    lost = round_bytes > gpu.l2_usable_bytes and 2 * packed_bytes > gpu.l2_usable_bytes
    return 4 if lost and (block_m >= 128 or ranges <= 2) else 1


def raster_items(
    kept: IntArray, *, n: int, block_n: int, together: int = 1, tiles: IntArray | None = None
) -> WorkList:
    """Return one unsplit item per tile and token range, in the order of `raster`.

    Parameters
    ----------
    kept : (tiles,) number of kept columns of each tile
    n, block_n : number of tokens, and tokens of a block
    together : as in `raster`
    tiles : (tiles,) order of the tiles in a group of token ranges; None for the order of `kept`
    """
    order = raster(kept.size, -(-n // block_n), together)
    if tiles is not None:
        order = order._replace(tile=tiles[order.tile])
    return whole_items(kept, order, n=n, block_n=block_n)


def whole_items(kept: IntArray, order: Raster, *, n: int, block_n: int) -> WorkList:
    """Return one unsplit item per entry of `order`; `kept` is the number of kept columns of each tile."""
    items = order.tile.size
    zeros, ones = np.zeros(items, np.int32), np.ones(items, np.int32)
    start = order.token_range * np.int32(block_n)
    return WorkList(
        block_start=np.array([0, items], np.int32),
        tile=order.tile,
        token_start=start,
        token_stop=np.minimum(start + np.int32(block_n), np.int32(n)),
        k_start=zeros,
        k_stop=kept[order.tile],
        group=zeros - 1,
        part=zeros,
        parts=ones,
        owner=ones,
    )
