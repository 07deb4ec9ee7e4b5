"""What the balanced kernel for several tokens copies in a step: when rows of B and records land."""

import math
from typing import NamedTuple

import numpy as np

from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.spec import LINE_BYTES, SECTOR_BYTES, GpuSpec
from prunecast.kernels.balanced.layout import WARPS, BalancedLayout
from prunecast.plan.misaligned import row_bytes_of
from prunecast.plan.program import Code, Instruction, Op, When

BLOCK_TOKENS = 64
"""Tokens of a block. Kind: CUDA source, `matrix.cu`."""
COPY_PASSES = 2
"""Passes through the port of an asynchronous copy of 16 bytes a lane: its addresses, those of four lines,
then what lands. Kind: datasheet, CUDA C++ Programming Guide, 32 banks of four bytes."""
FIRST_ISSUE = 10
"""Instructions before the first copies of B, behind the wait for the preceding launch; records are asked for
before it. Kind: as-compiled, sm_90."""
COPY_ISSUE = 26
"""Cycles that issue takes for 16 bytes of B a thread: 20 instructions, 13 of them for the integer unit, which
takes one in two cycles. Kind: as-compiled, sm_90."""
SAME_ROWS_COUNT = 512
"""Rows for which `GpuSpec.l2_same_row_cycles` says how long L2 takes. Kind: definition, hardware/spec.py."""


def balanced_costs(gpu: GpuSpec) -> Costs:
    """Costs of the kernel on the GPU's architecture."""
    return load_costs("prunecast.kernels.balanced", gpu.compute_capability)


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

    def copy_issue(self, costs: Costs) -> int:
        """Cycles of a sub-partition until a warp has asked for four rows: its instructions, or a quarter of
        what all warps ask of the unit for addresses.
        """
        of_line = costs["half_sector_line_cycles" if self.stride % SECTOR_BYTES else "line_cycles"]
        return max(COPY_ISSUE, round(4 * 4 * of_line * self.lines))

    @property
    def like(self) -> int:
        """Stride, at most two lines, of rows that lie in lines in the same way."""
        return self.stride if self.stride <= LINE_BYTES else LINE_BYTES + self.stride % LINE_BYTES


class _StepCopies(NamedTuple):
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
) -> _StepCopies:
    """Windows of B, zeros included where tokens are missing, and records.

    Parameters
    ----------
    fills_port : products leave the port of shared memory no room, so that it counts what else passes
    """
    columns = layout.window * splits
    record = max(round(16 * float(layout.words.mean()) * 16 / columns), 1)
    zeros = 16 * max(BLOCK_TOKENS - row.tokens, 0) * row.element_bytes
    passes = COPY_PASSES * zeros + (COPY_PASSES - 1) * (16 * row.block_bytes - zeros)
    issue = row.copy_issue(balanced_costs(gpu)) * (row.block_bytes * columns // (16 * 32 * WARPS))
    late = _behind_others(layout, splits, row, gpu, sharers, asking=4 * issue)
    rows = Instruction(Op.COPY_B, row.block_bytes, 0, per_k16=True, leader=True, late=late)
    again = (COPY_PASSES - 1) * record * fills_port
    return _StepCopies(
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
    costs = balanced_costs(gpu)
    together = min(costs["steps_together"] / max(steps, 1), 1.0) / sharers.waves
    others = costs["same_rows_start"] + together * of_each * sharers.blocks * columns / SAME_ROWS_COUNT
    read = min(row.tokens * row.element_bytes, row.block_bytes)
    port = columns * read / gpu.l2_port_bytes_per_clk_per_sm
    return max(round(max(others, asking) - port), 0)


def _zeros_of_last_range(row: TokenRow, columns: int) -> Code:
    missing = -row.tokens % BLOCK_TOKENS if row.tokens > BLOCK_TOKENS else 0
    passed = missing * row.element_bytes * columns // WARPS
    return (Instruction(Op.SHARED, passed, 0, when=When.EDGE),) if passed else ()
