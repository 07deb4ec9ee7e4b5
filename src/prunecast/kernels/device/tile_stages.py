"""Pack tiles into stages of a fixed number of kept columns; used by the packing of all tile kernels.

`item_columns` converts the work items of a plan to the units of the kernels: stages, and workspace slots for
split-K tiles. All packing works on the bits of the weights. `squeeze` compresses 2:4 rows to half their
length.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray, MaskArray, TileMap
from prunecast.plan.kernel_plan import KernelPlan


class Packed(NamedTuple):
    """Device arrays and launch argument of one layer."""

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


Bits = npt.NDArray[np.uint16]


def to_bits(values: npt.NDArray[np.floating[Any]], dtype: str) -> Bits:
    """Return the bits of `values` rounded to `fp16` or `bf16`, as uint16 of the same shape."""
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    if dtype == "bf16":
        import ml_dtypes

        return values.astype(ml_dtypes.bfloat16).view(np.uint16)
    raise BadInput(f"weights are fp16 or bf16, got {dtype}")


def uncovered_rows(tiles: TileMap) -> IntArray:
    """Return the rows of A that are in no tile, ascending; their sums in C are zero."""
    return np.setdiff1d(np.arange(tiles.m, dtype=np.int32), tiles.row_index)


class _Squeezed(NamedTuple):
    """Rows of 2:4 weights compressed to half their length."""

    values: Bits
    """(rows, columns / 2): two elements of every four, in order; 0 if fewer are kept."""
    places: npt.NDArray[np.uint8]
    """(rows, columns / 4): position of the first of the two in its group, plus 4 times that of the second."""


def _table(kept: int) -> tuple[int, int, int, int]:
    """Return the positions of two elements of a group of four with mask `kept`, and if each of them is kept.

    The hardware needs two different positions. A position that is not kept is multiplied by 0; it is as late
    in the group as possible, because the padding of a column list is at its end.
    """
    places = [place for place in range(4) if kept >> place & 1]
    if len(places) == 2:
        return places[0], places[1], 1, 1
    if len(places) == 1:
        return (places[0], 3, 1, 0) if places[0] < 3 else (2, 3, 0, 1)
    return 2, 3, 0, 0


PLACES_OF_MASK = np.array([_table(kept) for kept in range(16)], np.uint8).T
"""Mask of four columns -> positions of the two that 2:4 multiplies, and if each is kept. Kind: definition,
PTX ISA, mma.sp metadata."""


def squeeze(values: Bits, kept: MaskArray) -> _Squeezed:
    """Compress rows whose number of columns is a multiple of four to the 2:4 format.

    Parameters
    ----------
    values : (rows, columns) uint16, the bits of the weights; values that are not kept are not read
    kept : (rows, columns), at most two in each aligned group of four

    Raises
    ------
    BadInput : a group has three or four kept elements
    """
    fours = kept.reshape(kept.shape[0], -1, 4)
    if fours.size and np.count_nonzero(fours, axis=2).max() > 2:
        raise BadInput("2:4: more than two of four neighbours are kept")
    code = np.packbits(fours, axis=2, bitorder="little")[:, :, 0]
    groups = values.reshape(fours.shape)
    at_first, at_second, has_first, has_second = (column[code] for column in PLACES_OF_MASK)
    first, second = _picked(groups, at_first, has_first), _picked(groups, at_second, has_second)
    squeezed = np.stack((first, second), axis=2).reshape(kept.shape[0], -1)
    return _Squeezed(squeezed, at_first | at_second << 2)


def _picked(groups: Bits, place: npt.NDArray[Any], has: npt.NDArray[Any]) -> Bits:
    picked: Bits = np.take_along_axis(groups, place[:, :, None].astype(np.intp), axis=2)[:, :, 0] * has
    return picked


class PackedStages(NamedTuple):
    """Packed weights of one layer; a null stage without columns follows the stages of all tiles.

    Tile t has stages stage_start[t] to stage_start[t + 1], each with the same number of its kept columns, in
    order.
    """

    weights: npt.NDArray[Any]
    """(stages + 1, ...): weights, one stage after the other, in the layout that the kernel reads."""
    columns: IntArray
    """(stages + 1, r, step / r): [s, t, q] is the column of A at position t + r q of stage s, -1 for none; r
    is the number of rows of B that are fetched at once."""
    rows: IntArray
    """(tiles, block_m): row of C; -1 for none."""
    stage_start: IntArray
    """(tiles + 1,)."""

    @property
    def null_stage(self) -> int:
        """Index of the null stage."""
        return int(self.stage_start[-1])


class _TileStages(NamedTuple):
    """Stages of all tiles without weights: columns in order, rows of C, first stage of each tile."""

    columns: IntArray
    """(stages + 1, step)."""
    rows: IntArray
    stage_start: IntArray

    def packed(self, weights: npt.NDArray[Any], rows_at_once: int) -> PackedStages:
        """Return the stages with weights; columns are reordered for threads that fetch `rows_at_once` rows of
        B.
        """
        by_turn = self.columns.reshape(self.columns.shape[0], -1, rows_at_once)
        by_thread = np.ascontiguousarray(by_turn.transpose(0, 2, 1))
        return PackedStages(weights, by_thread, self.rows, self.stage_start)


def _stage_starts(tiles: TileMap, step: int) -> IntArray:
    """Return (tiles + 1,) int32: the first stage of every tile, then the number of stages."""
    stages = -(-tiles.kept_per_tile.astype(np.int64) // step)
    return np.concatenate(([0], np.cumsum(stages))).astype(np.int32)


def tile_stages(tiles: TileMap, block_m: int, step: int) -> _TileStages:
    """Return the rows and columns of the stages.

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
    """Yield, for every tile, its range of stages and its rows and kept columns of `matrix` (M, K).

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
    """Return (block_m, columns padded to whole stages of `step`): `values` of a tile, padded with zeros."""
    width = -(-values.shape[1] // step) * step
    found = np.zeros((block_m, width), values.dtype)
    found[: values.shape[0], : values.shape[1]] = values
    return found


def row_lists(rows: IntArray, block_m: int) -> IntArray:
    """Return (lists, block_m): rows of C in lists as long as those of tiles, padded with -1."""
    lists = np.full((-(-rows.size // block_m), block_m), -1, np.int32)
    lists.reshape(-1)[: rows.size] = rows
    return lists


def _fill(room: IntArray, first: npt.NDArray[np.int64], counts: npt.NDArray[Any], values: IntArray) -> None:
    """Copy run i of `values`, of length counts[i], into the flattened `room` from index first[i] on."""
    before = np.cumsum(counts) - counts
    room.reshape(-1)[np.arange(values.size) + np.repeat(first - before, counts)] = values


Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class ItemColumns(NamedTuple):
    """Columns with one entry per item, in the order of the plan, from which tile kernels build
    their records.
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
    """True for the slice that adds the other slices' sums."""
    slot: Longs
    """Workspace slot of the partial sums; for the owner the first slot of the other slices. 0 for whole
    items."""
    waits: Longs
    """Number of slices that the owner waits for."""
    group: Longs
    """Index of the split tile; 0 for whole items."""
    slots: int
    """Number of partial tiles of C in the workspace."""
    groups: int
    """Number of split tiles of C."""


def item_columns(plan: KernelPlan, step: int, kernel: str) -> ItemColumns:
    """Return the items of `plan`, in stages of `step` columns.

    Parameters
    ----------
    kernel : name of the kernel in error messages

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
