"""2:4 weights of a tile map as the sparse kernel reads them: stages that one bulk copy brings whole.

Where wgmma.mma_async.sp.m64n*k32 looks for the places of kept values was measured on an H200 (2026-11-20):
every thread's word and both selectors were probed with a product that shows the weights as the hardware
decompresses them. It is as the PTX ISA draws it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.sparse_metadata import Bits, squeeze
from prunecast.kernels.tile.cuda.pack import CHUNK, GATHER_ROWS, STAGE_COLUMNS, stage_starts
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import IntArray, MaskArray, TileMap

__all__ = ["GROUP_ROWS", "PackedSparse", "pack_sparse", "stage_bytes"]

GROUP_ROWS = 64
"""Rows of one instruction. Kind: CUDA source, `sparse_shape.cuh`."""
CONSUMERS = 2
"""Warpgroups that multiply. Kind: CUDA source, `sparse_shape.cuh`."""

Bytes = npt.NDArray[np.uint8]


class PackedSparse(NamedTuple):
    """The images of one layer; one null stage of zeros follows the stages of all tiles.

    Tile t has stages stage_start[t] to stage_start[t + 1], each of 64 of its kept columns, in order.
    """

    stages: Bytes
    """(stages + 1, stage_bytes(block_m)): 32 kept values of every row, then their places."""
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


def stage_bytes(block_m: int) -> int:
    """Bytes of a stage: 32 values of two bytes a row, and 32 places of two bits."""
    return block_m * (STAGE_COLUMNS + STAGE_COLUMNS // 8)


def pack_sparse(tiles: TileMap, inner: ElementMap, bits: Bits, block_m: int) -> PackedSparse:
    """Cut the kept columns of every tile into stages and squeeze its rows.

    Parameters
    ----------
    tiles : no tile taller than `block_m`
    inner : the elements kept, of every four neighbours in a tile's list two at most
    bits : (M, K) uint16, the weights; what is not kept is not read
    block_m : rows of a stage, a multiple of 128

    Raises
    ------
    BadInput : the shape differs from the map's, a tile is too tall, or the elements are not 2:4 in the tiles
    """
    if bits.shape != (tiles.m, tiles.k):
        raise BadInput(f"weights must have the map's shape {(tiles.m, tiles.k)}, got {bits.shape}")
    tallest = int(tiles.rows_per_tile.max(initial=0))
    if tallest > block_m:
        raise BadInput(f"a tile of {tallest} rows does not fit into a block of {block_m}")
    start, mask = stage_starts(tiles), inner.mask()
    stages = np.empty((start[-1] + 1, stage_bytes(block_m)), np.uint8)
    columns = np.full((start[-1] + 1, STAGE_COLUMNS), -1, np.int32)
    rows = np.full((tiles.tile_count, block_m), -1, np.int32)
    for t in range(tiles.tile_count):
        kept = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        own = tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]
        rows[t, : own.size] = own
        part = slice(start[t], start[t + 1])
        columns[part].reshape(-1)[: kept.size] = kept
        stages[part] = _tile(bits[own][:, kept], mask[own][:, kept], block_m)
    stages[start[-1]] = _tile(np.zeros((1, 1), np.uint16), np.zeros((1, 1), np.bool_), block_m)
    by_thread = columns.reshape(-1, STAGE_COLUMNS // GATHER_ROWS, GATHER_ROWS).transpose(0, 2, 1)
    return PackedSparse(stages, np.ascontiguousarray(by_thread), rows, start)


def _tile(bits: Bits, kept: MaskArray, block_m: int) -> Bytes:
    """(stages, bytes) of one tile; rows and columns that it lacks are zero."""
    count = -(-kept.shape[1] // STAGE_COLUMNS)
    size = (slice(kept.shape[0]), slice(kept.shape[1]))
    values = np.zeros((block_m, count * STAGE_COLUMNS), np.uint16)
    mask = np.zeros(values.shape, np.bool_)
    values[size], mask[size] = bits, kept
    squeezed = squeeze(values, mask)
    rows = _swizzled(squeezed.values.reshape(block_m, count, STAGE_COLUMNS // 2).swapaxes(0, 1))
    words = _words(squeezed.places.reshape(block_m, count, STAGE_COLUMNS // 4).swapaxes(0, 1))
    stages = np.empty((count, stage_bytes(block_m)), np.uint8)
    stages[:, : block_m * STAGE_COLUMNS] = rows.reshape(count, block_m * STAGE_COLUMNS // 2).view(np.uint8)
    stages[:, block_m * STAGE_COLUMNS :] = words.reshape(count, block_m * 2).view(np.uint8)
    return stages


def _swizzled(values: Bits) -> Bits:
    """(stages, block_m, 32): chunk c of 8 values in row r at chunk c xor (r / 2 mod 4)."""
    chunks = values.reshape(values.shape[0], values.shape[1], STAGE_COLUMNS // 2 // CHUNK, CHUNK)
    row, chunk = np.ogrid[: values.shape[1], : chunks.shape[2]]
    return np.ascontiguousarray(chunks[:, row, chunk ^ (row // 2 % 4)])


def _words(places: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """(stages, block_m, 16) in the order [consumer][thread][group of rows], one word each.

    Thread w, q, j (warp, row, place in its quad) holds the places of columns 16 j to 16 j + 15: row 16 w + q
    in the lower half of the word, row 8 more in the upper. An instruction takes its 32 columns from threads
    of j 0 and 1 (selector 0) or 2 and 3 (selector 1).
    """
    groups = places.shape[1] // (CONSUMERS * GROUP_ROWS)
    #   stage 0, consumer 1, group 2, warp 3, row + 8 4, q 5, j 6, four of the thread's columns 7
    names = places.reshape(places.shape[0], CONSUMERS, groups, 4, 2, 8, 4, 4).astype(np.uint32)
    shifts = (16 * np.arange(2, dtype=np.uint32))[:, None, None, None] + 4 * np.arange(4, dtype=np.uint32)
    words = (names << shifts).sum(axis=(4, 7), dtype=np.uint32)
    return np.ascontiguousarray(words.transpose(0, 1, 3, 4, 5, 2))
