"""`csr`: unstructured sparsity on CUDA cores, as cuSPARSE runs it; planner and record.

cuSPARSE distributes the elements of the matrix evenly over CTAs, independent of their rows. Each work list of
the plan represents all CTAs of an SM, of which ten are resident at once. Each warp executes a chain of
dependent loads. The time of an SM is the issue time of its CTAs or the latency of one chain, whichever is
longer, plus the latency of the last CTAs' chains if there is more than one wave.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.costs import Costs
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import Kernel, LaunchTraits
from prunecast.kernels.libraries.cusparse.programs import (
    CSR_WARPS,
    chain_cycles,
    csr_programs,
    cusparse_costs,
    meeting_cycles,
    missed_after,
    missed_share,
    odd_slots,
    one_token_programs,
    width,
)
from prunecast.kernels.libraries.library_tables import rows_for
from prunecast.kernels.tile.tile_plan import check_tokens
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tiling import row_tile_map
from prunecast.plan.assignment import take_items
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape, KernelPlan, PlanDoesNotFit, Schedule, WorkList
from prunecast.plan.program import WarpProgram
from prunecast.plan.tensor_rate import check_core_dtype
from prunecast.plan.work_items import raster_items

BLOCK_K = 32
"""Columns of a k-step of the model's blocks. Kind: choice, two groups of 16."""
WAVES_APART = 8
"""Number of waves of CTAs above which several CTAs at a time are assigned to an SM. Kind: choice, keeps lists
short."""
REGISTERS = 128
"""Registers per thread of the model's block of 512 threads, which represents all CTAs of an SM. Kind:
definition, one block takes all 65,536 registers of an SM."""
Index = npt.NDArray[np.int64]


class _CsrConfig(NamedTuple):
    """One of the library's kernels: CTAs process equal numbers of elements in the order of rows."""

    kernel: str
    elements: int
    """Elements of the matrix per CTA, across rows."""
    warps: int
    resources: BlockResources
    tokens: int
    """Tokens of a CTA."""

    @property
    def elements_of_warp(self) -> int:
        """Number of elements that a warp processes. A preceding launch (`csr_partition_kernel`) locates these
        elements.
        """
        return self.elements // self.warps


def _csr_configs(elements: ElementMap, n: int, dtype: str, gpu: GpuSpec) -> list[_CsrConfig]:
    """Return a list of the one kernel that cuSPARSE uses for `n` tokens, from `tables/cusparse_families.csv`,
    which contains one kernel for matrices and one for vectors (n = 1).
    """
    many, one = rows_for("cusparse_families", gpu.compute_capability)
    row = one if n == 1 else many
    warps = int(row["warps"])
    resources = BlockResources(32 * warps, int(row["registers"]), 0, 0)
    return [_CsrConfig(row["family"], int(row["elements"]), warps, resources, width(n))]


