"""`csr`: unstructured sparsity on CUDA cores, every block the same number of kept elements.

A list stands for all blocks that an SM gets. Ten of them share it at once, and each warp is a chain of loads
that wait for one another: an SM takes what its blocks issue or what a chain takes, whichever is longer, and
part of a chain more where blocks follow one another.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launch_traits import LaunchTraits
from prunecast.kernels.libraries.cusparse.costs import (
    ELEMENTS_OF_WARP,
    MISSED_SLOTS,
    SLOTS_PER_ELEMENT,
    TAIL,
    chain_cycles,
    meeting_cycles,
    missed_share,
    odd_slots,
)
from prunecast.kernels.libraries.cusparse.programs import CSR_WARPS, csr_programs, one_token_programs
from prunecast.kernels.tile.tile_plan import check_tokens
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tiling import row_tile_map
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape, KernelPlan, PlanDoesNotFit, Schedule, WorkList
from prunecast.plan.program import WarpProgram
from prunecast.plan.tensor_rate import check_dtype
from prunecast.plan.work_items import raster, take_items, whole_items

__all__ = ["ELEMENTS", "OTHER_LAUNCHES_S", "csr_traits", "plan_csr"]

BLOCK_K = 32
ELEMENTS = 96
"""Of the matrix in the order of its rows that a block works on, whatever rows they belong to: grids of
`csrmm_alg2_kernel` in captured graphs (cuSPARSE of CUDA 13.1, H200, 2026-11-22). Each of its four warps has
24 of them, which `csr_partition_kernel` has found before."""
BLOCK_WARPS, BLOCK_REGISTERS = 4, 46
"""Of that kernel: ten blocks lie on an SM."""
ROUNDS_APART = 8
"""Of blocks, beyond which they are dealt out to SMs several at a time, which keeps lists short."""
REGISTERS = 128
"""With which one block of 512 threads lies on an SM, which stands for all that the SM has at once."""
OTHER_LAUNCHES_S = 3.3e-6
"""What cuSPARSE launches before this kernel, none of them early: one that multiplies C by beta, and one that
finds each warp's first row. Fitted with the slots of an element; two launch floors are 2.1 us of it."""
ONE_TOKEN_LAUNCHES_S = 6.2e-6
"""As that, with one token, where `csrmv_v3_kernel` multiplies behind a partition and a fill, and another
kernel adds C: fitted, 33,000 to a million elements take 8.3 to 9.0 us in all."""
Index = npt.NDArray[np.int64]


class _Pieces(NamedTuple):
    """Rows or parts of rows."""

    items: WorkList
    block: Index
    """(items,): the block of its token range that each belongs to."""


