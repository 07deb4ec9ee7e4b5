"""A plan of the wgmma tile kernel as bytes: weights, work records, the launch argument."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.kernels.device.conv_input import reading_input, write_grid
from prunecast.kernels.device.packed import Packed, to_bits, uncovered_rows
from prunecast.kernels.device.tile_stages import PackedStages
from prunecast.kernels.tile.cuda.arguments import TILE_ARGS
from prunecast.kernels.tile.cuda.pack import pack_weights
from prunecast.kernels.tile.cuda.work_image import WorkImage, work_image
from prunecast.plan.kernel_plan import KernelPlan

_COUNTERS_PER_GROUP = 16
"""Words of a counter: a line of its own for each tile, of which the first word counts. Kind: CUDA source,
`tile_sums.cuh`."""


def pack_plan(plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
    """A plan with its weights (M, K).

    Raises
    ------
    BadInput : as `pack_weights` and `work_image`
    """
    packed = reading_input(plan, pack_weights(plan.tiles, to_bits(weights, plan.dtype), plan.shape.block_m))
    work = work_image(plan)
    tile_floats = plan.shape.block_m * plan.shape.block_n
    return Packed(
        arrays={
            "weights": packed.weights,
            "columns": packed.columns,
            "items": work.items,
            "splits": work.splits,
            "rows": packed.rows,
        },
        args=list_args(plan, TILE_ARGS, packed, work),
        blocks=plan.blocks if plan.item_count else 0,
        workspace={
            "partials": (max(work.slots, 1) * tile_floats, "f4"),
            "counters": (max(work.groups, 1) * _COUNTERS_PER_GROUP, "u4"),
        },
        unwritten=uncovered_rows(plan.tiles),
    )


def list_args(
    plan: KernelPlan, dtype: np.dtype[np.void], packed: PackedStages, work: WorkImage
) -> npt.NDArray[np.void]:
    """The argument of a kernel that walks lists of items, complete but for addresses and row bytes."""
    args = np.zeros(1, dtype)
    args["tokens"], args["null_stage"] = -(-plan.n // 8) * 8, packed.null_stage
    work.into(args)
    write_grid(plan, args)
    return args
