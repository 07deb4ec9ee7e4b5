"""Copies of B and C where rows do not begin at multiples of 16 bytes, as the tile kernels need them.

The operator copies B to padded rows before the launch and C back after it (`kernels/cuda/arrays.py`), so that
three launches stand one behind the other.
"""

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import DTYPE_BYTES, KernelPlan

__all__ = ["padded_copy_seconds"]

COPIES = 2
ROW_BYTES = 16
"""What rows begin at multiples of."""


def padded_copy_seconds(plan: KernelPlan, gpu: GpuSpec) -> float:
    """What the two copies take, launches included; 0 where rows are aligned or the kernel takes any.

    A copy reads and writes memory once, one after the other, with nothing to overlap. On an H200 products of
    1 token took 4.6 to 5.2 us more than those of 16 (3072 x 768, own measurement, 2026-11-21); launches and
    copies come to 5.4, of which 0.3 are what blocks that few have done before the launch before ends.
    """
    row_bytes = plan.n * DTYPE_BYTES[plan.dtype]
    any_rows = plan.kernel == "small-n" or (plan.kernel == "balanced" and plan.n == 1)
    if not plan.overlaps or any_rows or row_bytes % ROW_BYTES == 0:
        return 0.0
    way_s = (gpu.dram_latency_cycles + gpu.store_latency_cycles) / gpu.max_clock_hz
    moved = 2 * (plan.m + plan.k) * -(-row_bytes // ROW_BYTES) * ROW_BYTES
    return COPIES * (gpu.graph_launch_s + way_s) + moved / gpu.dram_copy_bytes_per_s
