"""How the balanced kernel lays a pruned A out: what the planner counts and the packer fills.

Rows of A go in groups of 16, columns in windows. In a window of a group, columns that many rows keep are
*dense*: multiplied for all 16 rows, zeros included, from one read of B. What is left is the *rest*, equally
many elements for every row. `rest` trades reads of shared memory against arithmetic.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tile_map import IntArray

GROUP_ROWS = 16
"""Rows that share dense columns. Kind: CUDA source, `matrix.cu`."""
WARPS = 16
"""Warps of a block. Kind: CUDA source, `matrix.cu`."""
SUB_PARTITIONS = 4
"""Sub-partitions of an SM. Kind: datasheet, CUDA C++ Programming Guide, since compute capability 7.0."""
LANES = 32
"""Lanes of a warp. Kind: definition, CUDA."""
RESTS = (0, 2, 4, 6, 8, 10, 12, 16)
"""Elements of a row in a window that may lie outside the dense columns; an even number. Kind: choice,
what `choose_rest` tries."""
DENSE_CLOCKS = 13.2
"""Clocks of shared memory for a dense column of 16 rows and 64 tokens: 8 words of B, 4 values and half a
place for each lane, and 32 words a clock are handed out even where lanes ask for the same. Kind: choice, the
layout's rule is the same on every architecture (measured on an H200, 2026-11-20)."""
REST_CLOCKS = 9.5
"""Clocks of shared memory for four elements of the rest, one for each quarter: 8 words of B, a value, half a
place. Kind: choice, as `DENSE_CLOCKS`."""
_SAMPLE_GROUPS = 16
"""Groups of rows that `choose_rest` looks at. Kind: choice, more of them change nothing."""


class _DenseColumns(NamedTuple):
    """Dense columns of a window that a warp multiplies."""

    mean: float
    most: float
    """Largest count among the warps of a block, which wait for one another; mean over their steps."""


class _BusySplits(NamedTuple):
    """How many warps of a block multiply. Each split has as many windows as the first, which lie together, so
    that the last ones have fewer or none: of 40 windows 13 splits of 16 have three, and one has one.
    """

    share: float
    """Share of the block's warps that have work; mean over the steps."""
    crowded: float
    """Largest share in one sub-partition; warp w belongs to sub-partition w mod 4."""


class BalancedLayout(NamedTuple):
    """Layout of one matrix."""

    window: int
    """Columns of A."""
    rest: int
    """Elements of every row in every window outside the dense columns, padding included."""
    dense: IntArray
    """(groups of 16 rows, windows): dense columns."""

    @property
    def words(self) -> IntArray:
        """(groups, windows): words of 16 bytes of each record."""
        pairs = (self.dense + 1) // 2
        return (8 * pairs + 6 * self.rest + (pairs + 3) // 4).astype(np.int32)

    def dense_columns(self, splits: int) -> _DenseColumns:
        """What the warps of a block multiply of a step, each one window; they do two columns at a time."""
        groups, windows = self.dense.shape
        steps, in_block = -(-windows // splits), WARPS // splits
        padded = np.zeros((-(-groups // in_block) * in_block, steps * splits), np.int64)
        padded[:groups, :windows] = 2 * -(-self.dense // 2)
        of_warp = padded.reshape(-1, in_block, splits, steps)
        mean = of_warp.sum() / max(self.dense.size, 1)
        return _DenseColumns(float(mean), float(of_warp.max(axis=(1, 2)).mean()))

    def busy_splits(self, splits: int) -> _BusySplits:
        """Shares of a block's warps, and of its fullest sub-partition's, that have a window in a step."""
        windows = int(self.dense.shape[1])
        steps = max(-(-windows // splits), 1)
        whole, groups = windows // steps, WARPS // splits
        some, left = min(whole + 1, splits) * groups, windows % steps
        crowded = left * _fullest(some) + (steps - left) * _fullest(whole * groups)
        return _BusySplits(windows / (steps * splits), crowded / (steps * WARPS))


class VectorLayout(NamedTuple):
    """Layout for one token: segment s of the columns belongs to lane s mod 32."""

    segment: int
    """Columns of a segment."""
    places: int
    """Columns of a lane."""
    chunks: int
    """Groups of four elements of a lane in every row, padding included."""


def balanced_layout(elements: ElementMap, window: int, rest: int) -> BalancedLayout:
    """Lay `elements` out; dense columns are picked until no row has more than `rest` elements left."""
    from prunecast.kernels.balanced.loops import count_dense  # numba is slow to import

    windows = -(-elements.k // window)
    dense = np.zeros((-(-elements.m // GROUP_ROWS), windows), np.int32)
    count_dense(elements.row_start, elements.column_index, elements.m, window, windows, rest, dense)
    return BalancedLayout(window, rest, dense)


def _fullest(warps: int) -> int:
    """Warps of the SM if all sub-partitions had as many as the fullest."""
    return -(-warps // SUB_PARTITIONS) * SUB_PARTITIONS


def choose_rest(elements: ElementMap, window: int) -> int:
    """The largest of the rests that cost about the least on a sample of groups: it packs tightest."""
    sample = _sampled(elements)
    clocks = {rest: _clocks(balanced_layout(sample, window, rest)) for rest in RESTS}
    return max(rest for rest in RESTS if clocks[rest] <= 1.02 * min(clocks.values()))


def _clocks(layout: BalancedLayout) -> float:
    """SM clocks of a mean window of 16 rows and 64 tokens, which shared memory takes to hand out words."""
    return float(layout.dense.mean()) * DENSE_CLOCKS + 4 * layout.rest * REST_CLOCKS


def _sampled(elements: ElementMap) -> ElementMap:
    """Some groups, spread over the matrix."""
    groups = max(elements.m // GROUP_ROWS, 1)
    if groups <= _SAMPLE_GROUPS:
        return elements
    first = np.arange(_SAMPLE_GROUPS) * groups // _SAMPLE_GROUPS * GROUP_ROWS
    start, columns = elements.row_start, elements.column_index
    counts = np.concatenate([np.diff(start[f : f + GROUP_ROWS + 1]) for f in first])
    return ElementMap(
        m=counts.size,
        k=elements.k,
        row_start=np.append(0, np.cumsum(counts)),
        column_index=np.concatenate([columns[start[f] : start[f + GROUP_ROWS]] for f in first]),
        pattern=elements.pattern,
    )


@lru_cache(maxsize=8)
def vector_layout(elements: ElementMap) -> VectorLayout:
    """The segment length, from 256 down to 8 columns, that needs the fewest chunks; of equals the longest."""
    found = [_vector_layout(elements, segment) for segment in (256, 128, 64, 32, 16, 8)]
    return min(found, key=lambda layout: layout.chunks)


def _vector_layout(elements: ElementMap, segment: int) -> VectorLayout:
    lane = elements.column_index // segment % LANES
    row = np.repeat(np.arange(elements.m), elements.kept_per_row)
    most = int(np.bincount(row * LANES + lane, minlength=1).max())
    places = -(-elements.k // (LANES * segment)) * segment
    return VectorLayout(segment, places, max(-(-most // 4), 1))
