"""Layout of a pruned A for the balanced kernel. The planner computes its sizes; `cuda/operator.py` packs the
weights.

Rows of A are grouped by 16, columns are grouped in windows. In a window of a group, columns that many rows
keep are *dense*: they are multiplied for all 16 rows, zeros included, with one read of B. The remaining
elements are the *rest*, padded to equal numbers for every row. The size of the rest trades reads of shared
memory against arithmetic: each element of the rest needs its own read of B, and dense columns multiply zeros.
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
"""Even values of `BalancedLayout.rest` that `choose_rest` tries. Kind: choice, candidates."""
DENSE_CLOCKS = 13.2
"""Cycles of the shared-memory port for a dense column (one that is multiplied for all 16 rows of a group,
zeros included) and 64 tokens. Each lane reads 8 words of B, 4 values and half a position, at 32 words per
cycle, even if lanes read the same address. Kind: choice, the layout's rule is the same on every architecture
(measured on an H200, 2026-11-20)."""
REST_CLOCKS = 9.5
"""Cycles of the shared-memory port for four elements outside the dense columns, one per quarter of the warp.
Each lane reads 8 words of B, a value and half a position. Kind: choice, as `DENSE_CLOCKS`."""
NARROW_WINDOW = 16
"""Maximum columns of a window for which `choose_rest` counts dense columns in pairs, as they are multiplied,
and adds the wait for the warp with the most dense columns. Without this rule, a matrix with 70 % of its
weights removed was up to 5 % slower than one with 60 %, on GPUs on which no wider window fits. Kind: choice,
numbers of dense columns vary less in wider windows, and recorded runs contain the layouts of wider
windows."""
LONE_CLOCKS = 5.0
"""Cycles for each dense column that the most loaded warp of a block has beyond the mean, divided by the 16
warps of the block, which wait for it. Kind: choice, `lone_column_cycles` of an H200 divided by 16."""
_SAMPLE_GROUPS = 16
"""Number of row groups that `choose_rest` samples. Kind: choice, a larger sample gives the same result."""


class _DenseColumns(NamedTuple):
    """Mean and maximum number of dense columns that a warp multiplies in a window."""

    mean: float
    most: float
    """Maximum over the warps of a block, averaged over blocks and steps. All warps wait for the slowest one
    at the barrier of a step."""


class _BusySplits(NamedTuple):
    """Fractions of the warps of a block, and of one sub-partition, that have a window to multiply.

    The warps that share a group of 16 rows are its splits. Each gets a contiguous range of windows of equal
    length, rounded up, so that the last splits have fewer or none. Example: of 40 windows, 13 of 16 splits
    have three each, one has one, and two have none.
    """

    share: float
    """Fraction of the block's warps that have work, averaged over the steps."""
    crowded: float
    """Fraction of the warps of the SM's busiest sub-partition that have work, averaged over the steps; warp w
    runs on sub-partition w mod 4."""


