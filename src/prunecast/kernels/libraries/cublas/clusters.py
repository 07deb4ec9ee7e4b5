"""Which blocks of the vendor's dense kernel on sm_90 share a read of L2.

Kernels captured on an H200 (cuBLAS 13.1, 133 products, 2026-11-21) say so by their names and launches: pairs
where 121 tiles or more want an SM each, `128x128_64x6_2x1`; clusters of four, or of eight in both directions,
where fewer do, `64x48_64x15_2x4`.

Blocks of a pair and of the pair beside it work in step, and L2 serves what both ask for together: 2048 x 2048
with 256 tokens in tiles of 64 x 64 would read 15 TB/s by pairs alone, and clocks of all large products go
with 0.7 of such reads. So a pair is taken as four blocks that share.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec

__all__ = ["Sharing", "in_large_clusters", "one_line_cycles", "sharing_blocks"]

FloatArray = npt.NDArray[np.float64]

MOST_TILES_IN_LARGE_CLUSTERS = 120
LONGER_SIDE, SHORTER_SIDE = 4, 2
"""Blocks of a cluster of eight that share one read of the longer and of the shorter side of their tiles."""
PAIRS, LONG_TILE = 2, 2.0
"""Two pairs side by side share both sides, or all four the longer one where it is over twice the shorter. Of
two token ranges no pair stands beside the other, and it shares the longer side: 4096 x 4096 with 136 and 200
tokens in 64 x 72 and 64 x 104 reads 8.6 TB/s if pairs share tokens alone, the rate of L2; four that shared
would read 5.8 and 6.3 (H200, 2026-11-22)."""
FEW_TOKENS = 64
"""An odd number of token ranges does not fill fours and eights in both directions: clusters are four along
the rows (`_1x4`, 1,347 of 1,785 names of 64 to 1024 tokens, H200, 2026-11-22). Up to 64 tokens neither this
nor which side two token ranges share is modelled: the choice of what is cut there comes out wrong with it."""


class Sharing(NamedTuple):
    """Blocks that share a read, one entry for each form: 1, 2 or 4."""

    weights: FloatArray
    """Of rows of A: neighbours along the tokens."""
    tokens: FloatArray
    """Of columns of B: neighbours along the rows."""


def in_large_clusters(
    block_m: FloatArray, block_n: FloatArray, m: int, n: int, parts: FloatArray | float = 1.0
) -> npt.NDArray[np.bool_]:
    """Whether tiles, or their parts along K, are so few that the library takes clusters of four and eight."""
    return np.asarray(np.ceil(m / block_m) * np.ceil(n / block_n) * parts <= MOST_TILES_IN_LARGE_CLUSTERS)


def sharing_blocks(
    block_m: FloatArray, block_n: FloatArray, m: int, n: int, parts: FloatArray | float = 1.0
) -> Sharing:
    """Clusters of tiles of these sizes, no wider than there are neighbours.

    parts : into which K is cut, one entry for each form
    """
    large = in_large_clusters(block_m, block_n, m, n, parts)
    long = np.maximum(block_m, block_n) > LONG_TILE * np.minimum(block_m, block_n)
    longer = np.where(large | long, LONGER_SIDE, PAIRS)
    shorter = np.where(large, SHORTER_SIDE, np.where(long, 1, PAIRS))
    along_rows, along_tokens = np.ceil(m / block_m), np.ceil(n / block_n)
    alone = np.where(large & (np.minimum(along_rows, along_tokens) == 1), LONGER_SIDE, 1)
    weights = np.where(block_m > block_n, longer, shorter)
    tokens = np.where(block_m > block_n, shorter, longer)
    two = ~large & (along_tokens == PAIRS)
    weights = np.where(two & (n <= FEW_TOKENS), 1, weights)
    two = two & (n > FEW_TOKENS)
    weights = np.where(two, np.where(block_m < block_n, 1, PAIRS), weights)
    tokens = np.where(two, np.where(block_m < block_n, PAIRS, 1), tokens)
    odd = large & (along_tokens % PAIRS == 1) & (along_tokens > 1) & (n > FEW_TOKENS)
    weights, tokens = np.where(odd, 1, weights), np.where(odd, LONGER_SIDE, tokens)
    return Sharing(
        _power_of_two(np.minimum(np.maximum(weights, alone), along_tokens)),
        _power_of_two(np.minimum(np.maximum(tokens, alone), along_rows)),
    )


def _power_of_two(most: FloatArray) -> FloatArray:
    return np.asarray(np.exp2(np.floor(np.log2(most))))


def one_line_cycles(block_m: FloatArray, block_n: FloatArray, m: int, n: int, gpu: GpuSpec) -> FloatArray:
    """Cycles of a k-step of one token, whose 64 elements of B are one line that all clusters ask L2 for."""
    if n > 1:
        return np.zeros(np.shape(block_m))
    cluster = np.where(in_large_clusters(block_m, block_n, m, n), LONGER_SIDE, PAIRS)
    return np.asarray(gpu.l2_line_cycles * np.ceil(m / block_m) / cluster)
