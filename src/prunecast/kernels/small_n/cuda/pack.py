"""Weights of a tile map as the small-n kernel reads them: in the order of its fragments."""

from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.tile_stages import of_tiles, padded, tile_stages
from prunecast.kernels.device.weights import Bits
from prunecast.patterns.tile_map import IntArray, TileMap

GROUP = 16
"""Kept columns of a tensor instruction, a k16. Kind: definition, PTX ISA, mma m16n8k16."""
NO_COLUMN = 0xFFFF
"""Number of a column that is not there. Kind: CUDA source, `small_ring.cuh`."""


class PackedSmall(NamedTuple):
    """The images of one layer. Tile t has k16s group_start[t] to group_start[t + 1], in order."""

    weights: Bits
    """(k16s, block_m / 16, 32, 8): what lane 4 g + q holds of 16 rows. Columns 4 q, 4 q + 1 of row g,
    of row g + 8, then 4 q + 2, 4 q + 3 of both; columns are places in the k16."""
    columns: Bits
    """(k16s, 16): columns of A, `NO_COLUMN` for none."""
    rows: IntArray
    """(tiles, block_m): row of C; -1 for none."""
    group_start: IntArray
    """(tiles + 1,)."""


def pack_small(tiles: TileMap, bits: Bits, block_m: int) -> PackedSmall:
    """Cut the kept columns of every tile into k16s.

    Parameters
    ----------
    tiles : no tile taller than `block_m`
    bits : (M, K) uint16, the weights; what the map does not keep is not read
    block_m : rows of a block

    Raises
    ------
    BadInput : the shape differs from the map's, a tile is too tall, or there are more than 65,535 columns
    """
    if tiles.k > NO_COLUMN:
        raise BadInput(f"the small-n kernel numbers columns in 16 bits: at most {NO_COLUMN}, got {tiles.k}")
    groups = tile_stages(tiles, block_m, GROUP)
    weights = np.zeros((groups.stage_start[-1], block_m // 16, 32, 8), np.uint16)
    for part, own in of_tiles(bits, tiles, groups):
        weights[part] = _by_lane(padded(own, block_m, GROUP))
    columns = groups.columns[:-1].astype(np.uint16)  # -1 becomes NO_COLUMN
    return PackedSmall(weights, columns, groups.rows, groups.stage_start)


def _by_lane(padded: Bits) -> Bits:
    """(block_m, 16 k16s) -> (k16s, fragments, 32, 8)."""
    block_m, width = padded.shape
    # fragment, half h of its rows, row g, k16, quarter q, pair of columns p, column of the pair
    split = padded.reshape(block_m // 16, 2, 8, width // GROUP, 4, 2, 2)
    ordered = split.transpose(3, 0, 2, 4, 5, 1, 6)
    return ordered.reshape(width // GROUP, block_m // 16, 32, 8)