def plan_csr(
    elements: ElementMap, n: int, dtype: str, gpu: GpuSpec, *, config: _CsrConfig | None = None
) -> KernelPlan:
    """Return the plan of the product of a CSR matrix with `n` tokens.

    For each kept element of A, the row of B that belongs to its column is read again, so that the traffic is
    proportional to the number of elements. All rows of A are processed concurrently for one token range.

    Parameters
    ----------
    elements : the kept elements of A
    config : one of `CSR.configs`; None for the first

    Raises
    ------
    BadInput : `n` is below 1, or the GPU does not compute in the dtype
    PlanDoesNotFit : no block fits on an SM
    """
    check_tokens(n)
    check_core_dtype(dtype, gpu)
    config = config or _csr_configs(elements, n, dtype, gpu)[0]
    shape = BlockShape(1, config.tokens, BLOCK_K)
    resources = BlockResources(32 if n == 1 else 32 * CSR_WARPS, REGISTERS, 0, 0)
    resident = occupancy(resources, gpu).blocks_per_sm
    if resident == 0:
        raise PlanDoesNotFit(
            f"csr: a block of {resources.threads} threads does not fit on an SM of {gpu.name}"
        )
    # The grid of the plan has as many work lists as there are block slots; the CTAs of the library, of which
    # `together` are resident, are dealt out to them `per_deal` at a time
    tiles = row_tile_map(elements)
    rows = raster_items(tiles.kept_per_tile, n=n, block_n=shape.block_n)
    sms = resident * gpu.sm_count
    count = max(-(-elements.kept_count // config.elements), 1)
    together = occupancy(config.resources, gpu).blocks_per_sm
    per_deal = max(count * -(-n // shape.block_n) // (WAVES_APART * together * sms), 1)
    blocks = -(-count // per_deal)
    pieces = _cut(rows, elements.row_start.astype(np.int64), blocks, config.elements * per_deal)
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
        programs=_programs(elements, n, work, config, dtype, gpu),
        tensor="none",
    )


def _csr_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """Return the launch traits: the seconds of the launches before the kernel, one of which writes C.

    With one token, another launch follows the kernel; its time is included.
    """
    name = "one_token_launches_s" if plan.n == 1 else "partition_launches_s"
    written_s = plan.m * plan.n * DTYPE_BYTES[plan.dtype] / gpu.dram_write_bytes_per_s
    return LaunchTraits(other_launches_s=cusparse_costs(gpu.compute_capability)[name] + written_s)


CSR = Kernel(
    name="csr",
    meaning="any weight may be removed; each kept one is stored with its column",
    takes=ElementMap,
    natural_pattern="unstructured",
    keeps=("tiles", "elements", "elements in tiles"),
    library=True,
    costs=__package__,
    plan=plan_csr,
    configs=_csr_configs,
    traits=_csr_traits,
)


class _Pieces(NamedTuple):
    """Work items, each a row of A or a part of a row, with the blocks that process them."""

    items: WorkList
    block: Index
    """(items,): block, within its token range, of each item."""


def _programs(
    elements: ElementMap, n: int, work: WorkList, config: _CsrConfig, dtype: str, gpu: GpuSpec
) -> tuple[WarpProgram, ...]:
    """Return the warp programs of a launch: with one token those of the vector kernel, else `csr_programs`.

    Issue slots per element = mean slots + `missed_slots` * share of reads of B that miss L1 + slots of odd N.
    """
    costs, element_bytes = cusparse_costs(gpu.compute_capability), DTYPE_BYTES[dtype]
    if n == 1:
        return one_token_programs(element_bytes, costs, np.diff(elements.row_start).astype(np.int64))
    # Fraction of reads of rows of B that miss L1, rounded so that programs are cached
    of_sm = max(elements.kept_count / gpu.sm_count, config.elements)
    in_l1 = elements.k, min(n, config.tokens) * element_bytes, gpu.shared_bytes_per_sm
    missed = round(missed_share(of_sm, *in_l1), 2)
    slots = _mean_slots(n, config, costs) + costs["missed_slots"] * missed + odd_slots(n, costs)
    missed_by_wave = missed_share(config.elements, *in_l1), missed_after(of_sm, *in_l1)
    wait_cycles = _wait_cycles(elements, n, work, config, slots, missed_by_wave, dtype, gpu)
    return csr_programs(config.tokens, element_bytes, _elements_per_group(work), slots, wait_cycles, costs)


def _mean_slots(n: int, config: _CsrConfig, costs: Costs) -> float:
    """Return the mean issue slots per element over all token ranges. The last range may be narrower."""
    ranges = -(-n // config.tokens)
    last = n - (ranges - 1) * config.tokens
    whole, rest = (costs[f"slots_per_element_{width(tokens)}"] for tokens in (config.tokens, last))
    return ((ranges - 1) * whole + rest) / ranges


def _wait_cycles(
    elements: ElementMap,
    n: int,
    work: WorkList,
    config: _CsrConfig,
    slots: float,
    missed_by_wave: tuple[float, float],
    dtype: str,
    gpu: GpuSpec,
) -> float:
    """Return the cycles by which an SM needs more than its issue time and the excess of reads of B from L2.

    The excess is the time of these reads beyond that of the first latency and the longest work list.

    Causes are the chain of dependent loads of the first CTAs, that of the last ones if there is more than one
    wave, and warps that add to the same row of C.

    Parameters
    ----------
    slots : issue slots per element
    missed_by_wave : fractions of reads of B that miss L1, of the first CTAs and of the last ones. CTAs of the
        first wave run at the same time, so that each finds only its own rows in L1: 86 to 683 CTAs need 9.9
        to 10.0 us (H200, 512 x 1024, 16 tokens, 2026-11-22)
    """
    costs, count, ranges = (
        cusparse_costs(gpu.compute_capability),
        elements.kept_count,
        -(-n // config.tokens),
    )
    ctas = max(-(-count // config.elements), 1) * ranges / gpu.sm_count
    rows_of_warp = min(elements.m * config.elements_of_warp / max(count, 1), elements.m)
    issue = config.elements * math.ceil(ctas) * slots / gpu.sub_partitions_per_sm
    reads = count * n * DTYPE_BYTES[dtype] * gpu.clock_burst_hz[0] / gpu.l2_bytes_per_s
    chain, tail = (chain_cycles(rows_of_warp, missed, config.tokens, costs) for missed in missed_by_wave)
    if ctas <= occupancy(config.resources, gpu).blocks_per_sm:
        tail = 0.0
    meeting = meeting_cycles(np.diff(elements.row_start), n, config.elements_of_warp, costs)
    # L2 limits an SM only as far as reads last longer than the latency of the first ones and the issue of the
    # longest work list. If all reads counted, a faster L2 would lengthen the wait and shorten nothing
    busiest = _busiest_slots(work, slots, costs) / gpu.sub_partitions_per_sm + gpu.dram_latency_cycles
    return max(chain - issue - max(reads - busiest, 0.0), 0.0) + tail + meeting


def _busiest_slots(work: WorkList, slots: float, costs: Costs) -> float:
    """Return the issue slots of the longest work list, in whole groups of 16 columns."""
    groups = -(-(work.k_stop - work.k_start).astype(np.int64) // 16)
    of_items = groups * slots * _elements_per_group(work) + work.owner * costs["slots_per_row"]
    before = np.concatenate(([0.0], np.cumsum(of_items)))
    return float(np.diff(before[work.block_start]).max())


def _cut(rows: WorkList, row_start: Index, blocks: int, size: int) -> _Pieces:
    """Divide rows at the boundaries of blocks of `size` elements each, and return the resulting items.

    A token range has `blocks` blocks. Boundaries are moved to whole k-steps.
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
    """Return the work list with blocks assigned to lists round-robin, token range by token range.

    In each list, parts of a split row that write partial sums precede owners, the parts that add them. In
    this kernel owners never wait, so the order within a list does not affect its time.
    """
    block = pieces.block + blocks * ranges
    lists = min(most_lists, int(block.max(initial=0)) + 1)
    turn = np.lexsort((block // lists, pieces.items.owner, block % lists))
    counts = np.bincount(block % lists, minlength=lists)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return take_items(pieces.items, turn)._replace(block_start=starts)


def _elements_per_group(work: WorkList) -> float:
    """Return the mean number of elements in a group of 16 columns, rounded so that programs are cached.

    The last group of an item may have fewer.
    """
    columns = (work.k_stop - work.k_start).astype(np.int64)
    groups = int((-(-columns // 16)).sum())
    return round(float(columns.sum()) / groups, 1) if groups else 16.0
