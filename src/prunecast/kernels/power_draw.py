"""How much power a plan's work draws beside the same work of a kernel of its own: what the clock follows."""

import numpy as np
import numpy.typing as npt

from prunecast.kernels.plan import KernelPlan

__all__ = ["gathered_draw", "l2_draw", "tensor_draw"]

ZERO_ROWS_DRAW = 0.4
"""Of rows of A that are zeros, which a block multiplies where its tile has fewer rows than its form: B still
moves through the tensor cores, and all sums stay zero. Fitted to clocks (H200, 7 products of 2026-11-21 that
were marked fit: tiles of 32 rows on a form of 64 ran at 1673 and 1711 MHz where full rows of the same work
are taken to run at 1565 and 1595). With zeros in both operands the clock does not fall with duty at all."""
SPARSE_DRAW = 1.2
"""Of a cycle of the sparse tensor cores, which read twice as much of B as the dense ones and choose from it.
Fitted to clocks (H200): 39 products of 2:4 of 2026-11-21 that were marked fit ran 3 to 5 % slower from an
activity of 1 on, and as predicted below 0.8; 1.15 to 1.25 do as well."""
IN_STEP_DRAW = 0.7
"""Of a byte that neighbouring blocks read at the same time: L2 serves what they ask for together. Fitted to
clocks: maps that keep all columns need another rule than maps of random columns (H200, 2026-11-21, 16 and 190
products that were marked fit; 3.6 to 1.6 % with it)."""
OUT_OF_STEP = 4
"""Power of the density with which random columns fall out of step; 3 to 6 say the same."""


def tensor_draw(plan: KernelPlan) -> float:
    """Power over that of as much tensor work on dense weights alone."""
    return _rows_draw(plan) * (SPARSE_DRAW if plan.tensor.startswith("sparse") else 1.0)


def _rows_draw(plan: KernelPlan) -> float:
    """The same of tiles that do not fill their form, at most 1."""
    rows = np.diff(plan.tiles.row_start)
    multiplied = -(-rows // plan.shape.block_m) * plan.shape.block_m
    if not multiplied.any():
        return 1.0
    zeros = 1.0 - float(rows.sum()) / float(multiplied.sum())
    return 1.0 - (1.0 - ZERO_ROWS_DRAW) * zeros


def l2_draw(plan: KernelPlan) -> float:
    """Power over that of as many bytes through L2 that each block reads at another time, at most 1.

    Kernels that read boxes say themselves who shares a read.
    """
    return 1.0 if plan.k_order == "box" else gathered_draw(plan.tiles.kept_per_tile, plan.k)


def gathered_draw(kept: npt.NDArray[np.integer], k: int) -> float:
    """The same of tiles (tiles,) that keep so many of K columns each, as if they had been drawn."""
    columns = float(kept.sum())
    if columns == 0.0:
        return 1.0
    in_step = float((kept * (kept / k) ** OUT_OF_STEP).sum()) / columns
    return 1.0 - (1.0 - IN_STEP_DRAW) * in_step
