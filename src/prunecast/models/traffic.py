"""Bytes that a launch moves: compulsory bytes, bytes through L2, and repeated reads from DRAM."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch import LaunchContext
from prunecast.launch.memory import MemoryRules, RowsRead
from prunecast.models.amounts import Amounts
from prunecast.models.rates import program_traits
from prunecast.models.reuse_loops import RowsOfItems, Unread, fetch_again
from prunecast.models.terms import FloatArray, Quantity
from prunecast.models.working_sets import find_unread, pace_of_items
from prunecast.plan.kernel_plan import OUTPUT_BYTES, KernelPlan, Schedule

SEGMENTS, MOST_SEGMENTS = 4, 64
"""Segments of A's columns per k-slice of a tile, and their maximum total number if each k-slice has more than
one. Kind: choice, for speed."""

PROBES, BISECTIONS = 8, 20
"""Columns by which tiles are compared, and halvings of an interval of up to K rows. Kind: choice, speed."""

_Int64Array = npt.NDArray[np.int64]


class WaveReads(NamedTuple):
    """DRAM reads in each wave of items. If several tiles share B, the first wave reads most of the bytes."""

    of_item: _Int64Array
    """(items,) wave of each item."""
    read_bytes: FloatArray
    """(waves,) bytes of A, its column indices and B that DRAM reads."""
    waits: FloatArray
    """(items,) fraction of the k-steps of an item that wait for DRAM, see `fetch_again`."""
    rows: RowsOfItems
    """Rows of B that each item reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes of one launch.

    Parameters
    ----------
    a_bytes : bytes of packed weights, each read once
    b_bytes : bytes of the used rows of B, each read once; for an implicit convolution, of the used channels
        of its input
    index_bytes : bytes of column indices, each read once
    c_bytes : bytes of C, written once
    partial_bytes : bytes of partial sums that DRAM writes, `MemoryRules.partials`
    read_again_bytes : bytes of A and B that DRAM reads again because L2 has evicted them
    merged_bytes : bytes of C that L2 fetches from DRAM to complete partly written sectors
    l2_bytes : bytes through L2, reads and writes; a multicast counts once
    waves : DRAM reads in each wave
    dram_bytes : bytes that DRAM reads and writes in total, including indices
    written_bytes : bytes that DRAM writes
    read_share : bytes that DRAM reads, divided by all bytes that it reads and writes; 0 without traffic
    """

    a_bytes: float
    b_bytes: float
    index_bytes: float
    c_bytes: float
    partial_bytes: float
    read_again_bytes: float
    merged_bytes: float
    l2_bytes: float
    waves: WaveReads
    dram_bytes: float = field(init=False)
    written_bytes: float = field(init=False)
    read_share: float = field(init=False)

    def __post_init__(self) -> None:
        read_too = self.index_bytes + self.read_again_bytes + self.merged_bytes
        moved = self.compulsory_bytes + read_too + self.partial_bytes
        written = self.c_bytes + self.partial_bytes
        object.__setattr__(self, "dram_bytes", moved)
        object.__setattr__(self, "written_bytes", written)
        object.__setattr__(self, "read_share", 1.0 - written / moved if moved else 0.0)

    @property
    def compulsory_bytes(self) -> float:
        """Bytes that DRAM must move at least: A, B and C once, without the few bytes of indices."""
        return self.a_bytes + self.b_bytes + self.c_bytes


def plan_traffic(
    context: LaunchContext, rules: MemoryRules, amounts: Amounts, resident_blocks: int
) -> Traffic:
    """Return the traffic of a launch of which `resident_blocks` blocks run concurrently.

    `a_bytes` counts A once: the bytes that each item reads are weighted with its fraction of the tokens, and
    the items of a tile cover every token once. `b_bytes` counts the rows of B (or channels of a convolution's
    input) that at least one tile of an expert keeps.
    """
    plan = context.plan
    total = amounts.total
    read = rules.read
    whole, weight = amounts.whole, amounts.tile_reads
    again, waves = _wave_reads(context, amounts, read, resident_blocks)
    return Traffic(
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
    """Return the bytes of A and B that DRAM reads again after eviction from L2, and the reads of each wave.

    A wave is a set of items that run concurrently. Its items share DRAM reads of one token range if L2 can
    hold what it receives until a row of B is used again (`bytes_between_uses`), unless the order of items
    within waves decides whether L2 keeps weights (`differ_one_by_one`). Otherwise items of any wave share
    weights and rows of B only if L2 keeps them from one reader to the next (`working_sets.find_unread`).

    Between waves, L2 is modelled as an LRU cache of pieces: the weights of a tile (or k-slice), and the kept
    rows of B for one token range and segment of columns. The reuse distance of a piece is the bytes that all
    waves read and write from its first use until before its second use. The piece is evicted if this exceeds
    `l2_usable_bytes`.

    The kept columns of tiles are modelled as independent. If a tile keeps the fraction s of the columns and
    the fraction c of the rows of a token range is in L2, the tile reads s * (1 - c) of them from DRAM, in
    each segment of columns that the item reads.

    Not modelled: blocks of a wave that drift apart because DRAM serves some of them earlier, or because their
    SM has more blocks, items that catch up because they find their rows in L2, and partial eviction near the
    capacity limit.
    """
    plan, gpu = context.plan, context.gpu
    whole, kinds, work, weight = amounts.whole, amounts.kinds, plan.work, amounts.tile_reads
    bytes_per_token = max(read.rows, 1) * read.bytes_per_token
    written = plan.tiles.rows_per_tile[work.tile] * (work.token_stop - work.token_start).astype(np.float64)
    c_bytes = np.asarray(OUTPUT_BYTES[plan.dtype] * written * work.owner, np.float64)
    order = _run_order(plan, resident_blocks)
    count = int(order.wave.max(initial=0)) + 1
    b_key = work.token_start.astype(np.int64) // plan.shape.block_n
    # Indices of a tile are read and evicted together with its weights
    weights = whole[:, Quantity.A] + whole[:, Quantity.INDEX]
    a_bytes, b_bytes = weights[kinds.of_item], bytes_per_token * amounts.tokens[kinds.of_item]
    alike = columns_of_tiles(plan)
    drawn_from = rows_drawn_from(plan, read, alike)
    rows = _rows_of_items(plan, read, b_key, b_bytes, drawn_from)
    waves = WaveReads(order.wave, np.zeros(count), np.ones(order.wave.size), rows)
    once, b_once = float(weights @ weight), read.rows * read.bytes_per_token * plan.n
    footprint = once + plan.n * bytes_per_token + c_bytes.sum()
    capacity = float(gpu.l2_usable_bytes)
    if footprint <= capacity:
        capacity = np.inf
        if waves.read_bytes.size == 1:
            return 0.0, waves
    a_key = work.tile.astype(np.int64)
    if np.any(work.group >= 0):
        # Each k-slice of a split tile reads its own piece. The position of its columns in the map is not a
        # unique key: an empty tile begins where the next tile begins
        a_key = np.asarray(np.unique(a_key * (plan.k + 1) + work.k_start, return_inverse=True)[1], np.int64)
    every = np.arange(order.wave.size)
    of_wave = order.wave * (int(b_key.max()) + 1) + b_key
    first = np.unique(of_wave, return_index=True)[1]
    b_of_wave = np.bincount(order.wave[first], b_bytes[first], count).astype(np.float64)
    unread = Unread(*np.full((2, order.wave.size), -1.0))
    own = np.unique(order.wave * (int(a_key.max()) + 1) + a_key, return_index=True)[1]
    of_items = np.bincount(order.wave[own], a_bytes[own], count) + np.bincount(order.wave, c_bytes, count)
    touched = b_of_wave + of_items
    brought = np.isin(every, own) * a_bytes + np.isin(every, first) * b_bytes + c_bytes
    between = bytes_between_uses(rows, of_wave, touched[order.wave])
    one_by_one = plan.schedule is not Schedule.STATIC
    one_by_one = one_by_one and differ_one_by_one(order.wave, a_key, brought, capacity)
    by_item = one_by_one or max(between, float(touched.max())) > capacity
    if by_item and plan.tiles.column_index.size:
        pace = pace_of_items(plan, rows, alike, a_bytes, c_bytes, resident_blocks)
        unread = find_unread(plan, pace, capacity, np.array([once, b_once]))
        once += b_once
    keys = int(a_key.max()) + 1
    again = fetch_again(order, a_key, a_bytes, once, rows, c_bytes, capacity, unread, keys, waves)
    return float(again) if capacity < np.inf else 0.0, waves


def differ_one_by_one(wave: _Int64Array, key: _Int64Array, brought: FloatArray, capacity: float) -> bool:
    """Return True if L2 keeps some weights from wave to wave, but not from item to item, or the reverse.

    Counted by waves, L2 receives the data of whole waves between two uses of the same weights. If blocks
    replace each other one by one, it receives those of all items that start between them. Example: 80 blocks
    run, and the weights of 82 tiles are used in turn. L2 then receives the data of 82 items, not those of 80.

    Parameters
    ----------
    wave, key : (items,) wave of each item in order of execution, and number of the weights that it reads
    brought : (items,) bytes that each item brings into L2, if items of a wave share what they read
    """
    of_item = np.cumsum(brought) - brought
    of_wave = of_item[np.searchsorted(wave, wave)]
    uses = np.argsort(key, kind="stable")
    use, last = uses[1:], uses[:-1]
    again = (key[use] == key[last]) & (wave[use] != wave[last])
    kept = [(before[use] - before[last])[again] <= capacity for before in (of_item, of_wave)]
    return bool(np.any(kept[0] != kept[1]))


def bytes_between_uses(rows: RowsOfItems, of_wave: _Int64Array, touched: FloatArray) -> float:
    """Return the bytes that L2 receives from one use of a row of B to the next, as the mean of all reads.

    A wave uses the fraction u of the rows of a token range that at least one of its items keeps. A row is
    thus used once in 1 / u waves. If L2 receives more than its capacity in this time, it keeps few rows from
    one use to the next, although it can hold all data of a wave.

    Parameters
    ----------
    of_wave : (items,) number of an item's wave and token range
    touched : (items,) bytes of A, B and C of the item's wave
    """
    absent = np.bincount(of_wave, np.log1p(-np.minimum(rows.density, 1.0 - 1e-16)))[of_wave]
    used, read = -np.expm1(absent), rows.size * rows.density * (rows.stop - rows.start)
    between = touched / np.where(used > 0.0, used, 1.0)
    return float(between @ read / max(float(read.sum()), 1.0))


def _rows_of_items(
    plan: KernelPlan, read: RowsRead, b_key: _Int64Array, b_bytes: FloatArray, drawn_from: float
) -> RowsOfItems:
    """Return the rows of B that each item reads, by segments of A's columns.

    If no tile is split there is one segment, since every item reads all rows that its tile keeps. Kept
    columns are modelled as evenly spaced: the k-th of a tile's K' columns is at k / K' of A's columns.

    Parameters
    ----------
    b_key, b_bytes : (items,) index of the item's token range, and bytes of all rows of B in it
    drawn_from : result of `rows_drawn_from`
    """
    work, kept = plan.work, np.maximum(plan.tiles.kept_per_tile, 1)[plan.work.tile].astype(np.float64)
    parts = int(work.parts.max(initial=1))
    segments = max(min(SEGMENTS, MOST_SEGMENTS // parts), 1) * parts if parts > 1 else 1
    more = max(drawn_from, 1.0) / max(read.rows, 1)
    return RowsOfItems(
        key=b_key,
        size=b_bytes * more,
        start=segments * work.k_start / kept,
        stop=segments * work.k_stop / kept,
        density=np.minimum(read.share(kept / segments, segments), 1.0) / more,
        segments=segments,
        keys=int(b_key.max(initial=-1)) + 1,
    )


def rows_drawn_from(plan: KernelPlan, read: RowsRead, columns: _Int64Array) -> float:
    """Return the number of rows from which tiles that draw their columns independently keep `read.rows`.

    Tiles with different columns keep k_1, k_2, ... of n rows, and together n (1 - (1 - k_1 / n) (1 - k_2 / n)
    ...) of them. The result is the n for which these are `read.rows`; for random columns it is about K.

    Parameters
    ----------
    columns : (tiles,) result of `columns_of_tiles`
    """
    kept = plan.tiles.kept_per_tile[np.unique(columns, return_index=True)[1]]
    low, high = float(read.rows), float(plan.k)
    if read.columns_per_row > 1 or plan.experts > 1 or kept.max(initial=0) >= read.rows:
        return low
    sizes, tiles = np.unique(kept, return_counts=True)
    for _ in range(BISECTIONS):
        n = (low + high) / 2.0
        found = -n * np.expm1(float(np.log1p(-sizes / n) @ tiles))
        low, high = (n, high) if found < read.rows else (low, n)
    return high


def columns_of_tiles(plan: KernelPlan) -> _Int64Array:
    """Return a number per tile, (tiles,), that is equal for tiles with the same columns.

    Tiles count as equal if they keep equally many columns and the same ones at `PROBES` places.
    """
    tiles = plan.tiles
    if not tiles.column_index.size:
        return np.zeros(tiles.kept_per_tile.size, np.int64)
    places = tiles.column_start[:-1, None] + tiles.kept_per_tile[:, None] * np.arange(PROBES) // PROBES
    probes = tiles.column_index[np.minimum(places, tiles.column_index.size - 1)]
    seen = np.column_stack((tiles.kept_per_tile, probes))
    return np.asarray(np.unique(seen, axis=0, return_inverse=True)[1], np.int64).reshape(-1)


def runs_per_step(plan: KernelPlan) -> float:
    """Return the runs of consecutive columns in a k-step, at least 1: tiles keep or drop a run as a whole."""
    tiles = plan.tiles
    ends = np.diff(tiles.column_index, append=-1) != 1
    ends[tiles.column_start[1:][tiles.kept_per_tile > 0] - 1] = True
    return max(plan.shape.block_k * int(np.count_nonzero(ends)) / max(tiles.column_index.size, 1), 1.0)


class _RunOrder(NamedTuple):
    """Execution order of the items of a launch."""

    order: _Int64Array
    """(items,) item numbers in the order in which they start."""
    wave: _Int64Array
    """(items,) wave of each item, in the order of item numbers."""


def _run_order(plan: KernelPlan, resident_blocks: int) -> _RunOrder:
    """Return the execution order of items.

    A wave is `resident_blocks` consecutive items; for the schedule STATIC, the items at the same position in
    the lists of their blocks.
    """
    item = np.arange(plan.item_count, dtype=np.int64)
    if plan.schedule is not Schedule.STATIC:
        return _RunOrder(item, item // max(resident_blocks, 1))
    first_of_block = np.repeat(plan.work.block_start[:-1], np.diff(plan.work.block_start))
    wave = item - first_of_block
    return _RunOrder(np.argsort(wave, kind="stable"), wave)
