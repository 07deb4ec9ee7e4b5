"""Warp program of the balanced kernel for several tokens: copies, reads, products and waits."""

import math
from typing import NamedTuple

import numpy as np

from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.spec import LINE_BYTES, SECTOR_BYTES, GpuSpec
from prunecast.kernels.balanced.layout import WARPS, BalancedLayout
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.plan.misaligned import row_bytes_of
from prunecast.plan.program import Code, Instruction, Op, WarpProgram, When

BLOCK_TOKENS = 64
"""Tokens of a block. Kind: CUDA source, `matrix.cu`."""
COPY_PASSES = 2
"""Passes through the shared-memory port of an asynchronous copy of 16 bytes per lane: its addresses (four
lines), then the arriving data. Kind: datasheet, CUDA C++ Programming Guide, 32 banks of four bytes."""
FIRST_ISSUE = 10
"""Instructions between the wait for the preceding launch and the first copies of B. Records are requested
before that wait. Kind: as-compiled, sm_90."""
COPY_ISSUE = 26
"""Issue cycles per 16 bytes of B per thread: 20 instructions, 13 of which use the integer unit, which accepts
one every two cycles. Kind: as-compiled, sm_90."""
SAME_ROWS_COUNT = 512
"""Number of rows to which `GpuSpec.l2_same_row_cycles` refers. Kind: definition, hardware/spec.py."""


def _balanced_costs(gpu: GpuSpec) -> Costs:
    """Return the costs of the balanced kernel on the GPU's architecture."""
    return load_costs("prunecast.kernels.balanced", gpu.compute_capability)


class Sharers(NamedTuple):
    """Number of blocks of a launch that read the same rows of B, and of their waves."""

    blocks: int = 1
    """Number of blocks that read the same rows of B at the same time."""
    waves: int = 1
    """Number of waves of blocks. Blocks after the first wave start when others end, so they do not request
    rows at the same time."""


ALONE = Sharers()


class _TokenRow(NamedTuple):
    """Size and alignment of a row of B."""

    tokens: int
    element_bytes: int

    @property
    def block_bytes(self) -> int:
        """Bytes of shared memory for a row of a block's 64 tokens."""
        return BLOCK_TOKENS * self.element_bytes

    @property
    def stride(self) -> int:
        """Bytes from one row to the next in global memory."""
        return row_bytes_of(self.tokens, self.element_bytes)

    @property
    def lines(self) -> float:
        """Mean number of L2 lines that the requests of eight lanes for one row touch."""
        read = min(self.stride, LINE_BYTES)
        starts = range(0, LINE_BYTES, math.gcd(self.stride, LINE_BYTES))
        of_row = sum(1 + (start + read > LINE_BYTES) for start in starts) / len(starts)
        return of_row + (read < LINE_BYTES)

    def copy_issue(self, costs: Costs) -> int:
        """Return the sub-partition cycles until a warp has requested four rows.

        It is the maximum of two times: the issue of its instructions, and its share of the time in which the
        SM's address unit serves all warps.
        """
        of_line = costs["half_sector_line_cycles" if self.stride % SECTOR_BYTES else "line_cycles"]
        return max(COPY_ISSUE, round(4 * 4 * of_line * self.lines))

    @property
    def like(self) -> int:
        """Row stride in bytes, less than two L2 lines (256), with the same alignment to lines as `stride`."""
        return self.stride if self.stride <= LINE_BYTES else LINE_BYTES + self.stride % LINE_BYTES


class _StepCopies(NamedTuple):
    """Copies of one step. In copies that queue after others, `Instruction.late` is the extra latency in
    cycles.
    """

    rows: Instruction
    record: Instruction
    """Copy of the packed records of A; each warp copies its own."""
    asking: Instruction
    """Issue cycles of a warp for its row copies. Copies for missing tokens are issued, too."""
    zeros: Code
    """Writes of zeros for missing tokens, if the last of several token ranges is partial. They use the
    shared-memory port as rows do."""


