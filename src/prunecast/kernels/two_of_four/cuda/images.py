"""A plan of the sparse wgmma kernel as bytes: 2:4 weights, work records, the launch argument."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.packed import Packed
from prunecast.kernels.device.weights import to_bits, uncovered_rows
from prunecast.kernels.tile.cuda.images import list_args
from prunecast.kernels.tile.cuda.work_image import work_image
from prunecast.kernels.two_of_four.cuda.arguments import SPARSE_ARGS
from prunecast.kernels.two_of_four.cuda.pack import pack_sparse
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["pack_plan"]


def pack_plan(plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
    """A plan with its weights (M, K).

    Raises
    ------
    BadInput : the plan has no elements; else as `pack_sparse` and `work_image`
    """
    if plan.inner is None:
        raise BadInput("the sparse kernel needs a plan with elements")
    packed = pack_sparse(plan.tiles, plan.inner, to_bits(weights, plan.dtype), plan.shape.block_m)
    work = work_image(plan)
    return Packed(
        arrays={
            "weights": packed.weights,
            "columns": packed.columns,
            "items": work.items,
            "rows": packed.rows,
        },
        args=list_args(plan, SPARSE_ARGS, packed, work),
        blocks=plan.blocks if plan.item_count else 0,
        unwritten=uncovered_rows(plan.tiles),
    )
