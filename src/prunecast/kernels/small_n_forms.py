"""The forms of the kernel for few tokens, and what a block of each occupies on an SM.

Eight warps share the kept columns of a tile, 16 (a k16) at a time; each copies ahead into a ring of its own
and reads back what it copied itself. Sizes are those of `kernels/cuda/small/small_shape.cuh`, which checks
them.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources
from prunecast.kernels.plan import BlockShape

__all__ = [
    "HEIGHTS",
    "MOST_TOKENS",
    "WIDTHS",
    "SmallForm",
    "block_width",
    "copies_per_row",
    "form_of_shape",
    "row_unit",
    "small_forms",
    "small_resources",
]

HEIGHTS = (64, 32, 16)
WIDTHS = (8, 16, 32, 64)
MOST_TOKENS = WIDTHS[-1]
"""Of a block; more tokens are taken in several ranges."""
DEPTHS = (6, 5, 4, 3)
WARPS = 8
_REGISTERS = {16: 64, 32: 80, 64: 128, 128: 200}
"""Sums of a thread -> registers that the compiler may use, in any form and on any architecture."""


class SmallForm(NamedTuple):
    """One compiled form of the kernel."""

    block_m: int
    block_n: int
    depth: int
    """K16s of a warp that are on their way."""
    warps: int = WARPS

    @property
    def shape(self) -> BlockShape:
        """Of a step, in which every warp takes one k16."""
        return BlockShape(self.block_m, self.block_n, 16 * self.warps)

    @property
    def tokens(self) -> int:
        """Neighbouring tokens of a lane."""
        return self.block_n // 8

    @property
    def registers(self) -> int:
        """Of a thread, at most."""
        return _REGISTERS[max(self.block_m * self.block_n // 32, 16)]


def block_width(n: int) -> int:
    """Tokens of a block for `n` tokens in all."""
    return next((width for width in WIDTHS if width >= n), MOST_TOKENS)


def row_unit(n: int) -> int:
    """Bytes, 2 to 16, to which contiguous rows of `n` two-byte elements are aligned."""
    return math.gcd(2 * n, 16)


def small_forms(n: int, *, warps: int = WARPS) -> Iterator[SmallForm]:
    """Every form for `n` tokens."""
    for height in HEIGHTS:
        for depth in DEPTHS:
            yield SmallForm(height, block_width(n), depth, warps)


def small_resources(form: SmallForm, n: int) -> BlockResources:
    """What a block occupies; rows of B that are not aligned take a little more."""
    weights = form.block_m * 32
    slot = weights + 4 * _row_bytes(form, n) + (128 if _by_words(form, n) else 0)
    ring = form.depth * slot + 2 * form.depth * 32
    sums = form.block_m * form.block_n * 4
    return BlockResources(32 * form.warps, form.registers, form.warps * max(ring, sums), form.depth)


def copies_per_row(form: SmallForm, n: int) -> int:
    """Copies that bring a lane's tokens of one row of B."""
    if _by_words(form, n):
        return form.tokens // 2 + 1
    return 2 * form.tokens // min(row_unit(n), 2 * form.tokens)


def form_of_shape(shape: BlockShape, resources: BlockResources) -> SmallForm:
    """The form of a plan.

    Raises
    ------
    BadInput : no form of this kernel has that shape
    """
    form = SmallForm(shape.block_m, shape.block_n, resources.stages, resources.threads // 32)
    if form.block_m not in HEIGHTS or form.block_n not in WIDTHS or form.shape != shape or form.depth < 1:
        raise BadInput(f"small-n: no form of the kernel has blocks of {tuple(shape)} and {resources}")
    return form


def _by_words(form: SmallForm, n: int) -> bool:
    return row_unit(n) == 2 or form.tokens == 1


def _row_bytes(form: SmallForm, n: int) -> int:
    """Shared memory of one row of B for the 32 lanes."""
    piece = 4 if _by_words(form, n) else min(row_unit(n), 2 * form.tokens)
    return 32 * piece * copies_per_row(form, n)
