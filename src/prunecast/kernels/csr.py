"""`csr`: unstructured sparsity on CUDA cores, every block the same number of kept elements."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.items import raster, take_items, whole_items
from prunecast.kernels.plan import DTYPE_BYTES, BlockShape, KernelPlan, PlanDoesNotFit, Schedule, WorkList
from prunecast.kernels.programs_csr import CSR_WARPS, SLOTS_PER_ELEMENT, csr_programs
from prunecast.kernels.tensor_rate import check_dtype
from prunecast.kernels.tile_plan import check_tokens
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tiling import row_tile_map

__all__ = ["ELEMENTS", "OTHER_LAUNCHES_S", "plan_csr"]

BLOCK_K = 32
ELEMENTS = 1024
"""Of the matrix in the order of its rows that a block works on, whatever rows they belong to. Times of
cuSPARSE's product rise in steps of one round of 132 such blocks (own measurement, H200, 2026-11-21): with 16
tokens 1,300 to 52,000 elements take 9.7 to 10.7 us, 104,000 take 11.1, 157,000 take 15.1 to 16.2."""
REGISTERS = 128
"""With which one block of 512 threads lies on an SM: a lone block takes as long as one of 132."""
OTHER_LAUNCHES_S = 2.5e-6
"""What cuSPARSE is taken to launch besides this kernel, fitted to 106 products. Own measurement, H200,
2026-11-21: 256 x 256 at 90 % with 16 tokens takes 9.7 us, of which one round of blocks takes 5.3 and the
launch floor 1.1; the launches themselves were not counted."""
Index = npt.NDArray[np.int64]


class _Pieces(NamedTuple):
    """Rows or parts of rows."""

    items: WorkList
    block: Index
    """(items,): the block of its token range that each belongs to."""


def plan_csr(elements: ElementMap, n: int, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Plan the product of a CSR matrix with `n` tokens.

    Rows of B are read from L2 anew for every row of A that keeps their column: nothing is shared, so the
    traffic is that of the elements. Every block has 1,024 of them, the last one fewer; the blocks
    of an SM run one after another and stand in one list here. All rows of a token range run together.

    Raises
    ------
    BadInput : n below 1, or a dtype that the GPU does not compute in
    PlanDoesNotFit : no block fits
    """
    check_tokens(n)
    _check_dtype(dtype, gpu)
    shape = BlockShape(1, min(width for width in SLOTS_PER_ELEMENT if width >= min(n, 128)), BLOCK_K)
    resources = BlockResources(32 * CSR_WARPS, REGISTERS, 0, 0)
    resident = occupancy(resources, gpu).blocks_per_sm
    if resident == 0:
        raise PlanDoesNotFit(
            f"csr: a block of {resources.threads} threads does not fit on an SM of {gpu.name}"
        )
    tiles = row_tile_map(elements)
    order = raster(tiles.tile_count, -(-n // shape.block_n), 1)
    rows = whole_items(tiles.kept_per_tile, order, n=n, block_n=shape.block_n)
    blocks = max(-(-elements.column_index.size // ELEMENTS), 1)
    pieces = _cut(rows, elements.row_start.astype(np.int64), blocks)
    ranges = pieces.items.token_start.astype(np.int64) // shape.block_n
    work = _dealt(pieces, ranges, blocks, resident * gpu.sm_count)
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
        programs=csr_programs(
            shape.block_n,
            DTYPE_BYTES[dtype],
            _elements_per_group(work),
            _share_in_l1(elements.k, shape, dtype, gpu),
        ),
        tensor="none",
        other_launches_s=OTHER_LAUNCHES_S,
    )


def _cut(rows: WorkList, row_start: Index, blocks: int) -> _Pieces:
    """Rows, each an item, cut where another of the `blocks` of a token range begins, to whole k-steps."""
    begin, stop = row_start[rows.tile], row_start[rows.tile + 1]
    last = np.minimum(np.maximum(stop - 1, begin) // ELEMENTS, blocks - 1)
    first = np.minimum((begin + BLOCK_K - 1) // ELEMENTS, last)
    parts = last - first + 1
    row = np.repeat(np.arange(parts.size), parts)
    part = np.arange(row.size) - (np.cumsum(parts) - parts)[row]
    block = first[row] + part
    k_start, k_stop = ((at * ELEMENTS - begin[row]) // BLOCK_K * BLOCK_K for at in (block, block + 1))
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


def _share_in_l1(k: int, shape: BlockShape, dtype: str, gpu: GpuSpec) -> float:
    """Of K rows of B with a block's tokens, as many as fit; rounded, as `_elements_per_group`."""
    return round(min(gpu.shared_bytes_per_sm / (k * shape.block_n * DTYPE_BYTES[dtype]), 1.0), 1)


def _check_dtype(dtype: str, gpu: GpuSpec) -> None:
    check_dtype(dtype)
    if dtype == "bf16" and gpu.compute_capability < 80:
        raise BadInput(
            f"dtype bf16 needs compute capability 8.0, {gpu.name} has {gpu.compute_capability / 10}"
        )
