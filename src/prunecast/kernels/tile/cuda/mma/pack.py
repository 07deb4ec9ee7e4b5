"""Weights of a tile map as the mma tile kernel reads them: k-steps of fragments, and the columns of each."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.weights import Bits
from prunecast.patterns.tile_map import IntArray, TileMap
from prunecast.plan.kernel_plan import BlockShape

__all__ = ["PackedMma", "fragments", "pack_mma", "pack_stages", "rows_at_once"]

_DEPTH = 16
"""Weights of a row in one instruction."""
_THREADS = 256
_LANE_TOKENS = 8


class PackedMma(NamedTuple):
    """The images of one layer; one null stage of zeros follows the stages of all tiles.

    Tile t has stages stage_start[t] to stage_start[t + 1], each of `block_k` of its kept columns, in order.
    """

    weights: Bits
    """(stages + 1, elements): `fragments` of the weights; those of 2:4 weights, then their places
    (`sparse_pack`)."""
    columns: IntArray
    """(stages + 1, r, block_k / r) with r = `rows_at_once`: [s, i, q] is the column of A at place i + r q of
    stage s; -1 for none."""
    rows: IntArray
    """(tiles, block_m): row of C; -1 for none."""
    stage_start: IntArray
    """(tiles + 1,)."""

    @property
    def null_stage(self) -> int:
        """Number of the stage of zeros."""
        return int(self.stage_start[-1])


def rows_at_once(block_n: int) -> int:
    """Rows of B that the threads of a block fetch at once."""
    return _THREADS * _LANE_TOKENS // block_n


def pack_mma(tiles: TileMap, bits: Bits, shape: BlockShape) -> PackedMma:
    """Cut the kept columns of every tile into k-steps.

    Parameters
    ----------
    tiles : no tile taller than the block
    bits : (M, K) uint16, the weights; what the map does not keep is not read
    shape : of a block

    Raises
    ------
    BadInput : the shape differs from the map's, or a tile is too tall
    """
    null = fragments(np.zeros((shape.block_m, shape.block_k), np.uint16), shape.block_k)

    def stages_of(own: IntArray, kept: IntArray, count: int) -> Bits:
        padded = np.zeros((shape.block_m, count * shape.block_k), np.uint16)
        padded[: own.size, : kept.size] = bits[np.ix_(own, kept)]
        return fragments(padded, shape.block_k)

    return pack_stages(tiles, bits, shape, null[0], stages_of)


def pack_stages(
    tiles: TileMap,
    bits: Bits,
    shape: BlockShape,
    null: Bits,
    stages_of: Callable[[IntArray, IntArray, int], Bits],
) -> PackedMma:
    """The images, with weights laid out by `stages_of`.

    Parameters
    ----------
    tiles, bits, shape : as `pack_mma`, with its errors
    null : (elements,), the weights of the null stage
    stages_of : rows and columns of a tile, number of its stages -> (stages, elements)
    """
    _check(tiles, bits, shape.block_m)
    step = shape.block_k
    stages = -(-tiles.kept_per_tile.astype(np.int64) // step)
    start = np.concatenate(([0], np.cumsum(stages))).astype(np.int32)
    weights = np.empty((start[-1] + 1, null.size), np.uint16)
    weights[-1] = null
    columns = np.full((start[-1] + 1, step), -1, np.int32)
    rows = np.full((tiles.tile_count, shape.block_m), -1, np.int32)
    for t in range(tiles.tile_count):
        kept = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        own = tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]
        rows[t, : own.size] = own
        part = slice(start[t], start[t + 1])
        columns[part].reshape(-1)[: kept.size] = kept
        weights[part] = stages_of(own, kept, int(stages[t]))
    at_once = rows_at_once(shape.block_n)
    by_thread = columns.reshape(-1, step // at_once, at_once).transpose(0, 2, 1)
    return PackedMma(weights, np.ascontiguousarray(by_thread), rows, start)


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


def _check(tiles: TileMap, bits: Bits, block_m: int) -> None:
    if bits.shape != (tiles.m, tiles.k):
        raise BadInput(f"weights must have the map's shape {(tiles.m, tiles.k)}, got {bits.shape}")
    tallest = int(tiles.rows_per_tile.max(initial=0))
    if tallest > block_m:
        raise BadInput(f"a tile of {tallest} rows does not fit into a block of {block_m}")
