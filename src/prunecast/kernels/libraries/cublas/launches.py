"""Launches of cuBLAS: multicast among CTAs of its sm_90 kernels, and additional kernels of a product.

The additional kernels are one that adds the partial sums of split-K, and a fill that clears a counter.

Names and launches of kernels that were captured on an H200 (cuBLAS 13.1, 133 products, 2026-11-21) show the
clusters with multicast. With more than 120 CTAs clusters are pairs (`128x128_64x6_2x1`); with fewer they have
four CTAs, or eight in both directions (`64x48_64x15_2x4`). The CTAs of two neighbouring pairs run in step,
and L2 merges their requests for the same data. Two observations show this: if only pairs shared reads, 2048 x
2048 with 256 tokens in tiles of 64 x 64 would read 15 TB/s; and the clocks of all large products correspond
to 0.7 of the reads of such pairs. Therefore a pair is modelled as four CTAs that share reads.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.spec import GpuSpec

FloatArray = npt.NDArray[np.float64]


@cache
def cublas_costs(compute_capability: int) -> Costs:
    """Return the fitted and measured costs of cuBLAS's kernels, from `costs/sm_*.toml`."""
    return load_costs(__package__, compute_capability)


def reduction_seconds(m: int, n: int, slices: FloatArray | int, gpu: GpuSpec) -> FloatArray:
    """Return the seconds of the kernel that adds the fp32 partial sums of split-K slices; 0 for one slice.

    The time is the sum of a launch, the start of a CTA, two reads of L2 (the CTA's position and its sums),
    the latency of the stores, and the traffic of the sums. On sm_90, the start and one read are added for
    each further CTA on an SM, and the launch overlaps the end of the product: the kernels are connected by a
    programmatic edge in captured graphs (cuBLAS 13.1).

    Parameters
    ----------
    slices : number of split-K slices, or an array of them; the result has the same shape
    """
    costs = cublas_costs(gpu.compute_capability)
    launch_s = costs["reduction_launch_s"] if gpu.has_wgmma else gpu.graph_launch_s
    cycles = gpu.block_start_cycles + 2 * gpu.l2_latency_cycles + gpu.store_latency_cycles
    if gpu.has_wgmma:
        ctas = -(-m // costs.whole("reduction_tile_rows")) * -(-n // costs.whole("reduction_tile_tokens"))
        rounds = min(ctas, costs.whole("reduction_most_ctas")) / gpu.sm_count
        cycles += round(rounds * (gpu.block_start_cycles + gpu.l2_latency_cycles))
    start_s = launch_s + cycles / gpu.max_clock_hz
    slice_s = MemoryPass(l2_bytes=4.0 * m * n).seconds(gpu)
    return np.where(np.asarray(slices) > 1, start_s + np.asarray(slices, np.float64) * slice_s, 0.0)


MOST_CTAS_IN_LARGE_CLUSTERS = 120
"""Maximum number of CTAs with clusters of four and eight; above it clusters have two. Kind: choice, cuBLAS
13.1: names and grids of 133 products on an H200, 2026-11-21."""
LONGER_SIDE, SHORTER_SIDE = 4, 2
"""CTAs of a cluster of eight that share one read of the longer and of the shorter side of their tiles. Kind:
definition, names of kernels that end in `_2x4` and `_4x2`."""
PAIR = 2
"""CTAs of a pair. Two neighbouring pairs share both sides, or all four CTAs share the longer side if it
exceeds `long_tile_ratio` times the shorter. With two token ranges no pairs are neighbours, and a pair shares
the longer side: 4096 x 4096 with 136 and 200 tokens in 64 x 72 and 64 x 104 would read 8.6 TB/s, the rate of
L2, if pairs shared only tokens, and 5.8 and 6.3 if four CTAs shared reads (H200, 2026-11-22). Kind:
definition, names of kernels that end in `_2x1`."""
HOPPER = 90
"""Compute capability whose kernels run in clusters. Kind: definition, CUDA C++ Programming Guide."""


class SharedReads(NamedTuple):
    """Number of CTAs that share one read, 1, 2 or 4: arrays (configs,), or integers of a single config."""

    weights: Any
    """Number of CTAs of a cluster that share one read of rows of A: neighbours along the tokens."""
    tokens: Any
    """Number of CTAs of a cluster that share one read of columns of B: neighbours along the rows."""


def multicast(
    block_m: FloatArray, block_n: FloatArray, m: int, n: int, slices: FloatArray | float = 1.0
) -> SharedReads:
    """Return the number of CTAs that share one read of A and of B, for tiles of these sizes.

    The number of CTAs that are neighbours limits both results. With an odd number of token ranges, large
    clusters cannot be filled in both directions, so they have four CTAs along the rows (`_1x4`). This rule,
    and the rule for products with two token ranges, are not applied up to `clusters_few_tokens` tokens,
    because the modelled choice of split-K would become wrong.

    Parameters
    ----------
    block_m, block_n : (configs,) rows and tokens of the tiles
    m, n : rows and tokens of the product
    slices : number of split-K slices of each config
    """
    along_rows, along_tokens = np.ceil(m / block_m), np.ceil(n / block_n)
    large = along_rows * along_tokens * slices <= MOST_CTAS_IN_LARGE_CLUSTERS
    costs = cublas_costs(HOPPER)
    long = np.maximum(block_m, block_n) > costs["long_tile_ratio"] * np.minimum(block_m, block_n)
    longer = np.where(large | long, LONGER_SIDE, PAIR)
    shorter = np.where(large, SHORTER_SIDE, np.where(long, 1, PAIR))
    alone = np.where(large & (np.minimum(along_rows, along_tokens) == 1), LONGER_SIDE, 1)
    wide = block_m > block_n
    weights, tokens = np.where(wide, longer, shorter), np.where(wide, shorter, longer)
    two = ~large & (along_tokens == PAIR)
    if n <= costs["clusters_few_tokens"]:
        weights = np.where(two, 1, weights)
    else:
        by_tokens = block_m < block_n
        weights = np.where(two, np.where(by_tokens, 1, PAIR), weights)
        tokens = np.where(two, np.where(by_tokens, PAIR, 1), tokens)
        odd = large & (along_tokens % PAIR == 1) & (along_tokens > 1)
        weights, tokens = np.where(odd, 1, weights), np.where(odd, LONGER_SIDE, tokens)
    return SharedReads(
        _power_of_two(np.minimum(np.maximum(weights, alone), along_tokens)),
        _power_of_two(np.minimum(np.maximum(tokens, alone), along_rows)),
    )


def _power_of_two(most: FloatArray) -> FloatArray:
    return np.asarray(np.where(most >= LONGER_SIDE, LONGER_SIDE, np.where(most >= PAIR, PAIR, 1)), np.float64)
