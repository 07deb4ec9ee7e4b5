"""How much power a plan's work draws beside the same work of a kernel of its own: what the clock follows."""

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["OUT_OF_STEP", "gathered_draw", "l2_draw", "tensor_draw"]

OUT_OF_STEP = 4
"""Power of the density with which random columns fall out of step; 3 to 6 say the same."""


def tensor_draw(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Power over that of as much tensor work on dense weights alone."""
    draw = gpu.clock_sparse_duty if plan.tensor.startswith("sparse") else 1.0
    rows = np.diff(plan.tiles.row_start)
    multiplied = -(-rows // plan.shape.block_m) * plan.shape.block_m
    if not multiplied.any():
        return draw
    zeros = 1.0 - float(rows.sum()) / float(multiplied.sum())
    return draw * (1.0 - (1.0 - gpu.clock_zero_rows_duty) * zeros)


def l2_draw(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Power over that of as many bytes through L2 that each block reads at another time, at most 1.

    Kernels that read boxes say themselves who shares a read.
    """
    return 1.0 if plan.b_access == "dense_tile" else gathered_draw(plan.tiles.kept_per_tile, plan.k, gpu)


def gathered_draw(kept: npt.NDArray[np.integer], k: int, gpu: GpuSpec) -> float:
    """The same of tiles (tiles,) that keep so many of K columns each, as if they had been drawn."""
    density = kept / k
    columns = float(density.sum())
    if columns == 0.0:
        return 1.0
    in_step = float(density @ density**OUT_OF_STEP) / columns
    return 1.0 - (1.0 - gpu.clock_in_step_l2) * in_step
