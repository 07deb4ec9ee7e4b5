"""The tiles of a map cut into stages of equally many kept columns, which every packing of tiles fills.

`item_columns` has a plan's work items as kernels count them: in stages, with workspace slots for tiles split
along K.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray, TileMap
from prunecast.plan.kernel_plan import KernelPlan


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


def _stage_starts(tiles: TileMap, step: int) -> IntArray:
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
    start = _stage_starts(tiles, step)
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


Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class ItemColumns(NamedTuple):
    """One entry per item, in the order of the plan; the records of all kernels of tiles are made of these."""

    first: Longs
    """Stage that it begins with."""
    columns: Longs
    """Kept columns."""
    steps: Longs
    """Stages that these lie in."""
    tile: Longs
    token: Longs
    """First token."""
    is_part: Flags
    """Whether it is one of several parts of a tile that is split along K."""
    is_owner: Flags
    """Whether it is the part that adds the others up."""
    slot: Longs
    """Workspace slot of its partial sums; the owner knows the first of the others'. 0 for whole items."""
    waits: Longs
    """Parts that the owner waits for."""
    group: Longs
    """Number of the split tile; 0 for whole items."""
    slots: int
    """Partial tiles of C in the workspace."""
    groups: int
    """Split tiles of C."""


def item_columns(plan: KernelPlan, step: int, kernel: str) -> ItemColumns:
    """The items of `plan`, in stages of `step` columns.

    Parameters
    ----------
    kernel : in refusals

    Raises
    ------
    BadInput : the plan splits inside a stage, leaves tokens of a block out,
        or lets a part other than the first own a split tile
    """
    _check(plan, step, kernel)
    work = plan.work
    columns = work.k_stop.astype(np.int64) - work.k_start
    is_part, is_owner = work.parts > 1, work.owner == 1
    group = np.where(is_part, work.group, 0).astype(np.int64)
    others = np.bincount(group, weights=is_part & ~is_owner).astype(np.int64)
    first_slot = np.cumsum(others) - others
    slot = first_slot[group] + np.where(is_owner, 0, work.part - 1)
    return ItemColumns(
        first=_stage_starts(plan.tiles, step)[work.tile].astype(np.int64) + work.k_start // step,
        columns=columns,
        steps=-(-columns // step),
        tile=work.tile.astype(np.int64),
        token=work.token_start.astype(np.int64),
        is_part=is_part,
        is_owner=is_part & is_owner,
        slot=np.where(is_part, slot, 0),
        waits=np.where(is_part, work.parts - 1, 0),
        group=group,
        slots=int(np.count_nonzero(work.owner == 0)),
        groups=int(work.group.max(initial=-1)) + 1,
    )


def _check(plan: KernelPlan, step: int, kernel: str) -> None:
    work = plan.work
    whole_end = work.k_stop == plan.tiles.kept_per_tile[work.tile]
    if np.any(work.k_start % step) or np.any((work.k_stop % step != 0) & ~whole_end):
        raise BadInput(f"{plan.kernel}: parts of a split tile must begin at multiples of {step} columns")
    if np.any(work.token_stop != np.minimum(work.token_start + plan.shape.block_n, plan.n)):
        raise BadInput(f"{plan.kernel}: items must take {plan.shape.block_n} tokens, or all that are left")
    if np.any((work.owner == 1) & (work.part != 0)):
        raise BadInput(f"{plan.kernel}: part 0 of a split tile must own it")
