"""Encode a plan of the wgmma tile kernel: layout of the weights, work records, launch argument.

Each work item has two records of four int32, in the arrays `items` and `splits`, see `list_records`.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.conv_input import PLANE_FIELDS, rows_of_b, write_grid
from prunecast.kernels.device.launch import argument_record
from prunecast.kernels.device.packing import Slab
from prunecast.kernels.device.tile_stages import (
    Packed,
    TileStages,
    int_records,
    item_columns,
    uncovered_rows,
)
from prunecast.kernels.tile.config import RUN
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan, Schedule

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


STRIDES = "b_row_bytes c_row_bytes"
LISTS = [("first", "i4", (MOST_BLOCKS_IN_ARGS, 4)), ("start", "i4", (MOST_BLOCKS_IN_ARGS + 4,))]
"""Fields of the argument of a kernel for lists of items. Kind: definition, `TileArgs` of tile_args.cuh."""


_BORDER_FIELDS = (*PLANE_FIELDS, ("reserved", "u8"))
TILE_ARGS = argument_record(
    "weights columns items splits rows b c bias partials counters clock",
    STRIDES,
    "tokens null_stage blocks_in_args c_tokens line_chunks pixel_chunks",
    *LISTS,
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
"""Rows of B that the producer's threads copy at once; the 64 rows of a stage need four such copies. Kind:
CUDA source, `tile_gather.cuh`."""


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

    Array `items` (items, 4): first stage; k-steps in bits 0 to 23, groups of `GROUP_BYTES` in the last k-step
    from bit 24 on and owner flag in bit 27; tile; first token. Array `splits` (items, 4): workspace slot,
    number of slices to wait for, reduction group, role.

    Parameters
    ----------
    record : dtype of the argument struct, which contains `LISTS`

    Raises
    ------
    BadInput : in the same cases as `item_columns`, or there are more persistent blocks than fit into the
        launch arguments
    """
    if plan.schedule is Schedule.STATIC and plan.blocks > MOST_BLOCKS_IN_ARGS:
        raise BadInput(f"{plan.kernel}: at most {MOST_BLOCKS_IN_ARGS} persistent blocks, got {plan.blocks}")
    items = item_columns(plan, plan.shape.block_k)
    # Items padded to `FEWEST_STEPS` end in the null stage, of which one group of columns is enough
    last = items.columns - (items.steps - 1) * plan.shape.block_k
    group = GROUP_BYTES // DTYPE_BYTES[plan.dtype]
    groups_of_last = np.where(items.steps >= FEWEST_STEPS, -(-last // group), 1)
    steps = items.steps | groups_of_last << 24 | items.is_owner.astype(np.int64) << 27
    item_records = int_records(first_stage=items.first, steps=steps, tile=items.tile, first_token=items.token)
    role = np.where(items.is_part, np.where(items.is_owner, OWNER, PART), WHOLE)
    columns = (
        rows_of_b(plan, stages.columns_by_thread(GATHER_ROWS)) if plan.dtype != "fp8" else runs_of(stages)
    )
    sums = plan.shape.block_m * plan.shape.block_n
    return Packed(
        arrays={
            "columns": columns,
            "items": item_records,
            "splits": int_records(slot=items.slot, waits=items.waits, group=items.group, role=role),
            "rows": stages.rows,
        },
        args=_list_args(plan, record, stages, item_records),
        blocks=plan.blocks if plan.item_count else 0,
        workspace=items.workspace(sums, COUNTERS_PER_GROUP, least_sums=sums),
        unwritten=uncovered_rows(plan.tiles),
    )


def runs_of(stages: TileStages) -> IntArray:
    """Return the first column of each run of `RUN` columns of each stage, (stages, 4) int32; -RUN if there is
    no run.
    """
    first = stages.columns[:, ::RUN]
    return np.ascontiguousarray(np.where(first < 0, -RUN, first).astype(np.int32))


def _list_args(
    plan: KernelPlan, dtype: np.dtype[np.void], stages: TileStages, items: IntArray
) -> npt.NDArray[np.void]:
    """Return the argument struct of a kernel for lists of items, complete except for addresses and row
    strides. Of plans with per-block lists it has the list bounds and the first item of each block.
    """
    args, start = np.zeros(1, dtype), plan.work.block_start
    args["tokens"], args["null_stage"] = -(-plan.n // 8) * 8, stages.null_stage
    if plan.schedule is Schedule.STATIC:
        args["blocks_in_args"] = plan.blocks
        args["start"][0, : start.size] = start
        has_items = np.flatnonzero(np.diff(start))
        args["first"][0, has_items] = items[start[has_items]]
    write_grid(plan, args)
    return args
