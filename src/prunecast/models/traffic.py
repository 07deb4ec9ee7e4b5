"""Bytes of a plan: what it must move, what passes L2, and what DRAM sees more than once."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch import LaunchContext
from prunecast.launch.memory import MemoryRules, RowsRead
from prunecast.models.amount_loops import RowsOfItems, fetch_again
from prunecast.models.amounts import Amounts
from prunecast.models.rates import program_traits
from prunecast.models.terms import FloatArray, Quantity
from prunecast.plan.kernel_plan import OUTPUT_BYTES, KernelPlan, Schedule

SEGMENTS, MOST_SEGMENTS = 4, 64
"""Parts of A's columns for each k-slice of a tile, and at most. Kind: choice."""

_Int64Array = npt.NDArray[np.int64]


class WaveReads(NamedTuple):
    """Bytes that DRAM reads in each wave of items. The first wave reads most if several tiles share B."""

    of_item: _Int64Array
    """(items,): the wave of each item."""
    read_bytes: FloatArray
    """(waves,): of A with its indices and of B."""
    waits: FloatArray
    """(items,): share of the k-steps of an item that wait for DRAM, see `fetch_again`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Work and bytes of one launch.

    Parameters
    ----------
    flops : 2 * kept elements of A * tokens
    a_bytes, b_bytes, index_bytes : packed weights, used rows of B and column indices, each read once; of a
        convolution without B, the used channels of the input
    c_bytes : C, written once
    partial_bytes : partial sums that DRAM writes, `MemoryRules.partials`
    read_again_bytes : A and B that DRAM delivers again because L2 has lost them
    merged_bytes : of sectors of C that are written in parts, which L2 fetches
    l2_bytes : through L2, reads and writes, a multicast counted once
    waves : when A and B are read, and what of them L2 has
    """

    flops: float
    a_bytes: float
    b_bytes: float
    index_bytes: float
    c_bytes: float
    partial_bytes: float
    read_again_bytes: float
    merged_bytes: float
    l2_bytes: float
    waves: WaveReads

    @property
    def compulsory_bytes(self) -> float:
        """Return the bytes that any order of the work moves between DRAM and chip, without the indices, which
        are few.
        """
        return self.a_bytes + self.b_bytes + self.c_bytes

    @property
    def dram_bytes(self) -> float:
        """Read and written, indices included."""
        read_too = self.index_bytes + self.read_again_bytes + self.merged_bytes
        return self.compulsory_bytes + read_too + self.partial_bytes

    @property
    def written_bytes(self) -> float:
        """Bytes that DRAM writes."""
        return self.c_bytes + self.partial_bytes

    @property
    def read_share(self) -> float:
        """Share of what DRAM moves that is read, 0 to 1."""
        return 1.0 - self.written_bytes / self.dram_bytes if self.dram_bytes else 0.0


def plan_traffic(
    context: LaunchContext, rules: MemoryRules, amounts: Amounts, resident_blocks: int
) -> Traffic:
    """Traffic of a launch of which `resident_blocks` blocks run at once.

    A valid plan covers every tile for every token of its expert once, so the pieces of A that items read,
    weighted with their shares of the tokens, add up to A read once; of B the rows count that any tile of an
    expert keeps, of a convolution's input the channels.
    """
    plan = context.plan
    total = amounts.total(plan.blocks)
    read = rules.read
    whole, weight = amounts.whole, amounts.tile_reads
    again, waves = _wave_reads(context, amounts, read, resident_blocks)
    return Traffic(
        flops=2.0 * plan.multiply_adds,
        a_bytes=float(whole[:, Quantity.A] @ weight),
        b_bytes=read.rows * read.bytes_per_token * plan.n,
        index_bytes=float(whole[:, Quantity.INDEX] @ weight),
        c_bytes=float(total[Quantity.C]),
        partial_bytes=rules.partials,
        read_again_bytes=again,
        merged_bytes=program_traits(context.programs).stores.fetched * float(total[Quantity.C]),
        l2_bytes=float(total[Quantity.L2]),
        waves=waves,
    )


