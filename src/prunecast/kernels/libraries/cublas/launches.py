"""Launches that the vendor's dense library adds to a product: of parts that are added up, of a counter.

Seen in captured graphs (cuBLAS 13.1, H200, 2026-11-21).
"""

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launch_traits import LaunchTraits
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["counter_seconds", "dense_traits", "reduction_seconds"]

FloatArray = npt.NDArray[np.float64]

SECOND_LAUNCH_S = 0.7e-6
"""Fitted to own H200 records. Of the kernel that adds parts up, which follows by a programmatic edge; it
starts when the first one ends, not while blocks of it still work, as own kernels do."""
SUMMED_ROWS, SUMMED_TOKENS, MOST_SUMMING_BLOCKS = 16, 32, 768
"""That a block of that kernel adds up, and the most blocks seen. It takes 750 cycles for each block that an
SM gets, over 43 products that are cut (own measurement, H200, 2026-11-21): the blocks follow one another."""
TILES_WITHOUT_COUNTER = 2
"""Of an SM, see `counter_seconds`."""


def reduction_seconds(m: int, n: int, parts: int, gpu: GpuSpec) -> float:
    """What a second kernel costs that adds up the fp32 sums of so many parts; 0 where there is but one.

    A launch, a block's start, a read of L2 for its place and one for its sums, the stores' way out, and the
    traffic of the sums. On sm_90 also the start and the read of the blocks that an SM takes besides; there
    the launch begins while the first kernel ends: its edge in captured graphs is a programmatic one (H200,
    cuBLAS 13.1).
    """
    if parts == 1:
        return 0.0
    launch_s = SECOND_LAUNCH_S if gpu.has_wgmma else gpu.graph_launch_s
    cycles = gpu.block_start_cycles + 2 * gpu.l2_latency_cycles + gpu.store_latency_cycles
    if gpu.has_wgmma:
        cycles += round(
            _summing_blocks(m, n) / gpu.sm_count * (gpu.block_start_cycles + gpu.l2_latency_cycles)
        )
    return launch_s + cycles / gpu.max_clock_hz + 4.0 * m * n * parts / gpu.l2_bytes_per_s


def _summing_blocks(m: int, n: int) -> int:
    """Blocks of the kernel that adds parts up, 16 rows and 32 tokens each: grids in captured graphs."""
    return min(-(-m // SUMMED_ROWS) * -(-n // SUMMED_TOKENS), MOST_SUMMING_BLOCKS)


def counter_seconds(tiles: FloatArray, gpu: GpuSpec) -> FloatArray:
    """What it costs to set the counter to zero from which blocks of so many tiles take the next one.

    A launch of its own before the kernel's, seen in captured graphs (H200, cuBLAS 13.1) where there are more
    than two tiles for an SM; up to two follow from a block's number.
    """
    counted = gpu.has_wgmma & (tiles > TILES_WITHOUT_COUNTER * gpu.sm_count)
    return np.asarray(np.where(counted, gpu.graph_launch_s, 0.0))


def dense_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """A split-K reduction of its own, and a counter that is set to zero."""
    splits = int(plan.work.parts.max(initial=1))
    counter_s = float(counter_seconds(np.array(float(plan.item_count)), gpu))
    return LaunchTraits(other_launches_s=reduction_seconds(plan.m, plan.n, splits, gpu) + counter_s)
