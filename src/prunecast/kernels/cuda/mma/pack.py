"""Weights of a tile map as the mma tile kernel reads them: k-steps of fragments, and the columns of each."""

from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.cuda.pack import Bits
from prunecast.kernels.plan import BlockShape
from prunecast.patterns.tile_map import IntArray, TileMap

__all__ = ["STEP_COLUMNS", "PackedMma", "pack_mma", "rows_at_once"]

STEP_COLUMNS = 32
"""Kept columns of a k-step."""
_THREADS = 256
_LANE_TOKENS = 8


class PackedMma(NamedTuple):
    """The images of one layer; one null stage of zeros follows the stages of all tiles.

    Tile t has stages stage_start[t] to stage_start[t + 1], each of 32 of its kept columns, in order.
    """

    weights: Bits
    """(stages + 1, 2, block_m / 16, 32, 8): what lane 4 g + q holds of a k16 of 16 rows. Columns 2 q and
    2 q + 1 of row g, of row g + 8, then columns 2 q + 8 and 2 q + 9 of both."""
    columns: IntArray
    """(stages + 1, r, 32 / r) with r = `rows_at_once`: [s, i, q] is the column of A at place i + r q of stage
    s; -1 for none."""
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
    return min(_THREADS * _LANE_TOKENS // block_n, STEP_COLUMNS)


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
    _check(tiles, bits, shape.block_m)
    stages = -(-tiles.kept_per_tile.astype(np.int64) // STEP_COLUMNS)
    start = np.concatenate(([0], np.cumsum(stages))).astype(np.int32)
    weights = np.zeros((start[-1] + 1, 2, shape.block_m // 16, 32, 8), np.uint16)
    columns = np.full((start[-1] + 1, STEP_COLUMNS), -1, np.int32)
    rows = np.full((tiles.tile_count, shape.block_m), -1, np.int32)
    for t in range(tiles.tile_count):
        kept = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        own = tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]
        rows[t, : own.size] = own
        part = slice(start[t], start[t + 1])
        columns[part].reshape(-1)[: kept.size] = kept
        padded = np.zeros((shape.block_m, stages[t] * STEP_COLUMNS), np.uint16)
        padded[: own.size, : kept.size] = bits[np.ix_(own, kept)]
        weights[part] = _by_lane(padded)
    at_once = rows_at_once(shape.block_n)
    by_thread = columns.reshape(-1, STEP_COLUMNS // at_once, at_once).transpose(0, 2, 1)
    return PackedMma(weights, np.ascontiguousarray(by_thread), rows, start)


def _by_lane(padded: Bits) -> Bits:
    """(block_m, 32 stages) -> (stages, 2, fragments, 32, 8)."""
    block_m, width = padded.shape
    # fragment, half h of its rows, row g, stage, k16, half p of its columns, quarter q, column of the pair
    split = padded.reshape(block_m // 16, 2, 8, width // STEP_COLUMNS, 2, 2, 4, 2)
    ordered = split.transpose(3, 4, 0, 2, 6, 5, 1, 7)
    return ordered.reshape(width // STEP_COLUMNS, 2, block_m // 16, 32, 8)


def _check(tiles: TileMap, bits: Bits, block_m: int) -> None:
    if bits.shape != (tiles.m, tiles.k):
        raise BadInput(f"weights must have the map's shape {(tiles.m, tiles.k)}, got {bits.shape}")
    tallest = int(tiles.rows_per_tile.max(initial=0))
    if tallest > block_m:
        raise BadInput(f"a tile of {tallest} rows does not fit into a block of {block_m}")
