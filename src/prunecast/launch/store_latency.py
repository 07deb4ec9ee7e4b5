"""How long the last stores of a block are on their way."""

from prunecast.launch.context import LaunchContext
from prunecast.plan.kernel_plan import DTYPE_BYTES

__all__ = ["next_block_cycles", "store_latency_cycles"]

MEASURED_BYTES = 64 * 1024
"""That one SM had stored when `store_latency_cycles` of a GPU was measured (H200, 2026-11-20)."""


NEXT_BLOCK_CYCLES = 600
"""Of a later block of the tile kernel, besides its start and what the port takes to store. Clock stamps
(`gpu_trace --waves`, H200, 2026-11-22): from a block's last product until the next one on its SM may read B
3,900 to 4,400 cycles (32 KB of C) and 5,400 to 5,600 (64 KB), of which start and port are 3,400 and 5,150 to
5,470. The next block begins 360 to 430 cycles after the last one's end."""


def store_latency_cycles(context: LaunchContext) -> int:
    """From a block's last store until it is done, beyond what hands it to L2.

    L2 takes whole tiles of C more slowly than an SM hands them over. A few bytes are answered as a read of L2
    is, and what a block stores adds to that in proportion. Launches of few tokens that start early show it:
    they end 400 ns sooner than those of the tile kernels (0008). So do those of the 2:4 kernel, whose warps
    store C themselves (0004); where the copy engine does, a block waits until it has read all of it.
    """
    plan, gpu = context.plan, context.gpu
    if not context.co_resident and plan.tensor != "sparse-wgmma":
        return gpu.store_latency_cycles
    tile = min(plan.shape.block_m, plan.m) * min(plan.shape.block_n, plan.n) * DTYPE_BYTES[plan.dtype]
    beyond = gpu.store_latency_cycles - gpu.l2_latency_cycles
    return gpu.l2_latency_cycles + max(round(beyond * min(tile / MEASURED_BYTES, 1.0)), 0)


def next_block_cycles(context: LaunchContext) -> int:
    """From a block's last store until the next one finds room: it ends when the copy engine has read what it
    stores, and does not wait for L2.
    """
    latency = store_latency_cycles(context)
    return min(latency, NEXT_BLOCK_CYCLES) if context.plan.tensor == "wgmma" else latency
