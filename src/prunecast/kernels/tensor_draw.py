"""How much power a plan's tensor work draws: rows of zeros toggle less than rows of weights."""

import numpy as np

from prunecast.kernels.plan import KernelPlan

__all__ = ["tensor_draw"]

ZERO_ROWS_DRAW = 0.4
"""Of rows of A that are zeros, which a block multiplies where its tile has fewer rows than its form: B still
moves through the tensor cores, and all sums stay zero. Fitted to clocks (H200, 7 products of 2026-11-21 that
were marked fit: tiles of 32 rows on a form of 64 ran at 1673 and 1711 MHz where full rows of the same work
are taken to run at 1565 and 1595). With zeros in both operands the clock does not fall with duty at all."""


def tensor_draw(plan: KernelPlan) -> float:
    """Power over that of as much tensor work on weights alone, at most 1."""
    rows = np.diff(plan.tiles.row_start)
    multiplied = -(-rows // plan.shape.block_m) * plan.shape.block_m
    if not multiplied.any():
        return 1.0
    zeros = 1.0 - float(rows.sum()) / float(multiplied.sum())
    return 1.0 - (1.0 - ZERO_ROWS_DRAW) * zeros
