"""Bytes of a plan: what it must move, what passes L2, and what DRAM sees more than once."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch import LaunchContext
from prunecast.models.amount_loops import count_different, fetch_again
from prunecast.models.amounts import Amounts
from prunecast.models.terms import FloatArray, Quantity
from prunecast.plan.kernel_plan import DTYPE_BYTES, OUTPUT_BYTES, KernelPlan, Schedule
from prunecast.plan.misaligned import store_cost

_Int64Array = npt.NDArray[np.int64]


class WaveReads(NamedTuple):
    """What DRAM reads in each wave of items: most of it in the first one, where several tiles share B."""

    of_item: _Int64Array
    """(items,): the wave of each item."""
    read_bytes: FloatArray
    """(waves,): of A and B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Work and bytes of one launch.

    Parameters
    ----------
    flops : 2 * kept elements of A * tokens
    a_bytes, b_bytes, index_bytes : packed weights, used rows of B and column indices, each read once; of a
        convolution without B, the used channels of the input
    c_bytes : C, written once
    read_again_bytes : A and B that DRAM delivers again because L2 has lost them
    merged_bytes : of sectors of C that are written in parts, which L2 fetches
    l2_bytes : through L2, reads and writes, a multicast counted once
    waves : when A and B are read
    """

    flops: float
    a_bytes: float
    b_bytes: float
    index_bytes: float
    c_bytes: float
    read_again_bytes: float
    merged_bytes: float
    l2_bytes: float
    waves: WaveReads

    @property
    def compulsory_bytes(self) -> float:
        """What any order of work must move between DRAM and chip, indices aside: they are few."""
        return self.a_bytes + self.b_bytes + self.c_bytes

    @property
    def dram_bytes(self) -> float:
        """Read and written, indices included."""
        read_too = self.index_bytes + self.read_again_bytes + self.merged_bytes
        return self.compulsory_bytes + read_too

    @property
    def read_share(self) -> float:
        """Share of what DRAM moves that is read, 0 to 1."""
        return 1.0 - self.c_bytes / self.dram_bytes if self.dram_bytes else 0.0

    @property
    def miss_share(self) -> float:
        """Share of the bytes through L2 that DRAM moves too, 0 to 1."""
        return min(1.0, self.dram_bytes / self.l2_bytes) if self.l2_bytes else 0.0


def plan_traffic(context: LaunchContext, amounts: Amounts, resident_blocks: int) -> Traffic:
    """Traffic of a launch of which `resident_blocks` blocks run at once.

    A valid plan covers every tile for every token once, so the pieces of A that the items of one token
    range read, weighted with the range's share of the tokens, add up to A read once; of B the rows count
    that any tile keeps, of a convolution's input the channels.
    """
    plan = context.plan
    total = amounts.total(plan.blocks)
    read = _rows_read(plan)
    whole, weight = amounts.whole, amounts.kinds.members * amounts.tokens / plan.n
    again, waves = _wave_reads(context, amounts, read, resident_blocks)
    return Traffic(
        flops=2.0 * plan.density * plan.m * plan.k * plan.n,
        a_bytes=float(whole[:, Quantity.A] @ weight),
        b_bytes=read.rows * read.bytes_per_token * plan.n,
        index_bytes=float(whole[:, Quantity.INDEX] @ weight),
        c_bytes=float(total[Quantity.C]),
        read_again_bytes=again,
        merged_bytes=store_cost(context.programs).fetched * float(total[Quantity.C]),
        l2_bytes=float(total[Quantity.L2]),
        waves=waves,
    )


class _RowsRead(NamedTuple):
    """Rows of B, or channels of the input of a convolution, that any tile reads."""

    rows: int
    bytes_per_token: float
    """Bytes of one row or channel for one column of C."""
    columns_per_row: int
    """Columns of A that read the same row or channel."""

    def share(self, columns: npt.NDArray[np.int32]) -> FloatArray:
        """(items,): share of the rows that an item reads; its columns are taken as drawn at random."""
        if self.columns_per_row == 1:
            return columns / max(self.rows, 1)
        return np.asarray(1.0 - (1.0 - 1.0 / max(self.rows, 1)) ** columns)


def _rows_read(plan: KernelPlan) -> _RowsRead:
    """Count what the tiles of a plan read together."""
    element_bytes = DTYPE_BYTES[plan.dtype]
    if plan.source is None:
        return _RowsRead(_used(plan.tiles.column_index, plan.k, plan), float(element_bytes), 1)
    taps, channels = plan.source.taps, plan.source.channels
    used = _used(plan.tiles.column_index // taps, channels, plan)
    return _RowsRead(used, element_bytes * plan.source.source_ratio, taps)


def _used(index: npt.NDArray[np.integer], size: int, plan: KernelPlan) -> int:
    """Different numbers below `size` in `index`."""
    if int(plan.tiles.kept_per_tile.max(initial=0)) == plan.k:
        return size
    return int(count_different(index, size))


def _wave_reads(
    context: LaunchContext, amounts: Amounts, read: _RowsRead, resident_blocks: int
) -> tuple[float, WaveReads]:
    """Bytes of A and B that fall out of L2 between two uses, and when DRAM reads any of them.

    The items that run at once (a wave) walk their columns abreast, so what several of them read comes from
    DRAM once. Between waves the cache is least-recently-used at the grain of whole pieces: the weights of
    one tile (or part of a tile), and the kept rows of B for one range of tokens. Two uses lie as far apart
    as what all waves from the first to before the second read and write; a piece is lost if that is more than
    `l2_usable_bytes`. Tiles that keep the share s of the columns are taken as independent: of a range of B
    of which the share c is there, each new tile brings in s * (1 - c). Left out: blocks of a wave that
    drift apart, and lines kept by luck (near the limit it is all or nothing).
    """
    plan, gpu = context.plan, context.gpu
    whole, kinds, work = amounts.whole, amounts.kinds, plan.work
    weight = kinds.members * amounts.tokens / plan.n
    bytes_per_token = max(read.rows, 1) * read.bytes_per_token
    c_bytes = _written_bytes(plan)
    order = _run_order(plan, resident_blocks)
    waves = WaveReads(order.wave, np.zeros(int(order.wave.max(initial=0)) + 1))
    if waves.read_bytes.size == 1:
        return 0.0, waves
    footprint = whole[:, Quantity.A] @ weight + plan.n * bytes_per_token + c_bytes.sum()
    a_key = _pieces_of_a(plan)
    b_key = work.token_start.astype(np.int64) // plan.shape.block_n
    again = fetch_again(
        order.order,
        order.wave,
        a_key,
        b_key,
        whole[kinds.of_item, Quantity.A],
        bytes_per_token * amounts.tokens[kinds.of_item],
        c_bytes,
        read.share(work.k_stop - work.k_start),
        float(gpu.l2_usable_bytes) if footprint > gpu.l2_usable_bytes else np.inf,
        int(a_key.max()) + 1,
        int(b_key.max()) + 1,
        waves.read_bytes,
    )
    return float(again), waves


def _written_bytes(plan: KernelPlan) -> npt.NDArray[np.float64]:
    """(items,): bytes of C that each item writes."""
    work = plan.work
    elements = plan.tiles.rows_per_tile[work.tile] * (work.token_stop - work.token_start).astype(np.float64)
    return np.asarray(OUTPUT_BYTES[plan.dtype] * elements * work.owner, np.float64)


class _RunOrder(NamedTuple):
    """Order in which items run."""

    order: _Int64Array
    """(items,): items as they start."""
    wave: _Int64Array
    """(items,): the wave of each item, by item."""


def _run_order(plan: KernelPlan, resident_blocks: int) -> _RunOrder:
    """Items in waves of `resident_blocks` at a time, or by their place in the lists of static blocks."""
    item = np.arange(plan.item_count, dtype=np.int64)
    if plan.schedule is not Schedule.STATIC:
        return _RunOrder(item, item // max(resident_blocks, 1))
    first_of_block = np.repeat(plan.work.block_start[:-1], np.diff(plan.work.block_start))
    wave = item - first_of_block
    return _RunOrder(np.argsort(wave, kind="stable"), wave)


def _pieces_of_a(plan: KernelPlan) -> _Int64Array:
    """(items,): number of the piece of A that an item reads; each part of a split tile reads its own."""
    work = plan.work
    if not np.any(work.group >= 0):
        return work.tile.astype(np.int64)
    # not by the place of its columns: an empty piece lies where the next tile's first one does
    piece = work.tile.astype(np.int64) * (plan.k + 1) + work.k_start
    return np.asarray(np.unique(piece, return_inverse=True)[1], dtype=np.int64)
