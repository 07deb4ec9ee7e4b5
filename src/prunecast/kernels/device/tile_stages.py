"""The tiles of a map cut into stages of equally many kept columns, which every packing of tiles fills."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray, TileMap


class PackedStages(NamedTuple):
    """The images of one layer; one null stage, without columns, follows the stages of all tiles.

    Tile t has stages stage_start[t] to stage_start[t + 1], each of as many of its kept columns, in order.
    """

    weights: npt.NDArray[Any]
    """(stages + 1, ...): one stage behind the other, each as the kernel reads it."""
    columns: IntArray
    """(stages + 1, r, step / r): [s, t, q] is the column of A at place t + r q of stage s, -1 for none; r is
    how many rows of B are fetched at once."""
    rows: IntArray
    """(tiles, block_m): row of C; -1 for none."""
    stage_start: IntArray
    """(tiles + 1,)."""

    @property
    def null_stage(self) -> int:
        """Number of the null stage."""
        return int(self.stage_start[-1])


class _TileStages(NamedTuple):
    """Stages of all tiles without weights: columns in order, rows of C, first stage of each tile."""

    columns: IntArray
    """(stages + 1, step)."""
    rows: IntArray
    stage_start: IntArray

    def packed(self, weights: npt.NDArray[Any], rows_at_once: int) -> PackedStages:
        """With weights, and columns in the order in which threads fetch rows of B, so many at once."""
        by_turn = self.columns.reshape(self.columns.shape[0], -1, rows_at_once)
        by_thread = np.ascontiguousarray(by_turn.transpose(0, 2, 1))
        return PackedStages(weights, by_thread, self.rows, self.stage_start)


def stage_starts(tiles: TileMap, step: int) -> IntArray:
    """(tiles + 1,) int32: first stage of every tile, and their number."""
    stages = -(-tiles.kept_per_tile.astype(np.int64) // step)
    return np.concatenate(([0], np.cumsum(stages))).astype(np.int32)


def tile_stages(tiles: TileMap, block_m: int, step: int) -> _TileStages:
    """Rows and columns of the stages.

    Raises
    ------
    BadInput : a tile is taller than `block_m`
    """
    tallest = int(tiles.rows_per_tile.max(initial=0))
    if tallest > block_m:
        raise BadInput(f"a tile of {tallest} rows does not fit into a block of {block_m}")
    start = stage_starts(tiles, step)
    columns = np.full((start[-1] + 1, step), -1, np.int32)
    rows = np.full((tiles.tile_count, block_m), -1, np.int32)
    _fill(columns, start[:-1].astype(np.int64) * step, tiles.kept_per_tile, tiles.column_index)
    _fill(rows, np.arange(tiles.tile_count) * block_m, tiles.rows_per_tile, tiles.row_index)
    return _TileStages(columns, rows, start)


def of_tiles(
    matrix: npt.NDArray[Any], tiles: TileMap, stages: _TileStages
) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    """Stages of every tile, with its rows and kept columns of `matrix` (M, K).

    Raises
    ------
    BadInput : the shape differs from the map's
    """
    if matrix.shape != (tiles.m, tiles.k):
        raise BadInput(f"weights must have the map's shape {(tiles.m, tiles.k)}, got {matrix.shape}")
    start = stages.stage_start
    for t in range(tiles.tile_count):
        kept = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        own = tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]
        yield slice(int(start[t]), int(start[t + 1])), matrix[np.ix_(own, kept)]


def padded(values: npt.NDArray[Any], block_m: int, step: int) -> npt.NDArray[Any]:
    """(block_m, whole stages of `step` columns): zeros behind the rows and columns of a tile."""
    width = -(-values.shape[1] // step) * step
    found = np.zeros((block_m, width), values.dtype)
    found[: values.shape[0], : values.shape[1]] = values
    return found


def row_lists(rows: IntArray, block_m: int) -> IntArray:
    """(lists, block_m): rows of C in lists as long as those of tiles, -1 for none."""
    lists = np.full((-(-rows.size // block_m), block_m), -1, np.int32)
    lists.reshape(-1)[: rows.size] = rows
    return lists


def _fill(room: IntArray, first: npt.NDArray[np.int64], counts: npt.NDArray[Any], values: IntArray) -> None:
    """Run i of `values`, of counts[i], to the places of `room` from first[i] on."""
    before = np.cumsum(counts) - counts
    room.reshape(-1)[np.arange(values.size) + np.repeat(first - before, counts)] = values
