"""Weights of a tile map as the mma tile kernel reads them: k-steps of fragments, and the columns of each."""

import numpy as np

from prunecast.kernels.device.packed import Bits
from prunecast.kernels.device.tile_stages import PackedStages, of_tiles, padded, tile_stages
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import BlockShape

_DEPTH = 16
"""Weights of a row in one instruction. Kind: definition, PTX ISA, mma m16n8k16."""
_THREADS = 256
"""Threads of a block. Kind: CUDA source, `mma_shape.cuh`."""
_LANE_TOKENS = 8
"""Tokens of a copy of one lane. Kind: CUDA source, `mma_shape.cuh`."""


def rows_at_once(block_n: int) -> int:
    """Rows of B that the threads of a block fetch at once."""
    return _THREADS * _LANE_TOKENS // block_n


def pack_mma(tiles: TileMap, bits: Bits, shape: BlockShape) -> PackedStages:
    """Cut the kept columns of every tile into k-steps.

    Parameters
    ----------
    tiles : no tile taller than the block
    bits : (M, K) uint16, the weights; what the map does not keep is not read
    shape : of a block

    Returns
    -------
    with weights (stages + 1, elements): `fragments` of the weights; `pack_sparse_mma` adds their places

    Raises
    ------
    BadInput : the shape differs from the map's, or a tile is too tall
    """
    stages = tile_stages(tiles, shape.block_m, shape.block_k)
    weights = np.zeros((stages.columns.shape[0], shape.block_m * shape.block_k), np.uint16)
    for part, own in of_tiles(bits, tiles, stages):
        weights[part] = fragments(padded(own, shape.block_m, shape.block_k), shape.block_k)
    return stages.packed(weights, rows_at_once(shape.block_n))


def fragments(values: Bits, per_stage: int) -> Bits:
    """Weights in the order of the instruction's registers.

    Parameters
    ----------
    values : (block_m, per_stage * stages) uint16, all that a row has, in order
    per_stage : of a row, a multiple of 16

    Returns
    -------
    (stages, block_m * per_stage), in the order of (per_stage / 16, block_m / 16, 32, 8): what lane 4 g + q
    holds of 16 values of 16 rows. Values 2 q and 2 q + 1 of row g, of row g + 8, then values 2 q + 8 and
    2 q + 9 of both.
    """
    block_m, stages = values.shape[0], values.shape[1] // per_stage
    # fragment, half h of its rows, row g, stage, 16 values, half p of them, quarter q, value of the pair
    split = values.reshape(block_m // 16, 2, 8, stages, per_stage // _DEPTH, 2, 4, 2)
    return split.transpose(3, 4, 0, 2, 6, 5, 1, 7).reshape(stages, block_m * per_stage)
