"""Launches of cuBLAS: CTAs of its kernels for sm_90 that share a read of L2, and kernels beside a product.

A second kernel adds up split-K sums, a fill clears a counter. Of the product itself, kernels captured on an
H200 (cuBLAS 13.1, 133 products, 2026-11-21) say how they share, clusters with multicast, by their names and
launches: pairs where more than 120 CTAs want an SM each, `128x128_64x6_2x1`; clusters of four, or of eight in
both directions, where fewer do, `64x48_64x15_2x4`. CTAs of a pair and of the pair beside it work in step, and
L2 serves what both ask for together: 2048 x 2048 with 256 tokens in tiles of 64 x 64 would read 15 TB/s by
pairs alone, and clocks of all large products go with 0.7 of such reads. So a pair is taken as four CTAs that
share.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.memory_pass import MemoryPass
from prunecast.hardware.spec import GpuSpec

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
    start_s = launch_s + cycles / gpu.max_clock_hz
    slice_s = MemoryPass(l2_bytes=4.0 * m * n).seconds(gpu)
    return np.where(np.asarray(slices) > 1, start_s + np.asarray(slices, np.float64) * slice_s, 0.0)


MOST_CTAS_IN_LARGE_CLUSTERS = 120
"""CTAs up to which clusters are of four and eight, beyond which of two. Kind: choice, cuBLAS 13.1: names and
grids of 133 products on an H200, 2026-11-21."""
LONGER_SIDE, SHORTER_SIDE = 4, 2
"""CTAs of a cluster of eight that share one read of the longer and of the shorter side of their tiles. Kind:
definition, names of kernels that end in `_2x4` and `_4x2`."""
PAIR = 2
"""CTAs of a pair. Two pairs side by side share both sides, or all four the longer one where it is over
`long_tile_ratio` times the shorter. Of two token ranges no pair stands beside the other, and it shares the
longer side: 4096 x 4096 with 136 and 200 tokens in 64 x 72 and 64 x 104 reads 8.6 TB/s if pairs share tokens
alone, the rate of L2; four that shared would read 5.8 and 6.3 (H200, 2026-11-22). Kind: definition, names of
kernels that end in `_2x1`."""
HOPPER = 90
"""Compute capability whose kernels run in clusters. Kind: definition, CUDA C++ Programming Guide."""


class _Multicast(NamedTuple):
    """CTAs that share one read, one entry for each config: 1, 2 or 4."""

    weights: FloatArray
    """Blocks of a cluster that share rows of A: neighbours along the tokens."""
    tokens: FloatArray
    """Blocks of a cluster that share columns of B: neighbours along the rows."""


def multicast(
    block_m: FloatArray, block_n: FloatArray, m: int, n: int, slices: FloatArray | float = 1.0
) -> _Multicast:
    """Sharing of tiles of these sizes, no wider than there are neighbours.

    An odd number of token ranges does not fill fours and eights in both directions: clusters are four along
    the rows (`_1x4`). Up to `clusters_few_tokens` neither this nor which side two token ranges share is
    modelled: the choice of what is split comes out wrong with it.

    slices : of split-K, one entry for each config
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
    return _Multicast(
        _power_of_two(np.minimum(np.maximum(weights, alone), along_tokens)),
        _power_of_two(np.minimum(np.maximum(tokens, alone), along_rows)),
    )


def _power_of_two(most: FloatArray) -> FloatArray:
    return np.asarray(np.where(most >= LONGER_SIDE, LONGER_SIDE, np.where(most >= PAIR, PAIR, 1)), np.float64)
