"""Encode a plan of the mma tile kernel: a record per k-step of every block, and the launch argument.

Each k-step has a record because eight equal warps without a producer would otherwise compute the step and the
item inside the main loop.
"""

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.conv_input import PLANE_FIELDS, rows_of_b, write_grid
from prunecast.kernels.device.launch import argument_record
from prunecast.kernels.device.tile_stages import (
    ItemColumns,
    Packed,
    TileStages,
    int_records,
    item_columns,
    row_lists,
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

MMA_ARGS = argument_record(
    "weights columns steps splits start rows bias partials counters b c clock",
    "b_row_bytes c_row_bytes",
    "tokens blocks_in_args",
    ("first", "i4", (MOST_BLOCKS_IN_ARGS + 4,)),
    ("line_chunks", "i4"),
    ("pixel_chunks", "i4"),
    *PLANE_FIELDS,
)
"""Layout of `MmaArgs`; only convolutions read the fields after `first`. Kind: CUDA
source, `mma_args.cuh`."""


def mma_packed(plan: KernelPlan, stages: TileStages, rows_at_once: int) -> Packed:
    """Return the device arrays and launch argument of a plan, without weights, bias and B.

    The blocks of the plan come first, then blocks for rows in no tile, which multiply zeros. Array `steps`
    (k-steps, 4): stage, first token, index into `rows`, and flags (`FIRST_STEP` to `OWNER`) with an index
    into `splits`. Array `splits` (k-slices, 4): workspace slot, number of slices to wait for, reduction
    group, 0; at least one entry. Array `start` (blocks + 1,): first step of each block.

    Parameters
    ----------
    rows_at_once : number of rows of B that the threads of a block fetch at once

    Raises
    ------
    BadInput : the plan splits inside k-steps, leaves tokens of a block out, or has a split tile whose owner
        is not slice 0
    """
    items = item_columns(plan, plan.shape.block_k).with_other_rows(plan)
    first_step = np.concatenate(([0], np.cumsum(np.maximum(items.steps, 1))))
    others = np.arange(plan.item_count, items.tile.size) + 1
    start = first_step[np.concatenate((plan.work.block_start, others))].astype(np.int32)
    split = int_records(slot=items.slot, waits=items.waits, group=items.group, unused=0 * items.slot)
    split = split[items.is_part]
    return Packed(
        arrays={
            "columns": rows_of_b(plan, stages.columns_by_thread(rows_at_once)),
            "steps": _steps(items, stages.null_stage),
            "splits": split if split.size else np.zeros((1, 4), np.int32),
            "start": start,
            "rows": row_lists(plan.tiles, stages),
        },
        args=_arguments(plan, start),
        blocks=start.size - 1,
        workspace=items.workspace(plan.shape.block_m * plan.shape.block_n, WARPS, least_sums=4),
    )


def _steps(items: ItemColumns, null_stage: int) -> IntArray:
    """Return the records of the k-steps; items without columns multiply the null stage once."""
    steps = np.maximum(items.steps, 1)
    item = np.repeat(np.arange(steps.size), steps)
    step = np.arange(item.size) - (np.cumsum(steps) - steps)[item]
    ends = np.where(step == 0, FIRST_STEP, 0) | np.where(step == steps[item] - 1, LAST_STEP, 0)
    # Index of each k-slice in `splits`, which has entries for slices of split tiles only
    place: npt.NDArray[np.int64] = np.cumsum(items.is_part) - items.is_part
    action = np.where(items.is_part, np.where(items.is_owner, OWNER, PART) | place << PLACE_SHIFT, 0)
    stage = np.where(items.steps > 0, items.first, null_stage)[item] + step
    return int_records(stage=stage, token=items.token[item], tile=items.tile[item], flags=action[item] | ends)


def _arguments(plan: KernelPlan, start: IntArray) -> npt.NDArray[np.void]:
    """Return one `MMA_ARGS` record, complete except for addresses and row strides."""
    args = np.zeros(1, MMA_ARGS)
    together = _LANE_BYTES // DTYPE_BYTES[plan.dtype]
    args["tokens"] = -(-plan.n // together) * together
    if start.size <= MOST_BLOCKS_IN_ARGS + 1:
        args["blocks_in_args"] = 1
        args["first"][0, : start.size] = start
    write_grid(plan, args)
    return args
