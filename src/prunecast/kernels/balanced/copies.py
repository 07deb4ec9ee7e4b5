"""What the balanced kernel for several tokens copies in a step: when rows of B and records land."""

import math
from typing import NamedTuple

import numpy as np

from prunecast.hardware.l2_lines import LINE_BYTES, SECTOR_BYTES
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.balanced.layout import WARPS, BalancedLayout
from prunecast.plan.padded_rows import row_bytes_of
from prunecast.plan.program import Code, Instruction, Op, When

__all__ = ["ALONE", "BLOCK_TOKENS", "FIRST_ISSUE", "Sharers", "StepCopies", "TokenRow", "step_copies"]

BLOCK_TOKENS = 64
COPY_PASSES = 2
"""Through the port, of an asynchronous copy of 16 bytes a lane: its addresses, those of four lines, then
what lands. Steps of fp32 with 64 more of them take 8.6 clocks more for each (H200)."""

# Counted in code compiled for sm_90
FIRST_ISSUE = 10
"""Before the first copies of B, behind the wait for the launch before; records are asked for before it. Four
and eight copies a thread are asked for 430 and 750 to 910 cycles behind that wait (clock stamps)."""
COPY_ISSUE = 26
"""For 16 bytes of B a thread: 20 instructions, 13 of them for the integer unit, which takes one in two
cycles."""
LINE_CYCLES, HALF_SECTOR_LINE_CYCLES = 0.82, 1.11
"""Cycles of the SM's address unit per L2 line in which eight lanes ask for a row of B; the second where rows
are misaligned by half a sector. Rows of 48, 80, 96, 112, 144 and 208 bytes take 10.0, 11.2, 8.1, 12.5, 8.1
and 8.2 cycles for four (H200, 2026-11-22). Lanes without tokens ask for one line more."""
SAME_ROWS_COUNT = 512
"""Rows for which `GpuSpec.l2_same_row_cycles` says how long L2 takes."""
SAME_ROWS_START = 350
"""Cycles that pass beside those, until the last of these rows is asked for by all. Fitted to timed steps: 850
pass where nothing but these rows is copied (H200)."""
STEPS_TOGETHER = 12
"""Steps of a launch in which its blocks copy at the same time; fitted to 16 steps of 2048 x 8192 x 16."""


class Sharers(NamedTuple):
    """Blocks of a launch."""

    blocks: int = 1
    """Blocks that read the same rows of B at once."""
    waves: int = 1
    """Waves of blocks; blocks behind the first wave begin when others end, no longer together."""


ALONE = Sharers()


class TokenRow(NamedTuple):
    """A row of B, as blocks read it."""

    tokens: int
    element_bytes: int

    @property
    def block_bytes(self) -> int:
        """In shared memory, of a block's 64 tokens."""
        return BLOCK_TOKENS * self.element_bytes

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""
        return row_bytes_of(self.tokens, self.element_bytes)

    @property
    def lines(self) -> float:
        """L2 lines in which eight lanes request what they read of a row; mean over rows."""
        read = min(self.stride, LINE_BYTES)
        starts = range(0, LINE_BYTES, math.gcd(self.stride, LINE_BYTES))
        of_row = sum(1 + (start + read > LINE_BYTES) for start in starts) / len(starts)
        return of_row + (read < LINE_BYTES)

    @property
    def copy_issue(self) -> int:
        """Cycles of a sub-partition until a warp has asked for four rows: its instructions, or a quarter of
        what all warps ask of the unit for addresses.
        """
        of_line = HALF_SECTOR_LINE_CYCLES if self.stride % SECTOR_BYTES else LINE_CYCLES
        return max(COPY_ISSUE, round(4 * 4 * of_line * self.lines))

    @property
    def like(self) -> int:
        """Stride, at most two lines, of rows that lie in lines in the same way."""
        return self.stride if self.stride <= LINE_BYTES else LINE_BYTES + self.stride % LINE_BYTES


class StepCopies(NamedTuple):
    """Copies of one step; those that come before others carry `late` cycles."""

    rows: Instruction
    record: Instruction
    """Each by its warp."""
    asking: Instruction
    """What a warp takes to ask for rows; those that are not there are asked for as the others are."""
    zeros: Code
    """Zeros written for missing tokens, where the last of several token ranges is not whole; they use the
    port as rows do."""


def step_copies(
    layout: BalancedLayout,
    splits: int,
    row: TokenRow,
    gpu: GpuSpec,
    sharers: Sharers,
    *,
    fills_port: bool,
) -> StepCopies:
    """Windows of B, zeros included where tokens are missing, and records.

    Parameters
    ----------
    fills_port : products leave the port of shared memory no room, so that it counts what else passes
    """
    columns = layout.window * splits
    record = max(round(16 * float(layout.words.mean()) * 16 / columns), 1)
    zeros = 16 * max(BLOCK_TOKENS - row.tokens, 0) * row.element_bytes
    passes = COPY_PASSES * zeros + (COPY_PASSES - 1) * (16 * row.block_bytes - zeros)
    issue = row.copy_issue * (row.block_bytes * columns // (16 * 32 * WARPS))
    late = _behind_others(layout, splits, row, gpu, sharers, asking=4 * issue)
    rows = Instruction(Op.COPY_B, row.block_bytes, 0, per_k16=True, leader=True, late=late)
    again = (COPY_PASSES - 1) * record * fills_port
    return StepCopies(
        rows=rows._replace(operand_bytes=passes * fills_port),
        record=Instruction(Op.COPY_A, record, 0, per_k16=True, operand_bytes=again),
        asking=Instruction(Op.COPY_A, 0, max(issue, 1)),
        zeros=_zeros_of_last_range(row, columns) if fills_port else (),
    )


def _behind_others(
    layout: BalancedLayout, splits: int, row: TokenRow, gpu: GpuSpec, sharers: Sharers, *, asking: int
) -> int:
    """Cycles by which rows of B land later than the port could bring them: until the block has asked for all,
    or because all blocks ask for the same lines at once, which L2 hands out to one after the other.
    """
    columns, steps = layout.window * splits, -(-int(layout.dense.shape[1]) // splits)
    of_each = float(np.interp(row.like, gpu.l2_same_row_bytes, gpu.l2_same_row_cycles))
    together = min(STEPS_TOGETHER / max(steps, 1), 1.0) / sharers.waves
    others = SAME_ROWS_START + together * of_each * sharers.blocks * columns / SAME_ROWS_COUNT
    read = min(row.tokens * row.element_bytes, row.block_bytes)
    port = columns * read / gpu.l2_port_bytes_per_clk_per_sm
    return max(round(max(others, asking) - port), 0)


def _zeros_of_last_range(row: TokenRow, columns: int) -> Code:
    missing = -row.tokens % BLOCK_TOKENS if row.tokens > BLOCK_TOKENS else 0
    passed = missing * row.element_bytes * columns // WARPS
    return (Instruction(Op.SHARED, passed, 0, when=When.EDGE),) if passed else ()