def _wave_reads(
    context: LaunchContext, amounts: Amounts, read: RowsRead, resident_blocks: int
) -> tuple[float, WaveReads]:
    """Bytes of A and B that fall out of L2 between two uses, and when DRAM reads any of them.

    Items that run at once (a wave) share what DRAM reads of one range of tokens if L2 can hold the rows of B
    of the wave, or else a row from one reader to the next (`_abreast`). Between waves the cache is
    least-recently-used at the grain of whole k-slices: the weights of one tile (or part of a tile), and the
    kept rows of B for one range of tokens. Two uses lie as far apart as what all waves from the first to
    before the second read and write; a slice is lost if that is more than `l2_usable_bytes`. Tiles that keep
    the share s of the columns are taken as independent: of a range of B of which the share c is there, each
    new tile brings in s * (1 - c), in each segment of the columns that the item reads. Left out: blocks of a
    wave that drift apart because DRAM serves one sooner, and lines kept by luck (near the limit it is all or
    nothing).
    """
    plan, gpu = context.plan, context.gpu
    whole, kinds, work = amounts.whole, amounts.kinds, plan.work
    weight = amounts.tile_reads
    bytes_per_token = max(read.rows, 1) * read.bytes_per_token
    written = plan.tiles.rows_per_tile[work.tile] * (work.token_stop - work.token_start).astype(np.float64)
    c_bytes = OUTPUT_BYTES[plan.dtype] * written * work.owner
    order = _run_order(plan, resident_blocks)
    count = int(order.wave.max(initial=0)) + 1
    waves = WaveReads(order.wave, np.zeros(count), np.ones(order.wave.size))
    # Indices of a tile are read with its weights, and lost with them
    weights = whole[:, Quantity.A] + whole[:, Quantity.INDEX]
    footprint = weights @ weight + plan.n * bytes_per_token + c_bytes.sum()
    capacity = float(gpu.l2_usable_bytes)
    if footprint <= capacity:
        capacity = np.inf
        if waves.read_bytes.size == 1:
            return 0.0, waves
    a_key = work.tile.astype(np.int64)
    if np.any(work.group >= 0):
        # Each part of a split tile reads its own piece. Not by the place of its columns: an empty piece lies
        # where the next tile's first one does
        a_key = np.asarray(np.unique(a_key * (plan.k + 1) + work.k_start, return_inverse=True)[1], np.int64)
    b_key = work.token_start.astype(np.int64) // plan.shape.block_n
    a_bytes, b_bytes = weights[kinds.of_item], bytes_per_token * amounts.tokens[kinds.of_item]
    abreast = _abreast(plan, order, b_key, a_bytes, b_bytes, capacity)
    again = fetch_again(
        order.order,
        order.wave,
        a_key,
        a_bytes,
        _rows_of_items(plan, read, b_key, b_bytes, abreast),
        c_bytes,
        capacity,
        int(a_key.max()) + 1,
        waves.read_bytes,
        waves.waits,
    )
    return float(again), waves


def _rows_of_items(
    plan: KernelPlan, read: RowsRead, token_range: _Int64Array, b_bytes: FloatArray, abreast: _Int64Array
) -> RowsOfItems:
    """Rows of B by segment of A's columns: one of unsplit tiles, whose items read all that a tile keeps.

    The k-th of a tile's K' columns is taken to lie at k / K' of A's: slices of two tiles that begin there
    read rows of the same segments.
    """
    work, kept = plan.work, np.maximum(plan.tiles.kept_per_tile, 1)[plan.work.tile].astype(np.float64)
    parts = int(work.parts.max(initial=1))
    segments = min(SEGMENTS * parts, MOST_SEGMENTS) if parts > 1 else 1
    return RowsOfItems(
        key=token_range,
        size=b_bytes,
        start=segments * work.k_start / kept,
        stop=segments * work.k_stop / kept,
        density=np.minimum(read.share(kept / segments, segments), 1.0),
        abreast=abreast,
        segments=segments,
        keys=int(token_range.max()) + 1,
    )


def _abreast(
    plan: KernelPlan,
    order: "_RunOrder",
    token_range: _Int64Array,
    a_bytes: FloatArray,
    b_bytes: FloatArray,
    capacity: float,
) -> _Int64Array:
    """(items,): number of the group of items of a wave that share reads of their range of tokens.

    Two items share a row if one reads it while L2 still holds it from the other: if they are at most `window`
    columns apart, at their begin and halfway. An item begins after what its block has done before, and
    columns pass the faster the fewer of them it keeps.
    """
    wave, work = order.wave, plan.work
    of_wave = wave * (int(token_range.max()) + 1) + token_range
    ranges, first = np.unique(of_wave, return_index=True)
    rows = np.bincount(wave[first], weights=b_bytes[first], minlength=int(wave.max()) + 1)
    if float(rows.max()) <= capacity:
        return np.asarray(np.searchsorted(ranges, of_wave), np.int64)
    columns = np.maximum(work.k_stop.astype(np.int64) - work.k_start, 1)
    begin = -work.k_start.astype(np.int64)
    if plan.schedule is Schedule.STATIC:
        before = np.concatenate(([0], np.cumsum(columns)))
        begin = begin + before[:-1] - np.repeat(before[work.block_start[:-1]], np.diff(work.block_start))
    together = float(np.bincount(wave).max())
    window = capacity / max(together * float((a_bytes / columns).mean() + b_bytes.mean() / plan.k), 1.0)
    place = np.lexsort((columns, np.rint(begin / max(window, 1.0)), of_wave))
    begin, columns, of_wave = begin[place], columns[place], of_wave[place]
    drift = np.abs(np.diff(columns)) * (plan.k / 2.0) / np.maximum(columns[1:], columns[:-1])
    lost = np.maximum(np.abs(np.diff(begin)), drift) > window
    apart = (np.diff(of_wave) != 0) | (lost & (rows[wave[place]][1:] > capacity))
    group = np.empty(place.size, np.int64)
    group[place] = np.concatenate(([0], np.cumsum(apart)))
    return group


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