def plan_csr(elements: ElementMap, n: int, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Plan the product of a CSR matrix with `n` tokens.

    Rows of B are read from L2 anew for every row of A that keeps their column: nothing is shared, so the
    traffic is that of the elements. All rows of a token range run together.

    Raises
    ------
    BadInput : n below 1, or a dtype that the GPU does not compute in
    PlanDoesNotFit : no block fits
    """
    check_tokens(n)
    _check_dtype(dtype, gpu)
    shape = BlockShape(1, _width(n), BLOCK_K)
    resources = BlockResources(32 if n == 1 else 32 * CSR_WARPS, REGISTERS, 0, 0)
    resident = occupancy(resources, gpu).blocks_per_sm
    if resident == 0:
        raise PlanDoesNotFit(
            f"csr: a block of {resources.threads} threads does not fit on an SM of {gpu.name}"
        )
    tiles = row_tile_map(elements)
    order = raster(tiles.tile_count, -(-n // shape.block_n), 1)
    rows = whole_items(tiles.kept_per_tile, order, n=n, block_n=shape.block_n)
    sms = resident * gpu.sm_count
    count = max(-(-elements.column_index.size // ELEMENTS), 1)
    per_deal = max(count * -(-n // shape.block_n) // (ROUNDS_APART * _together(gpu) * sms), 1)
    blocks = -(-count // per_deal)
    pieces = _cut(rows, elements.row_start.astype(np.int64), blocks, ELEMENTS * per_deal)
    ranges = pieces.items.token_start.astype(np.int64) // shape.block_n
    work = _dealt(pieces, ranges, blocks, sms)
    return KernelPlan(
        kernel="csr",
        n=n,
        dtype=dtype,
        tiles=tiles,
        work=work,
        schedule=Schedule.STATIC,
        blocks=work.block_start.size - 1,
        shape=shape,
        resources=resources,
        programs=_programs(elements, n, work, shape, dtype, gpu),
        tensor="none",
    )


def _programs(
    elements: ElementMap, n: int, work: WorkList, shape: BlockShape, dtype: str, gpu: GpuSpec
) -> tuple[WarpProgram, ...]:
    if n == 1:
        return one_token_programs(DTYPE_BYTES[dtype])
    missed = _missed(elements, n, shape, dtype, gpu)
    slots = _mean_slots(n, shape) + MISSED_SLOTS * missed + odd_slots(n)
    wait_cycles = _wait_cycles(elements, n, shape, slots, missed, gpu)
    return csr_programs(shape.block_n, DTYPE_BYTES[dtype], _elements_per_group(work), slots, wait_cycles)


def csr_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """Launches before the kernel, of which one writes C; one token has one more, behind it."""
    alone = ONE_TOKEN_LAUNCHES_S if plan.n == 1 else OTHER_LAUNCHES_S
    written_s = plan.m * plan.n * DTYPE_BYTES[plan.dtype] / gpu.dram_write_bytes_per_s
    return LaunchTraits(other_launches_s=alone + written_s)


def _together(gpu: GpuSpec) -> int:
    """Blocks of the library's kernel on an SM."""
    return occupancy(BlockResources(32 * BLOCK_WARPS, BLOCK_REGISTERS, 0, 0), gpu).blocks_per_sm


def _missed(elements: ElementMap, n: int, shape: BlockShape, dtype: str, gpu: GpuSpec) -> float:
    """Of reads of rows of B, those that L1 cannot answer; rounded, so that programs are found again."""
    of_sm = max(elements.column_index.size / gpu.sm_count, ELEMENTS)
    row_bytes = min(n, shape.block_n) * DTYPE_BYTES[dtype]
    return round(missed_share(of_sm, elements.k, row_bytes, gpu.shared_bytes_per_sm), 2)


def _mean_slots(n: int, shape: BlockShape) -> float:
    """For an element, over token ranges of which the last one may be narrower."""
    ranges = -(-n // shape.block_n)
    last = n - (ranges - 1) * shape.block_n
    whole, rest = (SLOTS_PER_ELEMENT[_width(tokens)] for tokens in (shape.block_n, last))
    return ((ranges - 1) * whole + rest) / ranges


def _wait_cycles(
    elements: ElementMap, n: int, shape: BlockShape, slots: float, missed: float, gpu: GpuSpec
) -> float:
    """By which an SM takes longer than it issues."""
    count, ranges = elements.column_index.size, -(-n // shape.block_n)
    blocks = max(-(-count // ELEMENTS), 1) * ranges / gpu.sm_count
    rows_of_warp = elements.m * ELEMENTS_OF_WARP / max(count, 1)
    chain = chain_cycles(min(rows_of_warp, elements.m), missed, shape.block_n)
    work = ELEMENTS * blocks * slots / gpu.sub_partitions_per_sm
    tail = TAIL * chain if blocks > _together(gpu) else 0.0
    return max(chain - work, 0.0) + tail + meeting_cycles(np.diff(elements.row_start), n)


def _width(tokens: int) -> int:
    return min(width for width in SLOTS_PER_ELEMENT if width >= min(tokens, 128))


def _cut(rows: WorkList, row_start: Index, blocks: int, size: int) -> _Pieces:
    """Rows, each an item, cut where another of the `blocks` of a token range begins, each of `size` elements,
    to whole k-steps.
    """
    begin, stop = row_start[rows.tile], row_start[rows.tile + 1]
    last = np.minimum(np.maximum(stop - 1, begin) // size, blocks - 1)
    first = np.minimum((begin + BLOCK_K - 1) // size, last)
    parts = last - first + 1
    row = np.repeat(np.arange(parts.size), parts)
    part = np.arange(row.size) - (np.cumsum(parts) - parts)[row]
    block = first[row] + part
    k_start, k_stop = ((at * size - begin[row]) // BLOCK_K * BLOCK_K for at in (block, block + 1))
    is_split = parts > 1
    items = take_items(rows, row)._replace(
        k_start=np.where(part == 0, 0, k_start).astype(np.int32),
        k_stop=np.where(part == parts[row] - 1, (stop - begin)[row], k_stop).astype(np.int32),
        group=np.where(is_split, np.cumsum(is_split) - 1, -1)[row].astype(np.int32),
        part=part.astype(np.int32),
        parts=parts[row].astype(np.int32),
        owner=(part == 0).astype(np.int32),
    )
    return _Pieces(items, block)


def _dealt(pieces: _Pieces, ranges: Index, blocks: int, most_lists: int) -> WorkList:
    """Blocks to lists in turn, token range by token range. In each list parts stand before owners, who never
    wait here: what a list takes is the same in any order.
    """
    block = pieces.block + blocks * ranges
    lists = min(most_lists, int(block.max(initial=0)) + 1)
    turn = np.lexsort((block // lists, pieces.items.owner, block % lists))
    counts = np.bincount(block % lists, minlength=lists)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return take_items(pieces.items, turn)._replace(block_start=starts)


def _elements_per_group(work: WorkList) -> float:
    """Of 16 columns each, the last one of an item fewer; rounded, so that programs are found again."""
    columns = (work.k_stop - work.k_start).astype(np.int64)
    groups = int((-(-columns // 16)).sum())
    return round(float(columns.sum()) / groups, 1) if groups else 16.0


def _check_dtype(dtype: str, gpu: GpuSpec) -> None:
    check_dtype(dtype)
    if dtype == "bf16" and gpu.compute_capability < 80:
        raise BadInput(
            f"dtype bf16 needs compute capability 8.0, {gpu.name} has {gpu.compute_capability / 10}"
        )