def _step_copies(
    layout: BalancedLayout,
    splits: int,
    row: _TokenRow,
    gpu: GpuSpec,
    sharers: Sharers,
    *,
    fills_port: bool,
) -> _StepCopies:
    """Return the copies of windows of B, with zeros for missing tokens, and of records.

    Parameters
    ----------
    fills_port : products saturate the shared-memory port, so that other traffic through it costs time
    """
    columns = layout.window * splits
    record = max(round(16 * float(layout.words.mean()) * 16 / columns), 1)
    zeros = 16 * max(BLOCK_TOKENS - row.tokens, 0) * row.element_bytes
    passes = COPY_PASSES * zeros + (COPY_PASSES - 1) * (16 * row.block_bytes - zeros)
    issue = row.copy_issue(_balanced_costs(gpu)) * (row.block_bytes * columns // (16 * 32 * WARPS))
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
    layout: BalancedLayout, splits: int, row: _TokenRow, gpu: GpuSpec, sharers: Sharers, *, asking: int
) -> int:
    """Return the extra latency of rows of B in cycles, relative to a transfer at the rate of the L2 port.

    Rows arrive at the earliest when the block has requested all of them. They arrive later if all blocks
    request the same lines at once, because L2 serves the requests one after the other.
    """
    columns, steps = layout.window * splits, -(-int(layout.dense.shape[1]) // splits)
    of_each = float(np.interp(row.like, gpu.l2_same_row_bytes, gpu.l2_same_row_cycles))
    costs = _balanced_costs(gpu)
    together = min(costs["steps_together"] / max(steps, 1), 1.0) / sharers.waves
    others = costs["same_rows_start"] + together * of_each * sharers.blocks * columns / SAME_ROWS_COUNT
    read = min(row.tokens * row.element_bytes, row.block_bytes)
    port = columns * read / gpu.l2_port_bytes_per_clk_per_sm
    return max(round(max(others, asking) - port), 0)


def _zeros_of_last_range(row: _TokenRow, columns: int) -> Code:
    missing = -row.tokens % BLOCK_TOKENS if row.tokens > BLOCK_TOKENS else 0
    passed = missing * row.element_bytes * columns // WARPS
    return (Instruction(Op.SHARED, passed, 0, when=When.EDGE),) if passed else ()


PIECES = 4
"""Number of alternating parts in which the reads and products of a step are modelled. With a single part, the
modelled warps would read one after another, and the last one would multiply while all others are idle. Kind:
choice, how finely the model interleaves them."""
READ_BYTES = 128
"""Bytes of shared memory that an SM reads per cycle. Kind: datasheet, CUDA C++ Programming Guide, 32 banks of
four bytes."""
STEP_ISSUE = 140
"""Issue cycles of a warp at the start of a step and for its record: 100 instructions, 70 of which use the
integer unit, which accepts one every two cycles. Kind: as-compiled, sm_90."""
STORES_OF_SUMS, SUM_PASSES = 8, 4
"""Number of stores (16 bytes per lane) with which a warp writes its sums to shared memory, and passes of the
shared-memory port per store. Every warp issues the stores of all splits; the stores that it skips still
occupy the port for one pass each. Kind: CUDA source, `matrix.cu`."""
ADD_ISSUE, STORE_ISSUE = 41, 112
"""Instructions of a warp to add the sums of one more split; instructions to round and store its sums. Kind:
as-compiled, sm_90."""
LOOPED_SPLITS = 16
"""Number of splits for which the sums are added in a loop: two splits are read and added before the next two
are read. Kind: CUDA source, `matrix.cu`."""


def matrix_programs(
    layout: BalancedLayout,
    splits: int,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    *,
    sharers: Sharers = ALONE,
) -> tuple[WarpProgram, ...]:
    """Return the program of the sixteen warps of a block. In a step, a block processes one window (a range of
    columns of A) per split, and each warp one window of its split.

    Parameters
    ----------
    layout : sizes of the packed matrix
    splits : number of warps that share a group of 16 rows
    n : number of tokens in all; a block with fewer than 64 tokens is padded with zeros
    sharers : blocks that read the same rows of B
    """
    costs = _balanced_costs(gpu)
    row = _TokenRow(n, DTYPE_BYTES[dtype])
    copies = _step_copies(layout, splits, row, gpu, sharers, fills_port=dtype == "fp32")
    rows, top = copies.rows, costs.whole("step_wait") + 4 * STEP_ISSUE
    # The address of a record is loaded first; the first wave of blocks does so during the preceding launch
    found = gpu.dram_latency_cycles * (sharers.waves - 1) // sharers.waves
    columns = layout.dense_columns(splits)
    uneven = round((columns.most - columns.mean) * costs["lone_column_cycles"])
    step = (
        Instruction(Op.WAIT_FULL),
        Instruction(Op.SYNC),
        rows._replace(ahead=1, late=rows.late + top),
        Instruction(Op.ISSUE, costs.whole("step_wait")),
        Instruction(Op.ISSUE, 0, STEP_ISSUE),
        copies.record._replace(ahead=1),
        copies.asking._replace(ahead=1),
        # The kernel has no barrier here, but its warps advance equally: all issue copies before they multiply
        Instruction(Op.SYNC),
        *copies.zeros,
        *_piece(layout, splits, dtype, gpu) * PIECES,
        Instruction(Op.ISSUE, uneven),
    )
    worker = WarpProgram(
        role="worker",
        warps=WARPS,
        start=(Instruction(Op.ISSUE, issue=40),),
        fill=(
            rows._replace(late=rows.late + 4 * FIRST_ISSUE),
            Instruction(Op.ISSUE, 0, FIRST_ISSUE),
            copies.record._replace(late=found),
            copies.asking,
        ),
        step=step,
        end=_end(splits, row.block_bytes, costs),
    )
    return (worker,)


def _piece(layout: BalancedLayout, splits: int, dtype: str, gpu: GpuSpec) -> Code:
    """Return the reads and products of one of the `PIECES` parts of a step.

    fp32 is bound by shared-memory reads, fp16 and bf16 by issue slots and conversions. If the shared-memory
    port is not the bottleneck, only the latency of the first read is charged.
    """
    dense, rest = layout.dense_columns(splits).mean, 4 * layout.rest
    costs, busy, port = _balanced_costs(gpu), layout.busy_splits(splits), 0.0
    if dtype == "fp32":
        port = (costs["fp32_dense_port"] * dense + costs["fp32_rest_port"] * rest) * READ_BYTES * busy.share
        issue = (costs["fp32_dense_issue"] * dense + costs["fp32_rest_issue"] * rest) * busy.crowded
    else:
        issue = (costs["half_dense_issue"] * dense + costs["half_rest_issue"] * rest) * busy.crowded
    latency = Instruction(Op.ISSUE, gpu.shared_latency_cycles)
    reads = Instruction(Op.SHARED, max(round(port / PIECES), 1)) if port else latency
    return (reads, Instruction(Op.FMA, issue=max(round(issue / PIECES), 1)))


def _end(splits: int, row_bytes: int, costs: Costs) -> Code:
    """Return the epilogue. The warps of the first split add the sums of all splits through shared memory and
    store C.
    """
    others = splits - 1
    handed = BLOCK_TOKENS * 16 * 4 * others // splits
    asked = READ_BYTES * STORES_OF_SUMS * others
    passed = asked + handed * (SUM_PASSES - 1) // SUM_PASSES
    added = ADD_ISSUE * others // splits
    alone = costs.whole("looped_add_cycles" if splits == LOOPED_SPLITS else "add_cycles") * others
    waits = alone - WARPS * handed // READ_BYTES - added
    return (
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, passed, max(STORES_OF_SUMS * others, 1)),
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, handed, 0),
        Instruction(Op.ISSUE, max(waits, 0), max(added, 1)),
        Instruction(Op.ISSUE, costs.whole("store_wait"), STORE_ISSUE),
        Instruction(Op.STORE_C, 16 * row_bytes // splits, 8),
    )
