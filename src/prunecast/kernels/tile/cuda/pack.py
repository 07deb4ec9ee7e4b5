"""Weights of a tile map as the tile kernel reads them: stages that one bulk copy brings to shared memory."""

from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.weights import Bits
from prunecast.patterns.tile_map import IntArray, TileMap

__all__ = ["PackedWeights", "pack_weights", "stage_starts"]

STAGE_COLUMNS = 64
CHUNK = 8
"""Elements of 16 bytes, the unit of the swizzle."""
GATHER_ROWS = 16
"""Rows of B that the producer's threads fetch at once; a stage takes 4 such rounds."""


class PackedWeights(NamedTuple):
    """The images of one layer; one null stage of zeros follows the stages of all tiles.

    Tile t has stages stage_start[t] to stage_start[t + 1], each of 64 of its kept columns, in order.
    """

    weights: Bits
    """(stages + 1, block_m, 64): bits; chunk c of 8 elements in row r lies at chunk c xor (r mod 8)."""
    columns: IntArray
    """(stages + 1, 16, 4): [s, t, q] is the column of A at place t + 16 q of stage s; -1 for none."""
    rows: IntArray
    """(tiles, block_m): row of C; -1 for none."""
    stage_start: IntArray
    """(tiles + 1,)."""

    @property
    def null_stage(self) -> int:
        """Number of the stage of zeros."""
        return int(self.stage_start[-1])


def pack_weights(tiles: TileMap, bits: Bits, block_m: int) -> PackedWeights:
    """Cut the kept columns of every tile into stages.

    Parameters
    ----------
    tiles : no tile taller than `block_m`
    bits : (M, K) uint16, the weights; what the map does not keep is not read
    block_m : rows of a stage

    Raises
    ------
    BadInput : the shape differs from the map's, or a tile is too tall
    """
    if bits.shape != (tiles.m, tiles.k):
        raise BadInput(f"weights must have the map's shape {(tiles.m, tiles.k)}, got {bits.shape}")
    tallest = int(tiles.rows_per_tile.max(initial=0))
    if tallest > block_m:
        raise BadInput(f"a tile of {tallest} rows does not fit into a block of {block_m}")
    start = stage_starts(tiles)
    weights = np.zeros((start[-1] + 1, block_m, STAGE_COLUMNS), np.uint16)
    columns = np.full((start[-1] + 1, STAGE_COLUMNS), -1, np.int32)
    rows = np.full((tiles.tile_count, block_m), -1, np.int32)
    for t in range(tiles.tile_count):
        kept = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        own = tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]
        rows[t, : own.size] = own
        stages = slice(start[t], start[t + 1])
        columns[stages].reshape(-1)[: kept.size] = kept
        _pack_tile(weights[stages], bits, own, kept)
    by_thread = columns.reshape(-1, STAGE_COLUMNS // GATHER_ROWS, GATHER_ROWS).transpose(0, 2, 1)
    return PackedWeights(weights, np.ascontiguousarray(by_thread), rows, start)


def stage_starts(tiles: TileMap) -> IntArray:
    """(tiles + 1,) int32: first stage of every tile, and their number."""
    stages = -(-tiles.kept_per_tile.astype(np.int64) // STAGE_COLUMNS)
    return np.concatenate(([0], np.cumsum(stages))).astype(np.int32)


def _pack_tile(stages: Bits, bits: Bits, rows: IntArray, kept: IntArray) -> None:
    """Fill the stages of one tile, (stages, block_m, 64)."""
    padded = np.zeros((stages.shape[1], stages.shape[0] * STAGE_COLUMNS), np.uint16)
    padded[: rows.size, : kept.size] = bits[rows][:, kept]
    chunk_count = STAGE_COLUMNS // CHUNK
    chunks = padded.reshape(stages.shape[1], stages.shape[0], chunk_count, CHUNK).transpose(1, 0, 2, 3)
    row, chunk = np.ogrid[: stages.shape[1], :chunk_count]
    stages[...] = chunks[:, row, chunk ^ (row % 8)].reshape(stages.shape)
