"""Which row of what DRAM holds each kept column reads: B itself, or the input of a convolution."""

import numpy as np

from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.program import Op

__all__ = ["pixels_per_output", "rows_of_source"]


def pixels_per_output(plan: KernelPlan) -> int:
    """Input pixels of a channel for each output pixel of a convolution, rounded, at least 1."""
    return 1 if plan.source is None else max(round(plan.source.source_ratio), 1)


def rows_of_source(plan: KernelPlan, block_k: int) -> IntArray:
    """(kept columns of all tiles,) int32: the row that each kept column reads, as the engine counts segments.

    Of a convolution, all rows of B with one channel read the same bytes. With p input pixels for each output
    pixel a channel counts as p rows, of which a panel has p times as many. Boxes follow each other channel
    by channel, and as many of them as a filter has elements in a channel bring p boxes from DRAM.
    """
    columns = plan.tiles.column_index
    if plan.source is None:
        return columns
    pixels, taps = pixels_per_output(plan), plan.source.taps
    if any(ins.op is Op.COPY_B for program in plan.programs for ins in program.step):
        return (columns // block_k * pixels // taps * block_k).astype(np.int32)
    return (columns // taps * pixels).astype(np.int32)
