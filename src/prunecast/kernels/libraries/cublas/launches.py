"""Kernels that cuBLAS launches beside a product: a split-K reduction, a fill that clears a counter."""

from functools import cache

import numpy as np
import numpy.typing as npt

from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import LaunchTraits
from prunecast.plan.kernel_plan import KernelPlan

FloatArray = npt.NDArray[np.float64]


@cache
def cublas_costs(compute_capability: int) -> Costs:
    """Fitted and measured numbers of the library's kernels, `costs/sm_*.toml`."""
    return load_costs(__package__, compute_capability)


def reduction_seconds(m: int, n: int, slices: FloatArray | int, gpu: GpuSpec) -> FloatArray:
    """Time of the kernel that adds up the fp32 sums of split-K slices; 0 without split-K.

    A launch, a CTA's start, a read of L2 for its place and one for its sums, the stores' way out, and the
    traffic of the sums. On sm_90 also the start and the read of the CTAs that an SM takes besides; there the
    launch begins while the product ends: its edge in captured graphs is a programmatic one (cuBLAS 13.1).
    """
    costs = cublas_costs(gpu.compute_capability)
    launch_s = costs["reduction_launch_s"] if gpu.has_wgmma else gpu.graph_launch_s
    cycles = gpu.block_start_cycles + 2 * gpu.l2_latency_cycles + gpu.store_latency_cycles
    if gpu.has_wgmma:
        ctas = -(-m // costs.whole("reduction_tile_rows")) * -(-n // costs.whole("reduction_tile_tokens"))
        rounds = min(ctas, costs.whole("reduction_most_ctas")) / gpu.sm_count
        cycles += round(rounds * (gpu.block_start_cycles + gpu.l2_latency_cycles))
    sums_s = 4.0 * m * n * np.asarray(slices, np.float64) / gpu.l2_bytes_per_s
    return np.where(np.asarray(slices) > 1, launch_s + cycles / gpu.max_clock_hz + sums_s, 0.0)


def counter_seconds(tiles: float, gpu: GpuSpec) -> float:
    """Launch that clears the counter from which CTAs draw tiles, where they do not follow from its number."""
    most = cublas_costs(gpu.compute_capability)["counter_tiles_per_sm"] * gpu.sm_count
    return gpu.graph_launch_s if gpu.has_wgmma and tiles > most else 0.0


def dense_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """A split-K reduction, and a fill that clears the tile counter."""
    slices = int(plan.work.parts.max(initial=1))
    sums_s = float(reduction_seconds(plan.m, plan.n, slices, gpu))
    return LaunchTraits(other_launches_s=sums_s + counter_seconds(plan.item_count, gpu))
