"""Configs of the kernel for few tokens, and the resources that a block of each config occupies on an SM.

The kept columns of a tile are processed in groups of 16 (a k16), which are distributed over the warps of a
block. Each warp prefetches into its own pipeline stages and reads only its own copies. The sizes in shared
memory are those of `kernels/small_n/cuda/small_shape.cuh`, which checks them.
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from prunecast.hardware.occupancy import BlockResources
from prunecast.plan.kernel_plan import BlockShape

HEIGHTS = (64, 32, 16)
"""Rows of a block. Kind: choice, the compile tests build these sizes without spills."""
WIDTHS = (8, 16, 32, 64)
"""Tokens of a block. Kind: choice, the compile tests build these sizes without spills."""
MOST_TOKENS = WIDTHS[-1]
"""Maximum number of tokens of a block; more are split into ranges. Kind: choice, the last of `WIDTHS`."""
RINGS = {8: (4, 6), 16: (2, 4), 4: (4, 8)}
"""Warps of a block -> depths, the numbers of k16s (groups of 16 kept columns) of a warp that may be in
flight. Depths of 3 and 5 were slower in all measurements. Kind: choice, the compile tests build these depths
without spills."""
WARPS = 8
"""Default number of warps of a block. Kind: choice, the middle of `RINGS`."""
_REGISTERS = {16: 64, 32: 80, 64: 128, 128: 200}
"""Accumulators per thread -> maximum registers per thread, in any config and on any architecture. Kind: CUDA
source, `small_shape.cuh`."""
_REGISTERS_BY_WORDS = {16: 80, 32: 120, 64: 128, 128: 208}
"""`_REGISTERS` if rows of B are not aligned to 4-byte words, so that every word needs its own address. Kind:
CUDA source, `small_shape.cuh`."""


# The compiler decides which loads of column indices it moves after the wait for the preceding launch. No
# formula gives its choice: the tables below are read from the SASS of each config (`LDG` before or after
# `ACQBULK`), and have to be read again if `start` in `small_ring.cuh` or the compiler changes.
_AT_ONCE = {(32, 16): (6, 8), (16, 16): (6,), (16, 32): (8,)}
"""Rows and tokens of a block -> depths (k16s in flight per warp) at which the column indices of all k16s
except the first are loaded together. Kind: as-compiled, sm_90a, order of loads."""
_NO_EARLY = {(64, 16): (4, 6), (64, 64): (4, 6, 8), (64, 32): (6,), (16, 64): (6,)}
"""Rows and tokens of a block -> depths at which the column indices of the first k16, too, are loaded after
the wait for the preceding launch. Kind: as-compiled, sm_90a."""


class ColumnLoads(NamedTuple):
    """Order in which a warp loads the column indices of its first k16s (groups of 16 kept columns). The
    indices select the rows of B to copy.
    """

    before: int
    """Number of k16s whose indices are loaded before the wait for the preceding launch."""
    at_once: bool
    """True if the remaining indices are loaded together after that wait. Otherwise the indices of each k16
    are loaded after the rows of B of the k16 before it have been requested, and the warp waits for them."""


class SmallConfig(NamedTuple):
    """One compiled config of the kernel."""

    block_m: int
    block_n: int
    depth: int
    """Number of k16s (groups of 16 kept columns) of a warp that are in flight."""
    warps: int = WARPS

    def __str__(self) -> str:
        """Return the short name, e.g. `64x16 d4 w8`: tile of C, depth and warps."""
        return f"{self.block_m}x{self.block_n} d{self.depth} w{self.warps}"

    @property
    def shape(self) -> BlockShape:
        """Block shape. In each k-step, every warp processes one k16 (16 kept columns)."""
        return BlockShape(self.block_m, self.block_n, 16 * self.warps)

    @property
    def tokens(self) -> int:
        """Number of neighbouring tokens that a lane copies and multiplies."""
        return self.block_n // 8

    def registers(self, n: int) -> int:
        """Return the registers per thread that the launch bound allows, if a product has `n` tokens in
        all.
        """
        known = _REGISTERS_BY_WORDS if row_unit(n) == 2 and self.tokens > 1 else _REGISTERS
        return known[max(self.block_m * self.block_n // 32, 16)]

    def resources(self, n: int) -> BlockResources:
        """Return the resources of a block, if a product has `n` tokens in all.

        Each warp has a ring of `depth` slots. A slot has the weights of a k16 (`block_m` rows of 16 two-byte
        elements) and its 16 rows of B, with 128 bytes more if these are copied by words. After the slots come
        the column indices (16 of two bytes) of 2 * `depth` k16s. In the epilogue, each warp stores its fp32
        sums of the block's tile of C over its ring.
        """
        weights = self.block_m * 32
        slot = weights + 4 * self.row_slot_bytes(n) + (128 if self.by_words(n) else 0)
        ring = self.depth * slot + 2 * self.depth * 32
        sums = self.block_m * self.block_n * 4
        return BlockResources(32 * self.warps, self.registers(n), self.warps * max(ring, sums), self.depth)

    def by_words(self, n: int) -> bool:
        """Return True if rows of B are copied as 4-byte words, because they are not aligned to words or
        because a lane has only one token of a row.
        """
        return row_unit(n) == 2 or self.tokens == 1

    def copies_per_row(self, n: int) -> int:
        """Return the number of asynchronous copies (cp.async) that a lane issues for one row of B."""
        if self.by_words(n):
            return self.tokens // 2 + 1
        return 2 * self.tokens // min(row_unit(n), 2 * self.tokens)

    def k16_instructions(self, n: int) -> int:
        """Return the number of instructions of a warp per k16 (16 kept columns).

        25 + f * (2 + t) + 2 * t + `copy_instructions`, for f fragments of 16 rows and t tokens of a lane. The
        coefficients were counted in the loops compiled for sm_90a; the sum is correct within a tenth.
        """
        fragments = self.block_m // 16
        return 25 + fragments * (2 + self.tokens) + 2 * self.tokens + self.copy_instructions(n)

    def copy_instructions(self, n: int) -> int:
        """Return the number of the `k16_instructions` that copy a later k16; the others multiply.

        78 + 12 for each copy of a row of B, or 78 + 115 for each if rows are copied by words. Source as in
        `k16_instructions`.
        """
        return 78 + self.copies_per_row(n) * (115 if self.by_words(n) else 12)

    def column_loads(self, n: int) -> ColumnLoads:
        """Return the order in which `start` (`small_ring.cuh`) loads column indices, as compiled for
        sm_90a. The warp program charges a wait for every load that comes after the preceding launch.

        `test_columns_that_are_waited_for_one_by_one` has the number of such loads of six configs.
        """
        if self.by_words(n):
            return ColumnLoads(self.depth if self.depth <= 4 else 0, at_once=True)
        key = (self.block_m, self.block_n)
        at_once = self.depth in _AT_ONCE.get(key, ())
        return ColumnLoads(0 if self.depth in _NO_EARLY.get(key, ()) else 1, at_once=at_once)

    def row_slot_bytes(self, n: int) -> int:
        """Return the bytes of shared memory for the four rows of B that the 32 lanes of a warp copy at once,
        eight lanes per row. A k16 (16 rows of B) needs four times as many bytes.
        """
        piece = 4 if self.by_words(n) else min(row_unit(n), 2 * self.tokens)
        return 32 * piece * self.copies_per_row(n)


def _block_widths(n: int) -> tuple[int, ...]:
    """Return the tokens of a block for a product with `n` tokens in all, the smallest number first.

    For an even number of up to 8 tokens there are two widths: in blocks of 8, each lane copies a row of B as
    single words, which needs more instructions than the longer copies of wider blocks. 4096 x 11008 (50 %
    removed, tiles of 64 rows) needs 18.6 us with 8 tokens in blocks of 64 x 8, and 15.7 us with 16 tokens in
    blocks of 64 x 16 (H200, 2026-11-21).
    """
    least = next((width for width in WIDTHS if width >= n), MOST_TOKENS)
    return (least, 2 * least) if least == WIDTHS[0] and n % 2 == 0 else (least,)


def row_unit(n: int) -> int:
    """Return the alignment in bytes, 2 to 16, of contiguous rows of `n` two-byte elements."""
    return math.gcd(2 * n, 16)


def small_configs(n: int) -> Iterator[SmallConfig]:
    """Yield every config for `n` tokens that the compiler builds within its register limit without spills."""
    for width, height in product(_block_widths(n), HEIGHTS):
        tight = width == MOST_TOKENS and (row_unit(n) < 16 or height == min(HEIGHTS))
        for warps, depths in RINGS.items():
            if not (tight and warps == max(RINGS)):
                yield from (SmallConfig(height, width, depth, warps) for depth in depths)
