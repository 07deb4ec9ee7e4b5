"""`TileLengths`: a plan whose tiles may keep any number of columns, and its time in closed form.

Nothing is remembered but lengths: costs of items are looked up by length, and all sums are made anew for each
time, so that nothing drifts. `incremental.py` says what is promised.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launch_floor import beside_s
from prunecast.kernels.plan import KernelPlan, Schedule
from prunecast.kernels.power_draw import tensor_draw
from prunecast.models.case import Case
from prunecast.models.incremental_loops import (
    FIELDS,
    TOTALS,
    Chip,
    Launch,
    Lists,
    Now,
    add_up,
    read_pieces,
    set_all,
    set_some,
    settled_seconds,
)
from prunecast.models.item_costs import item_costs
from prunecast.models.item_table import item_table
from prunecast.models.loops import BlockLists, fetch_again
from prunecast.models.roofline import CLOCK_ROUNDS, look_up
from prunecast.models.starts import Starts, starts_of
from prunecast.models.strips import tile_of_strip
from prunecast.models.terms import FloatArray, Quantity
from prunecast.models.traffic import RowsRead, rows_read, run_order, written_bytes
from prunecast.models.unit_costs import lists_of, unit_costs
from prunecast.models.waves import place_units, seats_of
from prunecast.patterns.tile_map import TileMap

__all__ = ["TileLengths"]


class _Pieces(NamedTuple):
    """What `fetch_again` wants, and room for what changes."""

    order: npt.NDArray[np.int64]
    wave: npt.NDArray[np.int64]
    b_key: npt.NDArray[np.int64]
    b_bytes: FloatArray
    """(items,): bytes of the token range of one row of B."""
    c_bytes: FloatArray
    written_bytes: float
    """Of all items."""
    ranges: int
    """Of tokens, at most."""
    a_bytes: FloatArray
    b_share: FloatArray


class TileLengths:
    """Starts with the lengths of the plan; raises what `estimate` raises.

    `tiles` is the map that was planned, of whose tiles the plan's own are strips of some rows each.
    """

    def __init__(
        self, plan: KernelPlan, gpu: GpuSpec, state: str, tiles: TileMap, *, launch_s: float
    ) -> None:
        self._case = look_up(plan, gpu)
        self._starts = starts_of(self._case)
        self._lists = _lists(self._case, self._starts)
        self._now = _room(plan)
        self._blocks = _blocks(self._case, self._starts, self._now)
        units = plan.blocks if plan.schedule is Schedule.STATIC else plan.item_count
        self._seats = seats_of(plan, gpu, self._case.fit.blocks_per_sm, units)
        self._total, self._pieces = np.zeros(FIELDS - TOTALS), _pieces(self._case)
        self._read, self._chip = rows_read(plan), _chip(self._case, state, self._starts, launch_s)
        self._tile_of_strip = tile_of_strip(plan.tiles, tiles)
        self._strips = [np.flatnonzero(self._tile_of_strip == tile) for tile in range(tiles.tile_count)]
        self.kept = tiles.kept_per_tile.astype(np.int64)
        """(tiles,) that each tile keeps now; not to be written to."""
        set_all(self._lists.kept, self._lists, self._now)

    def set_one(self, tile: int, kept: int) -> None:
        """Give one tile another length."""
        set_some(self._strips[tile], kept, self._lists, self._now)
        self.kept[tile] = kept

    def set_all(self, kept: npt.NDArray[np.int64]) -> None:
        """Give all tiles these lengths (tiles,) int64."""
        set_all(kept[self._tile_of_strip], self._lists, self._now)
        self.kept[:] = kept

    def kernel_seconds(self) -> float:
        """Time of the kernel with the lengths of now, without the launch floor."""
        case = self._case
        launch = self._launch(*add_up(self._now.kept, self._now.totals, case.plan.k, self._total))
        units = unit_costs(self._blocks, self._starts, case.plan.schedule)
        placement = place_units(self._seats, units.alone, units.demand)
        ends, sm = placement.slot_finish, placement.sm
        return float(settled_seconds(ends, sm, units.quiet, launch, self._chip, CLOCK_ROUNDS))

    def _launch(self, longest: int, in_step: float) -> Launch:
        plan, gpu, block = self._case.plan, self._case.gpu, self._case.amounts.block
        fma, l2_bytes, c_bytes, partials, a_bytes, index_bytes = self._total.tolist()
        fma += plan.blocks * float(block[Quantity.FMA])
        l2_bytes += plan.blocks * float(block[Quantity.L2])
        c_bytes += plan.blocks * float(block[Quantity.C])
        read = self._rows_read(longest)
        again = self._read_again_bytes(read, a_bytes)
        rate = self._case.rates.tensor_fma_per_clk
        return Launch(
            tensor_cycles=fma / rate if rate else 0.0,
            l2_bytes=l2_bytes,
            l2_draw=1.0 if plan.k_order == "box" else 1.0 - (1.0 - gpu.clock_in_step_l2) * in_step,
            stored_bytes=c_bytes + partials,
            c_bytes=c_bytes,
            dram_bytes=a_bytes + read.rows * read.bytes_per_token * plan.n + c_bytes + index_bytes + again,
        )

    def _rows_read(self, longest: int) -> RowsRead:
        """All of them where a tile keeps all columns."""
        least = -(-longest // self._read.columns_per_row)
        return self._read if least <= self._read.rows else self._read._replace(rows=least)

    def _read_again_bytes(self, read: RowsRead, a_bytes: float) -> float:
        """As in `traffic.py`."""
        plan, gpu, pieces = self._case.plan, self._case.gpu, self._pieces
        bytes_per_token = max(read.rows, 1) * read.bytes_per_token
        items = plan.item_count
        footprint = a_bytes + plan.n * bytes_per_token + pieces.written_bytes
        if footprint <= gpu.l2_usable_bytes or not items:
            return 0.0
        read_pieces(
            self._lists.kind,
            self._lists.cost,
            self._now.columns,
            max(read.rows, 1),
            read.columns_per_row,
            pieces.a_bytes,
            pieces.b_share,
        )
        again = fetch_again(
            pieces.order,
            pieces.wave,
            self._now.piece,
            pieces.b_key,
            pieces.a_bytes,
            pieces.b_bytes * max(read.rows, 1),
            pieces.c_bytes,
            pieces.b_share,
            float(gpu.l2_usable_bytes),
            items,
            pieces.ranges,
        )
        return float(again)


def _lists(case: Case, starts: Starts) -> Lists:
    work, tiles = case.plan.work, case.plan.tiles
    table = item_table(case)
    block_k = case.plan.shape.block_k
    counts = np.bincount(work.tile, minlength=tiles.tile_count)
    return Lists(
        item=np.lexsort((work.k_start, work.tile)).astype(np.int64),
        item_start=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        k_start=work.k_start.astype(np.int64),
        k_stop=work.k_stop.astype(np.int64),
        kept=tiles.kept_per_tile.astype(np.int64),
        cut_unit=1 if np.any(work.k_start % block_k) else block_k,
        kind=table.kind,
        cost=table.cost,
        wait=starts.wait,
    )


def _room(plan: KernelPlan) -> Now:
    items, tiles = plan.item_count, plan.tiles.tile_count
    return Now(
        kept=np.full(tiles, -1, np.int64),
        columns=np.zeros(items, np.int64),
        piece=np.zeros(items, np.int64),
        fetch=np.zeros(items),
        fetch_last=np.zeros(items),
        multiply=np.zeros(items),
        last=np.zeros(items),
        edge=np.zeros(items),
        demand=np.zeros(items),
        wait=np.zeros(items),
        totals=np.zeros((tiles, FIELDS - TOTALS)),
    )


def _blocks(case: Case, starts: Starts, now: Now) -> BlockLists:
    """The items of `now`, whose arrays they share."""
    lists = lists_of(case, item_costs(case), starts)
    return lists._replace(
        fetch=now.fetch,
        fetch_last=now.fetch_last,
        multiply=now.multiply,
        last=now.last,
        edge=now.edge,
        demand=now.demand,
        wait=now.wait,
    )


def _pieces(case: Case) -> _Pieces:
    plan, work = case.plan, case.plan.work
    order = run_order(plan, case.blocks_in_flight)
    tokens = (work.token_stop - work.token_start).astype(np.float64)
    b_key, c_bytes = work.token_start.astype(np.int64) // plan.shape.block_n, written_bytes(plan)
    return _Pieces(
        order=order.order.astype(np.int64),
        wave=order.wave.astype(np.int64),
        b_key=b_key,
        b_bytes=tokens * rows_read(plan).bytes_per_token,
        c_bytes=c_bytes,
        written_bytes=float(c_bytes.sum()),
        ranges=int(b_key.max(initial=-1)) + 1,
        a_bytes=np.zeros(plan.item_count),
        b_share=np.zeros(plan.item_count),
    )


def _chip(case: Case, state: str, starts: Starts, launch_s: float) -> Chip:
    gpu = case.gpu
    of_format = gpu.clock_bf16_duty if case.plan.dtype == "bf16" else 1.0
    return Chip(
        sm_count=gpu.sm_count,
        earlier_share=case.earlier_share,
        quiet_cycles=float(gpu.block_start_cycles + gpu.dram_latency_cycles),
        store_drain=starts.store_drain,
        before_b=starts.before_b,
        ends_apart=starts.ends_apart,
        l2_bytes_per_s=float(gpu.l2_bytes_per_s),
        l2_store_bytes_per_s=float(gpu.l2_store_bytes_per_s),
        dram_bytes_per_s=float(gpu.dram_bytes_per_s),
        dram_write_bytes_per_s=float(gpu.dram_write_bytes_per_s),
        launch_s=launch_s - beside_s(case.plan, gpu),
        max_clock_hz=float(gpu.max_clock_hz),
        tensor_activity=tensor_draw(case.plan, gpu) * of_format,
        follow_s=float(gpu.clock_follow_s),
        activity_per_l2_byte=float(gpu.clock_activity_per_l2_byte_per_clk),
        activity_per_dram_byte=float(gpu.clock_activity_per_dram_byte_per_clk),
        activity=np.array(gpu.clock_activity, np.float64),
        clock_hz=np.array(gpu.clock_burst_hz if state == "burst" else gpu.clock_sustained_hz, np.float64),
    )