class BalancedLayout(NamedTuple):
    """Sizes in the layout of one matrix for more than one token."""

    window: int
    """Number of columns of A per window, the columns that a warp multiplies in a step."""
    rest: int
    """Number of elements per row and window outside the dense columns, padding included."""
    dense: IntArray
    """(groups of 16 rows, windows): number of dense columns."""

    @property
    def words(self) -> IntArray:
        """(groups, windows): number of 16-byte words of each record."""
        pairs = (self.dense + 1) // 2
        return (8 * pairs + 6 * self.rest + (pairs + 3) // 4).astype(np.int32)

    def dense_columns(self, splits: int) -> _DenseColumns:
        """Return the mean and maximum number of dense columns that a warp multiplies per step.

        Dense columns are columns of a window of A that are stored with their zeros for 16 rows. In a step
        each warp of a block processes one window, and its dense columns are rounded up to pairs.

        Parameters
        ----------
        splits : number of warps that share the windows of one group of 16 rows
        """
        groups, windows = self.dense.shape
        steps, in_block = -(-windows // splits), WARPS // splits
        padded = np.zeros((-(-groups // in_block) * in_block, steps * splits), np.int64)
        padded[:groups, :windows] = 2 * -(-self.dense // 2)
        of_warp = padded.reshape(-1, in_block, splits, steps)
        mean = of_warp.sum() / max(self.dense.size, 1)
        return _DenseColumns(float(mean), float(of_warp.max(axis=(1, 2)).mean()))

    def busy_splits(self, splits: int) -> _BusySplits:
        """Return two fractions of warps that multiply a window, averaged over the steps of a block.

        The first fraction counts all warps of the block, the second one the warps of the SM's busiest
        sub-partition.

        Parameters
        ----------
        splits : number of warps that share the windows of one group of 16 rows
        """
        windows = int(self.dense.shape[1])
        steps = max(-(-windows // splits), 1)
        whole, groups = windows // steps, WARPS // splits
        some, left = min(whole + 1, splits) * groups, windows % steps
        crowded = left * _fullest(some) + (steps - left) * _fullest(whole * groups)
        return _BusySplits(windows / (steps * splits), crowded / (steps * WARPS))


class VectorLayout(NamedTuple):
    """Layout of one matrix for one token: segment s of the columns belongs to lane s mod 32."""

    segment: int
    """Number of columns of a segment."""
    places: int
    """Number of columns that belong to a lane, padding included."""
    chunks: int
    """Number of chunks (groups of four kept elements) that a lane holds of every row, padding included."""

    @property
    def index_bytes(self) -> int:
        """Bytes of an index, a position in the lane's bank of shared memory."""
        return 1 if self.places < 256 else 2

    def step_columns(self, k: int) -> int:
        """Return the number of columns of a k-step, a power of two from 16 to 128.

        It is the largest of these numbers with which `k` columns have at least as many k-steps as a lane has
        chunks (groups of four elements, `chunks`), or 16 if no number satisfies this.

        The model loads one chunk per k-step: if two chunks were in one k-step, the simulator would find the
        second one in L2.
        """
        columns = 128
        while columns > 16 and -(-k // columns) < self.chunks:
            columns //= 2
        return columns


def balanced_layout(elements: ElementMap, window: int, rest: int) -> BalancedLayout:
    """Return the layout of `elements`. In every window of a group of 16 rows, columns become dense
    (multiplied for all rows, zeros included) until no row has more than `rest` elements in the other columns.
    """
    from prunecast.kernels.balanced.loops import count_dense  # numba is slow to import

    windows = -(-elements.k // window)
    dense = np.zeros((-(-elements.m // GROUP_ROWS), windows), np.int32)
    count_dense(elements.row_start, elements.column_index, elements.m, window, windows, rest, dense)
    return BalancedLayout(window, rest, dense)


def _fullest(warps: int) -> int:
    """Return the number of warps on the most loaded sub-partition if `warps` are distributed evenly, times
    the number of sub-partitions.
    """
    return -(-warps // SUB_PARTITIONS) * SUB_PARTITIONS


def choose_rest(elements: ElementMap, window: int) -> int:
    """Return the number of elements per row and window that are stored outside the dense columns.

    The result is the largest of the candidates `RESTS` whose shared-memory cycles on a sample of rows are
    within 2 % of the minimum. A larger number is preferred because it packs A more densely.
    """
    sample = _sampled(elements)
    clocks = {rest: _clocks(balanced_layout(sample, window, rest)) for rest in RESTS}
    return max(rest for rest in RESTS if clocks[rest] <= 1.02 * min(clocks.values()))


def _clocks(layout: BalancedLayout) -> float:
    """Return the cycles of shared-memory reads for the mean window of a group of 16 rows and 64 tokens.
    Windows of up to `NARROW_WINDOW` columns include the wait for the warp with the most dense columns.
    """
    rest = 4 * layout.rest * REST_CLOCKS
    if layout.window > NARROW_WINDOW:
        return float(layout.dense.mean()) * DENSE_CLOCKS + rest
    mean, most = layout.dense_columns(1)
    return mean * DENSE_CLOCKS + (most - mean) * LONE_CLOCKS + rest


def _sampled(elements: ElementMap) -> ElementMap:
    """Return a sample of the row groups, evenly distributed over the matrix; all rows of a small matrix."""
    groups = -(-elements.m // GROUP_ROWS)
    count = min(groups, _SAMPLE_GROUPS)
    first = np.arange(count) * groups // count * GROUP_ROWS
    bits = elements.kept_bits
    sampled = np.concatenate([bits[f : f + GROUP_ROWS] for f in first])
    return ElementMap(m=len(sampled), k=elements.k, kept_bits=sampled, pattern=elements.pattern)


@lru_cache(maxsize=8)
def vector_layout(elements: ElementMap) -> VectorLayout:
    """Return the layout for one token with the segment length, from 256 down to 8 columns, that needs the
    fewest chunks (groups of four elements of a lane).

    If several segment lengths need equally few chunks, the longest one is used.
    """
    found = [_vector_layout(elements, segment) for segment in (256, 128, 64, 32, 16, 8)]
    return min(found, key=lambda layout: layout.chunks)


def _vector_layout(elements: ElementMap, segment: int) -> VectorLayout:
    lane = elements.column_index // segment % LANES
    row = np.repeat(np.arange(elements.m), elements.kept_per_row)
    most = int(np.bincount(row * LANES + lane, minlength=1).max())
    places = -(-elements.k // (LANES * segment)) * segment
    return VectorLayout(segment, places, max(-(-most // 4), 1))
