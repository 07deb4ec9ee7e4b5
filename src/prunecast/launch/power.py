"""Power of a plan's work over that of the same work in a plain dense product: the SM clock follows it."""

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import KernelPlan

OUT_OF_STEP = 4
"""Power of the density with which tiles of random columns read L2 out of step; 3 to 6 say the same."""


def tensor_power(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Power of tensor work: more on sparse cores, less where tiles have fewer rows than a block multiplies.

    Worth 0.2 points on 2:4 and stspmm.
    """
    power = gpu.clock_sparse_duty if plan.tensor.startswith("sparse") else 1.0
    rows = np.diff(plan.tiles.row_start)
    multiplied = -(-rows // plan.shape.block_m) * plan.shape.block_m
    if not multiplied.any():
        return power
    zeros = 1.0 - float(rows.sum()) / float(multiplied.sum())
    return power * (1.0 - (1.0 - gpu.clock_zero_rows_duty) * zeros)


def l2_power(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Power of a byte through L2, below 1 where blocks read the same rows of B in step. Worth 0.2 points on
    stspmm.

    Kernels that read dense tiles of B say themselves who shares a read.
    """
    return 1.0 if plan.b_access == "dense_tile" else gathered_power(plan.tiles.kept_per_tile, plan.k, gpu)


def gathered_power(kept: npt.NDArray[np.integer], k: int, gpu: GpuSpec) -> float:
    """`l2_power` of tiles (tiles,) that keep so many of K columns each, as if they had been drawn."""
    density = kept / k
    columns = float(density.sum())
    if columns == 0.0:
        return 1.0
    in_step = float(density @ density**OUT_OF_STEP) / columns
    return 1.0 - (1.0 - gpu.clock_in_step_l2) * in_step
