"""Rows of C that no tile computes: a second launch, `kernels/cuda/fill_rows.cu`, writes zeros there.

Patterns that prune whole rows have them (`tile-wise-2d`, `atp-2d`, dense blocks). The launch begins when the
tiles' has ended and ends before the next one's begins: neither overlaps with it.
"""

from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

__all__ = ["zero_row_count", "zero_row_seconds"]

ROW_PADDING = 8
"""Rows of C are written in whole vectors of so many elements."""


def zero_row_count(plan: KernelPlan) -> int:
    """Rows of C that lie in no tile and that the kernel does not write itself."""
    if plan.kernel == "small-n":
        return 0
    return plan.m - int(plan.tiles.row_index.size)


def zero_row_seconds(plan: KernelPlan, gpu: GpuSpec) -> float:
    """What the second launch takes besides its launch; 0 where every row lies in a tile.

    One block a row reads which row it is and writes it. Blocks start one after the other, one in about a
    cycle (`block_interval_s`). Or the stores take longer: as fast as DRAM takes what leaves L2 for them, or
    as SMs hand them over, and a block's start and way out.
    """
    rows = zero_row_count(plan)
    if rows == 0:
        return 0.0
    row_bytes = -(-plan.n // ROW_PADDING) * ROW_PADDING * DTYPE_BYTES[plan.dtype]
    rows_per_sm = -(-rows // gpu.sm_count)
    from_sm_s = rows_per_sm * row_bytes / gpu.store_bytes_per_clk_per_sm / gpu.max_clock_hz
    edges_s = (gpu.block_start_cycles + gpu.store_latency_cycles) / gpu.max_clock_hz
    stored_s = edges_s + max(from_sm_s, rows * row_bytes / gpu.dram_bytes_per_s)
    return max(stored_s, rows * gpu.block_interval_s)
