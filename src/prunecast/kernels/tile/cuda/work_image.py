"""Encode a plan of the wgmma tile kernel: layout of the weights, work records, launch argument.

Each work item has two records of four int32, in `_WorkImage.items` and `_WorkImage.splits`.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.conv_input import PLANE_FIELDS, rows_of_b, write_grid
from prunecast.kernels.device.packing import Slab
from prunecast.kernels.device.tile_stages import (
    ItemColumns,
    Packed,
    TileStages,
    item_columns,
    uncovered_rows,
)
from prunecast.kernels.tile.config import RUN
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape, KernelPlan, Schedule

MOST_BLOCKS_IN_ARGS = 160
"""Maximum number of blocks whose first item and list bounds fit into the launch arguments. Kind: CUDA source,
`tile_args.cuh`."""
GROUP_BYTES = 32
"""Bytes of the columns that one instruction multiplies: 16 columns of fp16, 32 of fp8. Kind: definition, PTX
ISA, wgmma."""
FEWEST_STEPS = 2
"""Minimum number of k-steps of an item. Kind: CUDA source, `tile_list.cuh`."""
WHOLE, PART, OWNER = 0, 1, 2
"""Role of an item: a tile that is not split, one k-slice of a split tile, or the slice that adds the partial
sums of the others and writes C. Kind: CUDA source, `tile_args.cuh`."""


class _WorkImage(NamedTuple):
    """Records of all items, in the order of the plan; the fields are those of `tile_args.cuh`."""

    items: IntArray
    """(items, 4): first stage; k-steps in bits 0 to 23, groups of `GROUP_BYTES` in the last k-step from bit
    24 on and owner flag in bit 27; tile; first token."""
    splits: IntArray
    """(items, 4): workspace slot, number of slices to wait for, reduction group, role."""
    start: IntArray
    """(blocks + 1,): first item of each block; empty if block b runs item b."""
    slots: int
    """Number of partial tiles of C in the workspace."""
    groups: int
    """Number of split tiles of C."""

    def workspace(self, shape: BlockShape, counters_per_group: int) -> dict[str, tuple[int, str]]:
        """Return the sizes and dtypes of the partial sums and counters of split tiles, in the form of
        `Packed.workspace`.
        """
        tile_floats = shape.block_m * shape.block_n
        return {
            "partials": (max(self.slots, 1) * tile_floats, "f4"),
            "counters": (max(self.groups, 1) * counters_per_group, "u4"),
        }

    def into(self, args: npt.NDArray[np.void]) -> None:
        """Write the list bounds and the first item of each block into the launch argument `args`, for plans
        with per-block lists.
        """
        if not self.start.size:
            return
        args["blocks_in_args"] = self.start.size - 1
        args["start"][0, : self.start.size] = self.start
        has_items = np.flatnonzero(np.diff(self.start))
        args["first"][0, has_items] = self.items[self.start[has_items]]


def work_image(plan: KernelPlan) -> _WorkImage:
    """Return the records of `plan`.

    Raises
    ------
    BadInput : in the same cases as `item_columns`, or there are more persistent blocks than fit into the
        launch arguments
    """
    if plan.schedule is Schedule.STATIC and plan.blocks > MOST_BLOCKS_IN_ARGS:
        raise BadInput(f"{plan.kernel}: at most {MOST_BLOCKS_IN_ARGS} persistent blocks, got {plan.blocks}")
    items = item_columns(plan, plan.shape.block_k, "the tile kernel")
    in_plan = plan.schedule is Schedule.STATIC
    return _WorkImage(
        items=_items(items, plan.shape.block_k, GROUP_BYTES // DTYPE_BYTES[plan.dtype]),
        splits=_splits(items),
        start=plan.work.block_start if in_plan else np.zeros(0, np.int32),
        slots=items.slots,
        groups=items.groups,
    )


def _items(items: ItemColumns, block_k: int, group: int) -> IntArray:
    # Items padded to `FEWEST_STEPS` end in the null stage, of which one group of columns is enough
    last = items.columns - (items.steps - 1) * block_k
    groups_of_last = np.where(items.steps >= FEWEST_STEPS, -(-last // group), 1)
    what = items.steps | groups_of_last << 24 | items.is_owner.astype(np.int64) << 27
    return _int32(items.first, what, items.tile, items.token)


def _splits(items: ItemColumns) -> IntArray:
    action = np.where(items.is_part, np.where(items.is_owner, OWNER, PART), WHOLE)
    return _int32(items.slot, items.waits, items.group, action)


def _int32(*columns: npt.NDArray[np.int64]) -> IntArray:
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int32))


_LISTS = [("first", "i4", (MOST_BLOCKS_IN_ARGS, 4)), ("start", "i4", (MOST_BLOCKS_IN_ARGS + 4,))]
"""Fields of the argument of a kernel for lists of items. Kind: definition, `TileArgs` of tile_args.cuh."""


def list_record(pointers: str, numbers: str, *behind: Any) -> np.dtype[np.void]:
    """Return the dtype of the argument struct of a kernel that processes lists of items.

    Its fields are the pointers, the row strides of B and C, the 4-byte numbers, the lists, and the fields
    `behind` after the lists.

    Parameters
    ----------
    pointers, numbers : field names, separated by spaces
    behind : NumPy field descriptions
    """
    words = [(name, "u8") for name in pointers.split()]
    rows = [("b_row_bytes", "i8"), ("c_row_bytes", "i8")]
    return np.dtype([*words, *rows, *((name, "i4") for name in numbers.split()), *_LISTS, *behind])


_BORDER_FIELDS = (*PLANE_FIELDS, ("reserved", "u8"))
TILE_ARGS = list_record(
    "weights columns items splits rows b c bias partials counters clock",
    "tokens null_stage blocks_in_args c_tokens line_chunks pixel_chunks",
    *_BORDER_FIELDS,
)
"""Layout of `TileArgs`; `first` is 16-byte aligned in C++, and the fields after the lists are read only
by convolutions. Kind: CUDA source, `tile_args.cuh`."""


FP8_ARGS = np.dtype(
    [
        *TILE_ARGS.descr[: -len(_BORDER_FIELDS)],
        ("row_scales", "u8"),
        ("token_scales", "u8"),
        ("unused", "u8", 4),
        ("b_map", "u8", 16),
    ]
)
"""Layout of `TileArgs` with fp8 operands. Kind: CUDA source, `tile_args.cuh`."""

STAGE_COLUMNS, FP8_STAGE_COLUMNS = 64, 128
"""Columns of a stage: with 2-byte weights, and with fp8 weights. Kind: CUDA source, `tile_shape.cuh`."""
CHUNK = 8
"""Number of 2-byte elements in a 16-byte chunk, the unit of the swizzle. Kind: definition, PTX ISA, 128-byte
swizzle."""
GATHER_ROWS = 16
"""Rows of B that the producer's threads fetch at once; a stage needs four such rounds. Kind: CUDA source,
`tile_gather.cuh`."""


@lru_cache
def stage_slab(block_m: int, columns: int = STAGE_COLUMNS) -> Slab:
    """Return the memory layout of the packed weights of a stage, whose rows have 128 bytes. In row r, the
    16-byte chunk c is stored at position c xor (r mod 8).

    This is the 128-byte swizzle of the wgmma descriptors, which avoids bank conflicts.
    """
    chunks = STAGE_COLUMNS // CHUNK
    row, chunk = np.ogrid[:block_m, :chunks]
    natural = np.arange(block_m * columns).reshape(block_m, chunks, -1)
    return Slab(natural[row, chunk ^ (row % 8)].ravel(), (block_m, columns))


COUNTERS_PER_GROUP = 16
"""4-byte words reserved for the counters of a split tile. The tile kernel uses only the first; the 2:4 kernel
has one counter per warp and group of rows. Kind: CUDA source, `tile_sums.cuh`, `sparse_sums.cuh`."""


def list_records(plan: KernelPlan, record: np.dtype[np.void], stages: TileStages) -> Packed:
    """Return the device arrays and launch argument of a plan for a kernel that processes lists of items.

    Parameters
    ----------
    record : dtype of the argument struct, made by `list_record`

    Raises
    ------
    BadInput : in the same cases as `work_image`
    """
    work, is_fp8 = work_image(plan), plan.dtype == "fp8"
    return Packed(
        arrays={
            "columns": runs_of(stages) if is_fp8 else rows_of_b(plan, stages.columns_by_thread(GATHER_ROWS)),
            "items": work.items,
            "splits": work.splits,
            "rows": stages.rows,
        },
        args=_list_args(plan, record, stages, work),
        blocks=plan.blocks if plan.item_count else 0,
        workspace=work.workspace(plan.shape, COUNTERS_PER_GROUP),
        unwritten=uncovered_rows(plan.tiles),
    )


def runs_of(stages: TileStages) -> IntArray:
    """Return the first column of each run of `RUN` columns of each stage, (stages, 4) int32; -RUN if there is
    no run.
    """
    first = stages.columns[:, ::RUN]
    return np.ascontiguousarray(np.where(first < 0, -RUN, first).astype(np.int32))


def _list_args(
    plan: KernelPlan, dtype: np.dtype[np.void], stages: TileStages, work: _WorkImage
) -> npt.NDArray[np.void]:
    """Return the argument struct of a kernel for lists of items, complete except for addresses and row
    strides.
    """
    args = np.zeros(1, dtype)
    args["tokens"], args["null_stage"] = -(-plan.n // 8) * 8, stages.null_stage
    work.into(args)
    write_grid(plan, args)
    return args
