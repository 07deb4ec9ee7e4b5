"""Encode a plan of the mma tile kernel: a record per k-step of every block, and the launch argument.

Each k-step has a record because eight equal warps without a producer would otherwise compute the step and the
item inside the main loop.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.conv_input import PLANE_FIELDS, rows_of_b, write_grid
from prunecast.kernels.device.tile_stages import (
    ItemColumns,
    Packed,
    TileStages,
    item_columns,
    row_lists,
    uncovered_rows,
)
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

MOST_BLOCKS_IN_ARGS = 900
"""Maximum number of blocks whose first k-steps fit into the launch arguments. Kind: CUDA source,
`mma_args.cuh`."""
WARPS = 8
"""Warps of a block. Each warp has a counter for every split tile. Kind: CUDA source, `mma_shape.cuh`."""
_LANE_BYTES = 16
"""Bytes that a lane stores at once. Kind: CUDA source, `mma_end.cuh`."""
FIRST_STEP, LAST_STEP, PART, OWNER, PLACE_SHIFT = 1, 2, 4, 8, 4
"""Bits of the flags of a step record; from bit `PLACE_SHIFT` on they contain an index into `splits`. Enum
`What`. Kind: CUDA source, `mma_args.cuh`."""

_POINTERS = ("weights", "columns", "steps", "splits", "start", "rows", "bias", "partials", "counters")
MMA_ARGS = np.dtype(
    [(name, "u8") for name in (*_POINTERS, "b", "c", "clock")]
    + [(name, "i8") for name in ("b_row_bytes", "c_row_bytes")]
    + [(name, "i4") for name in ("tokens", "blocks_in_args")]
    + [("first", "i4", (MOST_BLOCKS_IN_ARGS + 4,))]
    + [("line_chunks", "i4"), ("pixel_chunks", "i4"), *PLANE_FIELDS]
)
"""Layout of `MmaArgs`; only convolutions read the fields after `first`. Kind: CUDA
source, `mma_args.cuh`."""


class _MmaRecords(NamedTuple):
    """Records of all blocks. The blocks of the plan come first, then blocks for rows in no tile, which
    multiply zeros.
    """

    steps: IntArray
    """(k-steps, 4): stage, first token, index into `rows`, and flags (`FIRST_STEP` to `OWNER`) with an index
    into `splits`."""
    splits: IntArray
    """(split items, 4): workspace slot, number of slices to wait for, reduction group, 0; at least one
    entry."""
    start: IntArray
    """(blocks + 1,): first step of each block."""
    rows: IntArray
    """(row lists, block_m): rows of C, -1 for none."""
    slots: int
    """Number of partial tiles of C in the workspace."""
    groups: int
    """Number of split tiles of C."""

    @property
    def blocks(self) -> int:
        """Number of blocks of the launch."""
        return int(self.start.size) - 1

    def arguments(self, plan: KernelPlan) -> npt.NDArray[np.void]:
        """Return one `MMA_ARGS` record, complete except for addresses and row strides."""
        args = np.zeros(1, MMA_ARGS)
        together = _LANE_BYTES // DTYPE_BYTES[plan.dtype]
        args["tokens"] = -(-plan.n // together) * together
        if self.blocks <= MOST_BLOCKS_IN_ARGS:
            args["blocks_in_args"] = 1
            args["first"][0, : self.start.size] = self.start
        write_grid(plan, args)
        return args


class _Walked(NamedTuple):
    """Items of all blocks in order; items for rows in no tile are last."""

    stage: IntArray
    steps: IntArray
    token: IntArray
    rows: IntArray
    action: IntArray
    """Flag (`PART` or `OWNER`) and index into `splits` of a k-slice, as in the last word of its step records;
    0 for whole items."""


def _mma_records(plan: KernelPlan, packed: TileStages) -> _MmaRecords:
    """Return the records of a plan.

    Raises
    ------
    BadInput : the plan splits inside k-steps, leaves tokens of a block out, or has a split tile whose owner
        is not slice 0
    """
    items, block_n = item_columns(plan, plan.shape.block_k, "the mma tile kernel"), plan.shape.block_n
    lists = row_lists(uncovered_rows(plan.tiles), plan.shape.block_m)
    tokens = np.arange(0, plan.n, block_n, dtype=np.int32)
    alone = np.repeat(packed.rows.shape[0] + np.arange(lists.shape[0]), tokens.size)
    none = np.zeros(alone.size, np.int64)
    # Index of each k-slice in `splits`, which has entries for slices of split tiles only
    place: npt.NDArray[np.int64] = np.cumsum(items.is_part) - items.is_part
    action = np.where(items.is_owner, OWNER, PART) | place << PLACE_SHIFT
    null = packed.null_stage  # multiplied by items without columns
    walked = _Walked(
        stage=np.concatenate((np.where(items.steps > 0, items.first, null), none + null)),
        steps=np.concatenate((np.maximum(items.steps, 1), none + 1)),
        token=np.concatenate((items.token, np.tile(tokens, lists.shape[0]))),
        rows=np.concatenate((items.tile, alone)),
        action=np.concatenate((np.where(items.is_part, action, 0), none)),
    )
    start = plan.work.block_start
    first_item = np.concatenate((start, start[-1] + 1 + np.arange(alone.size)))
    first_step = np.concatenate(([0], np.cumsum(walked.steps)))
    return _MmaRecords(
        steps=_steps(walked),
        splits=_splits(items),
        start=_int32(first_step[first_item]),
        rows=_int32(np.concatenate((packed.rows, lists))),
        slots=items.slots,
        groups=items.groups,
    )


def _steps(items: _Walked) -> IntArray:
    item = np.repeat(np.arange(items.steps.size), items.steps)
    step = np.arange(item.size) - (np.cumsum(items.steps) - items.steps)[item]
    ends = np.where(step == 0, FIRST_STEP, 0) | np.where(step == items.steps[item] - 1, LAST_STEP, 0)
    # Adding the step is safe for the null stage: items of the null stage have a single step
    fields = (items.stage[item] + step, items.token[item], items.rows[item], items.action[item] | ends)
    return _int32(np.stack(fields, axis=1))


def _splits(items: ItemColumns) -> IntArray:
    split = np.stack((items.slot, items.waits, items.group, np.zeros_like(items.slot)), axis=1)[items.is_part]
    return _int32(split) if split.size else np.zeros((1, 4), np.int32)


def mma_packed(plan: KernelPlan, stages: TileStages, rows_at_once: int) -> Packed:
    """Return the device arrays and launch argument of a plan, without weights, bias and B.

    Parameters
    ----------
    rows_at_once : number of rows of B that the threads of a block fetch at once

    Raises
    ------
    BadInput : the plan splits inside k-steps, leaves tokens of a block out, or has a split tile whose owner
        is not slice 0
    """
    records = _mma_records(plan, stages)
    return Packed(
        arrays={
            "columns": rows_of_b(plan, stages.columns_by_thread(rows_at_once)),
            "steps": records.steps,
            "splits": records.splits,
            "start": records.start,
            "rows": records.rows,
        },
        args=records.arguments(plan),
        blocks=records.blocks,
        workspace={
            "partials": (max(records.slots * plan.shape.block_m * plan.shape.block_n, 4), "f4"),
            "counters": (max(records.groups, 1) * WARPS, "u4"),
        },
    )


def _int32(array: npt.NDArray[np.integer]) -> IntArray:
    return np.ascontiguousarray(array, np.int32)
