"""Memory rules of a launch: the data that it brings into L2, and the DRAM traffic that it causes.

Both the simulator and the closed form use the record `MemoryRules`, so that their predictions follow the same
rules.

Order at DRAM         Weights that blocks prefetch before `griddepcontrol.wait` are queued at DRAM before
                      rows of B (`early_blocks`, `weights_first`).
Write-back of C       Stores of C go to L2. A line is written to DRAM when later data evict it: reads and
                      stores of this launch evict C of earlier launches (`write_back`).
Data that stay in L2  Partial sums stay in L2 if all launches share one workspace. An operator's private
                      workspace is evicted before its next use, so it is written back like C (`partials`).
Fetch size of a miss  A miss fetches the missing row of B for the token range of the item (`rows_per_miss`).
Reads of CTA pairs    Each CTA of a pair copies its own part of a box of B, once (`box_parts`).
                      A CTA that covers all rows has no neighbour and copies whole boxes.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.kernels.table import KERNELS
from prunecast.launch.context import LaunchContext
from prunecast.plan.kernel_plan import DTYPE_BYTES, OUTPUT_BYTES, KernelPlan
from prunecast.plan.program import Op


class RowsRead(NamedTuple):
    """Number and size of the rows of B (or input channels of a convolution) that at least one tile reads."""

    rows: int
    bytes_per_token: float
    """Bytes of one row (or channel) divided by the number of tokens, the columns of C."""
    columns_per_row: int
    """Number of columns of A that read the same row (or channel): 1 for a matrix B, the number of filter
    elements for a convolution."""

    def share(
        self, columns: npt.NDArray[np.integer] | npt.NDArray[np.float64], segments: int = 1
    ) -> npt.NDArray[np.float64]:
        """Return the fraction of the rows that each item reads, (items,) float64, for random columns.

        Parameters
        ----------
        columns : (items,) number of kept columns of each item
        segments : number of equal parts of the rows. All columns of an item are in one part, and the result
            is a fraction of that part
        """
        rows = max(self.rows / segments, 1.0)
        found = columns / rows if self.columns_per_row == 1 else 1.0 - (1.0 - 1.0 / rows) ** columns
        return np.asarray(found, np.float64)


class MemoryRules(NamedTuple):
    """Quantities of one launch that determine its traffic through L2 and DRAM."""

    read: RowsRead
    write_back: float
    """Bytes that DRAM writes per byte that enters L2 by a read or a store: (C + partial sums) / (A + B + C +
    partial sums), each in bytes. At this rate, one launch causes all of C to be written back.
    """
    partials: float
    """Bytes of partial sums that DRAM writes."""
    rows_per_miss: int
    """Number of rows of B that an L2 miss fetches from DRAM: 1, or for a convolution the number of input
    pixels per output pixel, since the simulator counts a channel as that many rows."""
    box_parts: int
    """Number of CTAs that share a box of B and copy a part of it each: 1 if every CTA copies whole boxes."""
    early_blocks: int
    """Number of blocks whose weight prefetch is complete when the first block may read B. DRAM bandwidth
    limits it."""
    weights_first: float
    """Fraction of the weights in the first pipeline fill of all blocks that DRAM serves before rows of B."""


def memory_rules(context: LaunchContext) -> MemoryRules:
    """Return the memory rules of a launch, from its plan and its GPU."""
    plan = context.plan
    read = rows_read(plan)
    partials, early = _partial_bytes(context), early_starts(context)
    box = plan.shape.block_n * DTYPE_BYTES[plan.dtype]
    copied = (i.amount for p in context.programs for i in p.step if i.op is Op.COPY_B)
    return MemoryRules(
        read=read,
        write_back=_write_back(plan, read, partials),
        partials=partials,
        rows_per_miss=pixels_per_output(plan),
        box_parts=max(box // next(copied, box), 1),
        early_blocks=_early_blocks(context, early),
        weights_first=_weights_first(context, early),
    )


def rows_read(plan: KernelPlan) -> RowsRead:
    """Return the number and size of the rows of B (or channels) that at least one tile of a plan reads.

    In a grouped launch each expert reads B only for its own tokens. The number is then the mean over experts,
    weighted by their tokens.
    """
    element_bytes = DTYPE_BYTES[plan.dtype]
    if plan.experts > 1:
        return RowsRead(_rows_of_experts(plan), float(element_bytes), 1)
    if plan.source is None:
        return RowsRead(_different(plan.tiles.column_index, plan.k, plan), float(element_bytes), 1)
    source = plan.source
    used = _different(source.channel_of(plan.tiles.column_index), source.channels, plan)
    return RowsRead(used, element_bytes * source.source_ratio, source.taps)


def _rows_of_experts(plan: KernelPlan) -> int:
    """Return the number of rows of B that an expert's tiles read, a mean weighted by the experts' tokens."""
    tiles = plan.tiles
    first = tiles.row_start[:-1]
    of_tile = tiles.row_index[first] // plan.c_rows
    used = np.zeros((plan.experts, plan.k), np.bool_)
    used[np.repeat(of_tile, tiles.kept_per_tile), tiles.column_index] = True
    tokens = np.zeros(plan.experts)
    tokens[of_tile] = plan.tokens_of_tile
    return max(round(float(used.sum(axis=1) @ tokens) / plan.n), 1)


def _different(index: npt.NDArray[np.integer], size: int, plan: KernelPlan) -> int:
    """Return the number of distinct values in `index`, which are below `size`."""
    if int(plan.tiles.kept_per_tile.max(initial=0)) == plan.k:
        return size
    used = np.zeros(size, np.bool_)
    used[index] = True
    return int(np.count_nonzero(used))


def pixels_per_output(plan: KernelPlan) -> int:
    """Return the input pixels per output pixel of a convolution, rounded, at least 1; 1 for other plans."""
    return 1 if plan.source is None else max(round(plan.source.source_ratio), 1)


def _write_back(plan: KernelPlan, read: RowsRead, partials: float) -> float:
    """Return `MemoryRules.write_back`: bytes of C and partial sums over all bytes that enter L2.

    Each byte that enters L2 evicts one byte. Measurements: the first stages arrive 1,060 cycles later per MB
    of B (H200). V:N:M kernels with 8 MB of C and 4 MB of other data need 16.2 us; if C were written after all
    other traffic, they would need 21.3 us (RTX 3090).
    """
    written = float(plan.tiles.row_index.size) / plan.experts * plan.n * OUTPUT_BYTES[plan.dtype] + partials
    a = KERNELS[plan.kernel].read_bytes(plan)
    b = read.rows * read.bytes_per_token * plan.n
    return written / (written + a + b) if written else 0.0


def _partial_bytes(context: LaunchContext) -> float:
    """Return the bytes of partial sums in an operator's private workspace (`whole`), which DRAM writes.

    L2 has evicted such a workspace when the operator runs again. A library's workspace serves all layers: L2
    keeps its lines, and the next launch overwrites them.
    """
    stores = (
        i.amount * p.warps for p in context.programs for i in p.end if i.op is Op.STORE_PARTIAL and i.whole
    )
    return float(sum(stores) * np.count_nonzero(context.plan.work.owner == 0))


def early_starts(context: LaunchContext) -> float:
    """Return the number of blocks of a launch that have prefetched their weights when the preceding one ends.

    Each block fills an SM. If n blocks leave f SMs free, the first f blocks of the next launch start at once.
    The next f blocks start on SMs whose blocks had started early themselves, and so on. With g = n / f groups
    (rounded up), each group starts later than the previous one by 1 / g of a prologue. Only the last cycles
    of a prologue count (one DRAM latency, for the indices), because the weights are in flight during these
    cycles.
    """
    gpu, blocks, prologue = context.gpu, context.plan.blocks, context.prologue_under_preceding_cycles
    if not context.pdl or not 0 < blocks < gpu.sm_count:
        return 0.0
    free = gpu.sm_count - blocks
    groups = -(-blocks // free)
    return free * (1.0 + groups * gpu.dram_latency_cycles / max(prologue, 1.0))


def _early_blocks(context: LaunchContext, early: float) -> int:
    gpu, blocks = context.gpu, context.plan.blocks
    if early == 0.0:
        return 0
    brought = gpu.dram_bytes_per_s * context.prologue_under_preceding_cycles / gpu.clock_burst_hz[0]
    return int(min(early, blocks * brought / max(_ring_bytes(context), 1.0), blocks))


def _ring_bytes(context: LaunchContext) -> float:
    """Return the bytes of weights in the first pipeline fill of all blocks, each k-slice of a tile once."""
    plan = context.plan
    starts = plan.work.block_start
    first = starts[:-1][np.diff(starts) > 0]
    of_tile = np.stack([plan.work.tile[first], plan.work.k_start[first]])
    slices = np.unique(of_tile, axis=1, return_index=True)[1]
    steps = -(-plan.multiplied_columns[first][slices] // plan.shape.block_k)
    steps = np.minimum(steps, plan.resources.stages)
    copied = sum(i.amount for program in context.programs for i in program.step if i.op is Op.COPY_A)
    return float(steps.sum()) * copied


def _weights_first(context: LaunchContext, early: float) -> float:
    """Return `MemoryRules.weights_first`; `early` is the result of `early_starts`.

    It is 0 if the prefetch overlaps the preceding launch completely, for example with split tiles, because
    their blocks leave their SMs long before that launch ends. If all blocks run their prologue during the
    preceding launch, they have their weights, but those of the next launch are requested meanwhile. For 2:4
    only this case counts, since its fitted constants already contain the other one.
    """
    plan, blocks = context.plan, context.plan.blocks
    whole = int(plan.work.parts.max(initial=1)) == 1
    one_wave = plan.item_count == blocks <= context.gpu.sm_count
    if not (whole and one_wave and context.pdl and context.prefetches_weights):
        return 0.0
    if context.prologue_is_hidden:
        return context.costs["hidden_prefetch_share"]
    if plan.inner is not None:
        return 0.0
    return context.costs["shown_prefetch_share"] * (1.0 - min(early / max(blocks, 1), 1.0))
