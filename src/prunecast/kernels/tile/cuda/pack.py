"""Weights of a tile map as the tile kernel reads them: stages that one bulk copy brings to shared memory."""

import numpy as np

from prunecast.kernels.device.packed import Bits
from prunecast.kernels.device.tile_stages import PackedStages, of_tiles, padded, tile_stages
from prunecast.patterns.tile_map import TileMap

STAGE_COLUMNS = 64
"""Columns of a stage. Kind: CUDA source, `tile_shape.cuh`."""
CHUNK = 8
"""Elements of 16 bytes, the unit of the swizzle. Kind: definition, PTX ISA, 128-byte swizzle."""
GATHER_ROWS = 16
"""Rows of B that the producer's threads fetch at once; a stage takes four such rounds. Kind: CUDA source,
`tile_gather.cuh`."""


def pack_weights(tiles: TileMap, bits: Bits, block_m: int) -> PackedStages:
    """Cut the kept columns of every tile into stages of 64.

    Parameters
    ----------
    tiles : no tile taller than `block_m`
    bits : (M, K) uint16, the weights; what the map does not keep is not read
    block_m : rows of a stage

    Returns
    -------
    with weights (stages + 1, block_m, 64): bits; chunk c of 8 elements in row r lies at chunk c xor (r mod 8)

    Raises
    ------
    BadInput : the shape differs from the map's, or a tile is too tall
    """
    stages = tile_stages(tiles, block_m, STAGE_COLUMNS)
    weights = np.zeros((stages.columns.shape[0], block_m, STAGE_COLUMNS), np.uint16)
    for part, own in of_tiles(bits, tiles, stages):
        weights[part] = _swizzled(padded(own, block_m, STAGE_COLUMNS))
    return stages.packed(weights, GATHER_ROWS)


def _swizzled(values: Bits) -> Bits:
    """(block_m, 64 stages) -> (stages, block_m, 64)."""
    block_m, chunk_count = values.shape[0], STAGE_COLUMNS // CHUNK
    chunks = values.reshape(block_m, -1, chunk_count, CHUNK).transpose(1, 0, 2, 3)
    row, chunk = np.ogrid[:block_m, :chunk_count]
    swizzled: Bits = chunks[:, row, chunk ^ (row % 8)].reshape(-1, block_m, STAGE_COLUMNS)
    return swizzled
