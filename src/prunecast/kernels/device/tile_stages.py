"""Divide tiles into pipeline stages of a fixed number of kept columns, for all tile kernels.

`item_columns` expresses the work items of a plan in the units of the kernels: stages, and workspace slots of
split-K tiles. `packing.py` fills the stages with weights.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray, TileMap
from prunecast.plan.kernel_plan import KernelPlan


class Packed(NamedTuple):
    """Host copies of the device arrays of one layer, and the argument of its launch."""

    arrays: Mapping[str, npt.NDArray[Any]]
    """Field name of an address in the argument -> array; the operator adds the bias."""
    args: npt.NDArray[np.void]
    """The first argument of the kernel, one record, complete except for addresses and row strides."""
    blocks: int
    """Number of thread blocks of a launch."""
    workspace: Mapping[str, tuple[int, str]] = {}
    """Zero-initialized device arrays by the field name of their address: number of elements and dtype."""
    unwritten: IntArray = np.zeros(0, np.int32)
    """Rows of C that are in no tile and that the kernel does not write."""


def uncovered_rows(tiles: TileMap) -> IntArray:
    """Return the rows of A that are in no tile, ascending, int32; their products in C are zero."""
    return np.setdiff1d(np.arange(tiles.m, dtype=np.int32), tiles.row_index)


class TileStages(NamedTuple):
    """Columns and rows of the pipeline stages of all tiles, without the weights.

    Tile t has the stages stage_start[t] to stage_start[t + 1] - 1. Each stage holds `step` of its kept
    columns, in order; the last one is padded. A null stage without columns may follow all other stages.
    """

    columns: IntArray
    """(stages, step): columns of A; -1 for padding."""
    rows: IntArray
    """(tiles, block_m): rows of A and C; -1 for padding."""
    stage_start: IntArray
    """(tiles + 1,): first stage of each tile, then the number of stages without the null stage."""

    @property
    def null_stage(self) -> int:
        """Index of the null stage."""
        return int(self.stage_start[-1])

    @property
    def stage_rows(self) -> IntArray:
        """Rows of A in each stage, (stages, block_m) int32; -1 for padding and in the null stage."""
        of_tiles = np.repeat(self.rows, np.diff(self.stage_start), axis=0)
        none = np.full((len(self.columns) - len(of_tiles), self.rows.shape[1]), -1, np.int32)
        return np.concatenate((of_tiles, none))

    def columns_by_thread(self, rows_at_once: int) -> IntArray:
        """Return the columns in the order of threads that fetch r rows of B at once, (stages, r, step / r).

        Element [s, t, q] is the column at position t + r q of stage s, and r is `rows_at_once`.
        """
        by_turn = self.columns.reshape(len(self.columns), -1, rows_at_once)
        return np.ascontiguousarray(by_turn.transpose(0, 2, 1))


def _stage_starts(tiles: TileMap, step: int) -> IntArray:
    """Return the first pipeline stage of every tile, then the number of stages, (tiles + 1,) int32."""
    stages = -(-tiles.kept_per_tile.astype(np.int64) // step)
    return np.concatenate(([0], np.cumsum(stages))).astype(np.int32)


def tile_stages(tiles: TileMap, block_m: int, step: int, *, has_null: bool = True) -> TileStages:
    """Return the stages of all tiles of a map.

    Parameters
    ----------
    block_m : rows of a thread block; shorter tiles are padded
    step : kept columns of a stage
    has_null : append a null stage without columns

    Raises
    ------
    BadInput : a tile is taller than `block_m`
    """
    tallest = int(tiles.rows_per_tile.max(initial=0))
    if tallest > block_m:
        raise BadInput(f"a tile of {tallest} rows does not fit into a block of {block_m}")
    start = _stage_starts(tiles, step)
    columns = np.full((start[-1] + has_null, step), -1, np.int32)
    rows = np.full((tiles.tile_count, block_m), -1, np.int32)
    _fill(columns, start[:-1].astype(np.int64) * step, tiles.kept_per_tile, tiles.column_index)
    _fill(rows, np.arange(tiles.tile_count) * block_m, tiles.rows_per_tile, tiles.row_index)
    return TileStages(columns, rows, start)


def row_lists(tiles: TileMap, stages: TileStages) -> IntArray:
    """Return the rows of each tile, then the rows in no tile, as (lists, block_m) int32 padded with -1."""
    block_m, alone = stages.rows.shape[1], uncovered_rows(tiles)
    lists = np.full((-(-alone.size // block_m), block_m), -1, np.int32)
    lists.reshape(-1)[: alone.size] = alone
    return np.concatenate((stages.rows, lists))


def _fill(room: IntArray, first: npt.NDArray[np.int64], counts: npt.NDArray[Any], values: IntArray) -> None:
    """Copy run i of `values`, of length counts[i], into the flattened `room` from index first[i] on."""
    before = np.cumsum(counts) - counts
    room.reshape(-1)[np.arange(values.size) + np.repeat(first - before, counts)] = values


Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class ItemColumns(NamedTuple):
    """Properties of all work items, as arrays (items,) in the order of the plan.

    The tile kernels build the records of their launches from them.
    """

    first: Longs
    """First stage of the item."""
    columns: Longs
    """Number of kept columns."""
    steps: Longs
    """Number of stages of these columns."""
    tile: Longs
    token: Longs
    """First token."""
    is_part: Flags
    """True for slices of a tile that is split along K."""
    is_owner: Flags
    """True for the owner of a tile that is split along K: the slice that adds the other slices' sums. False
    for unsplit items."""
    slot: Longs
    """Index of the workspace slot of the item's partial sums; for the owner, the slice that adds the partial
    sums, the first slot of the other slices. 0 for unsplit items."""
    waits: Longs
    """Number of slices whose partial sums the owner of a split tile waits for."""
    group: Longs
    """Index of the split tile; 0 for unsplit items."""

    def workspace(self, sums: int, counters: int, *, least_sums: int) -> dict[str, tuple[int, str]]:
        """Return the sizes and dtypes of the partial sums and counters, in the form of `Packed.workspace`.

        Parameters
        ----------
        sums, counters : number of partial sums of a slice, and number of counters of a split tile
        least_sums : number of partial sums if no tile is split
        """
        slots, groups = (int(np.count_nonzero(of)) for of in (self.is_part & ~self.is_owner, self.is_owner))
        return {
            "partials": (max(slots * sums, least_sums), "f4"),
            "counters": (max(groups, 1) * counters, "u4"),
        }

    def with_other_rows(self, plan: KernelPlan) -> "ItemColumns":
        """Return the items, followed by items without columns for the rows in no tile.

        `row_lists` contains these rows as tiles that follow the tiles of the plan.
        """
        lists = -(-uncovered_rows(plan.tiles).size // plan.shape.block_m)
        tokens = np.arange(0, plan.n, plan.shape.block_n)
        none = np.zeros(lists * tokens.size, np.int64)
        columns = self._asdict().items()
        longer = ItemColumns(**{name: np.append(c, none.astype(c.dtype)) for name, c in columns})
        longer.tile[self.tile.size :] = plan.tiles.tile_count + np.repeat(np.arange(lists), tokens.size)
        longer.token[self.tile.size :] = np.tile(tokens, lists)
        return longer


def item_columns(plan: KernelPlan, step: int) -> ItemColumns:
    """Return the properties of the work items of `plan`, in units of stages of `step` columns.

    Raises
    ------
    BadInput : a split-K slice begins or ends inside a stage, an item does not process the `block_n` tokens of
        a block (or all that remain), or the owner of a split tile is not its first slice
    """
    work = plan.work
    whole_end = work.k_stop == plan.tiles.kept_per_tile[work.tile]
    if np.any(work.k_start % step) or np.any((work.k_stop % step != 0) & ~whole_end):
        raise BadInput(f"{plan.kernel}: parts of a split tile must begin at multiples of {step} columns")
    if np.any(work.token_stop != np.minimum(work.token_start + plan.shape.block_n, plan.n)):
        raise BadInput(f"{plan.kernel}: items must take {plan.shape.block_n} tokens, or all that are left")
    if np.any((work.owner == 1) & (work.part != 0)):
        raise BadInput(f"{plan.kernel}: part 0 of a split tile must own it")
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
    )


def int_records(**columns: npt.NDArray[Any]) -> IntArray:
    """Return records of int32, (items, columns), in the memory layout that kernels read.

    Kernels read a column by its position, which is that of the keyword; the keywords are for readers only.
    """
    return np.ascontiguousarray(np.stack(list(columns.values()), axis=1), np.int32)
