"""What stores of C cost beside their bytes: their way to L2, and room that reads of the next launch need."""

import numpy as np

from prunecast.kernels.table import KERNELS
from prunecast.launch.context import LaunchContext
from prunecast.plan.kernel_plan import DTYPE_BYTES

MEASURED_BYTES = 64 * 1024
"""Bytes that one SM had stored when `store_latency_cycles` of a GPU was measured (H200)."""
COPY_ENGINE_CYCLES = 600
"""Cycles from the last store of a block whose C the copy engine (TMA) stores until its slot takes another.
Clock stamps: from a block's last product to the next one's first B 3,900 to 4,400 cycles (32 KB of C) and
5,400 to 5,600 (64 KB), of which start and port are 3,400 and 5,150 to 5,470 (H200)."""


def store_latency_cycles(context: LaunchContext) -> int:
    """Cycles from a block's last store until L2 has it: a read's latency, and more with the bytes stored.

    The copy engine of the tile kernels waits as long as was measured, until it has read the whole tile of C.
    Warps of co-resident launches and of 2:4 store for themselves. Worth 3.6 points on
    small-n.
    """
    plan, gpu = context.plan, context.gpu
    if not context.co_resident and plan.tensor != "sparse-wgmma":
        return gpu.store_latency_cycles
    tile = min(plan.shape.block_m, plan.m) * min(plan.shape.block_n, plan.n) * DTYPE_BYTES[plan.dtype]
    beyond = gpu.store_latency_cycles - gpu.l2_latency_cycles
    return gpu.l2_latency_cycles + max(round(beyond * min(tile / MEASURED_BYTES, 1.0)), 0)


def slot_release_cycles(context: LaunchContext) -> int:
    """Cycles from a block's last store until the next block takes its slot. Worth 0.3 points on tile-wise."""
    latency = store_latency_cycles(context)
    return min(latency, COPY_ENGINE_CYCLES) if context.plan.tensor == "wgmma" else latency


def write_back_share(context: LaunchContext) -> float:
    """Share of C in all that comes into L2, each byte of which evicts as much of the C of launches before.

    0 where launches neither gather under PDL nor fill L2 with one another's C. First stages come 1,060 cycles
    later for a MB of B (H200); V:N:M kernels with 8 MB of C and 4 MB else take 16.2 us where C after all else
    takes 21.3 (RTX 3090). Worth 0.3 points on dense and 0.4 on
    block-sparse in the simulator, which reads so; the closed form spreads reads over the launch.
    """
    plan = context.plan
    if context.co_resident or not (plan.pdl or KERNELS[plan.kernel].fills_l2):
        return 0.0
    tiles, element = plan.tiles, DTYPE_BYTES[plan.dtype]
    rows = tiles.rows_per_tile.astype(np.float64)
    c = float(rows.sum()) * plan.n * element
    a = float(rows @ tiles.kept_per_tile) * element * (0.5 if plan.inner is not None else 1.0)
    b = float(np.unique(tiles.column_index).size) * plan.n * element
    return c / (c + a + b) if c else 0.0
