"""How long the last stores of a block are on their way."""

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import DTYPE_BYTES, KernelPlan

__all__ = ["store_latency_cycles"]

MEASURED_BYTES = 64 * 1024
"""That one SM had stored when `store_latency_cycles` of a GPU was measured (H200, 2026-11-20)."""


def store_latency_cycles(plan: KernelPlan, gpu: GpuSpec) -> int:
    """From a block's last store until it is done, beyond what hands it to L2.

    L2 takes whole tiles of C more slowly than an SM hands them over. A few bytes are answered as a read of L2
    is, and what a block stores adds to that in proportion. Launches of few tokens that start early show it:
    they end 400 ns sooner than those of the tile kernels (0008). So do those of the 2:4 kernel, whose warps
    store C themselves (0004); where the copy engine does, a block waits until it has read all of it.
    """
    if not plan.starts_early and plan.tensor != "sparse-wgmma":
        return gpu.store_latency_cycles
    tile = min(plan.shape.block_m, plan.m) * min(plan.shape.block_n, plan.n) * DTYPE_BYTES[plan.dtype]
    beyond = gpu.store_latency_cycles - gpu.l2_latency_cycles
    return gpu.l2_latency_cycles + max(round(beyond * min(tile / MEASURED_BYTES, 1.0)), 0)
