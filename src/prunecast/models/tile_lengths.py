"""`TileLengths`: a plan whose tiles may keep any number of columns, and its time in closed form.

Nothing is remembered but lengths: costs of items are looked up by length, and all sums are made anew for each
time, so that nothing drifts. `incremental.py` says what is promised.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launches.launch_floor import beside_s
from prunecast.kernels.launches.power_draw import tensor_draw
from prunecast.kernels.plan import KernelPlan, Schedule
from prunecast.kernels.tiles.row_lines import store_cost
from prunecast.models.bounds import requests_over_reads
from prunecast.models.case import Case
from prunecast.models.first_weights import first_weights_s, first_weights_share
from prunecast.models.incremental_arrays import CHIP, ClockPoints, Launch, Lists, Now
from prunecast.models.incremental_loops import (
    A_BYTES,
    CYCLES,
    FIELDS,
    TOTALS,
    add_up,
    set_all,
    set_some,
    settled_seconds,
)
from prunecast.models.item_costs import item_costs
from prunecast.models.item_table import ItemTable, item_table
from prunecast.models.loops import BlockLists
from prunecast.models.roofline import CLOCK_ROUNDS, look_up
from prunecast.models.starts import Starts, starts_of
from prunecast.models.strips import tile_of_strip
from prunecast.models.terms import FloatArray, Quantity
from prunecast.models.traffic import RowsRead, rows_read, run_order, written_bytes
from prunecast.models.traffic_loops import fetch_again, read_pieces
from prunecast.models.unit_costs import UnitCosts, lists_of, unit_costs
from prunecast.models.waves import place_units, seats_of
from prunecast.patterns.tile_map import TileMap

__all__ = ["TileLengths"]


class _Pieces(NamedTuple):
    """What `fetch_again` wants, and room for what changes."""

    order: npt.NDArray[np.int64]
    wave: npt.NDArray[np.int64]
    b_key: npt.NDArray[np.int64]
    b_bytes: FloatArray
    """(items,): of the token range of `rows` rows of B."""
    rows: int
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
        table = item_table(self._case)
        self._kind, self._lists = table.kind.astype(np.int64), _lists(self._case, self._starts, table)
        self._now = _room(plan)
        self._blocks = _blocks(self._case, self._starts, self._now)
        units = plan.blocks if plan.schedule is Schedule.STATIC else plan.item_count
        self._seats = seats_of(plan, gpu, self._case.fit.blocks_per_sm, units)
        self._of_blocks, self._total = _of_blocks(self._case), np.zeros(FIELDS - TOTALS)
        self._pieces, self._units = _pieces(self._case), UnitCosts(*np.zeros((3, units)))
        self._fma_per_cycle = self._case.rates.tensor_fma_per_clk
        self._out_of_step = 0.0 if plan.k_order == "box" else 1.0 - gpu.clock_in_step_l2
        self._first_weights = first_weights_share(plan, gpu)
        self._sums_bytes = self._case.traffic.sums_bytes
        self._merged_share = store_cost(plan.programs).fetched
        self._read, self._chip = rows_read(plan), _chip(self._case, self._starts, launch_s)
        self._clock = _clock_points(gpu, state)
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
        now, plan = self._now, self._case.plan
        launch = self._launch(*add_up(now.kept, now.totals, plan.k, self._of_blocks, self._total))
        units = unit_costs(self._blocks, self._starts, plan.schedule, self._units)
        placement = place_units(self._seats, units.alone, units.demand)
        ends, sm = placement.slot_finish, placement.sm
        chip, clock = self._chip, self._clock
        return float(settled_seconds(ends, sm, units.quiet, launch, chip, clock, CLOCK_ROUNDS))

    def _launch(self, longest: int, in_step: float) -> Launch:
        fma, l2_bytes, c_bytes, partials, a_bytes, index_bytes = self._total.tolist()
        read = self._rows_read(longest)
        plan, sums = self._case.plan, self._sums_bytes
        columns = float(self._now.columns.sum())
        read_once = a_bytes + read.rows * read.bytes_per_token * plan.n + index_bytes
        return Launch(
            fma / self._fma_per_cycle if fma else 0.0,
            l2_bytes,
            1.0 - self._out_of_step * in_step,
            c_bytes + partials,
            c_bytes,
            c_bytes + sums,
            read_once + sums + (1.0 + self._merged_share) * c_bytes + self._read_again_bytes(read, a_bytes),
            first_weights_s(plan, self._case.gpu, self._first_weights, a_bytes, columns),
        )

    def _rows_read(self, longest: int) -> RowsRead:
        """All of them where a tile keeps all columns."""
        least = -(-longest // self._read.columns_per_row)
        return self._read if least <= self._read.rows else self._read._replace(rows=least)

    def _read_again_bytes(self, read: RowsRead, a_bytes: float) -> float:
        """As in `traffic.py`."""
        plan, gpu, pieces = self._case.plan, self._case.gpu, self._pieces
        rows, items = max(read.rows, 1), self._now.columns.size
        footprint = a_bytes + plan.n * rows * read.bytes_per_token + pieces.written_bytes
        if footprint <= gpu.l2_usable_bytes or not items:
            return 0.0
        read_pieces(
            self._kind,
            self._lists.cost,
            A_BYTES,
            self._now.columns,
            rows,
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
            pieces.b_bytes if rows == pieces.rows else pieces.b_bytes / pieces.rows * rows,
            pieces.c_bytes,
            pieces.b_share,
            float(gpu.l2_usable_bytes),
            items,
            pieces.ranges,
        )
        return float(again)


def _lists(case: Case, starts: Starts, table: ItemTable) -> Lists:
    work, tiles = case.plan.work, case.plan.tiles
    block_k = case.plan.shape.block_k
    counts = np.bincount(work.tile, minlength=tiles.tile_count)
    order = np.lexsort((work.k_start, work.tile))
    return Lists(
        part=np.stack((order, work.k_start[order], work.k_stop[order], table.kind[order]), axis=1).astype(
            np.int64
        ),
        part_start=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        kept=tiles.kept_per_tile.astype(np.int64),
        cut_unit=1 if np.any(work.k_start % block_k) else block_k,
        cost=table.cost,
        wait=starts.wait,
    )


def _of_blocks(case: Case) -> FloatArray:
    """(fields,) of `Now.totals`: what the launch's blocks add to that of their items."""
    block, found = case.amounts.block, np.zeros(FIELDS - TOTALS)
    found[:3] = block[Quantity.FMA], block[Quantity.L2], block[Quantity.C]
    return case.plan.blocks * found


def _room(plan: KernelPlan) -> Now:
    items, tiles = plan.item_count, plan.tiles.tile_count
    return Now(
        kept=np.full(tiles, -1, np.int64),
        columns=np.zeros(items, np.int64),
        piece=np.zeros(items, np.int64),
        cycles=np.zeros((CYCLES, items)),
        totals=np.zeros((tiles, FIELDS - TOTALS)),
    )


def _blocks(case: Case, starts: Starts, now: Now) -> BlockLists:
    """The items of `now`, whose arrays they share."""
    lists = lists_of(case, item_costs(case), starts)
    fetch, fetch_last, multiply, last, edge, demand, wait = now.cycles
    return lists._replace(
        fetch=fetch,
        fetch_last=fetch_last,
        multiply=multiply,
        last=last,
        edge=edge,
        demand=demand,
        wait=wait,
    )


def _pieces(case: Case) -> _Pieces:
    plan, work = case.plan, case.plan.work
    order = run_order(plan, case.blocks_in_flight)
    tokens, read = (work.token_stop - work.token_start).astype(np.float64), rows_read(plan)
    b_key, c_bytes = work.token_start.astype(np.int64) // plan.shape.block_n, written_bytes(plan)
    return _Pieces(
        order=order.order.astype(np.int64),
        wave=order.wave.astype(np.int64),
        b_key=b_key,
        b_bytes=tokens * read.bytes_per_token * max(read.rows, 1),
        rows=max(read.rows, 1),
        c_bytes=c_bytes,
        written_bytes=float(c_bytes.sum()),
        ranges=int(b_key.max(initial=-1)) + 1,
        a_bytes=np.zeros(plan.item_count),
        b_share=np.zeros(plan.item_count),
    )


def _chip(case: Case, starts: Starts, launch_s: float) -> npt.NDArray[np.void]:
    gpu = case.gpu
    of_format = gpu.clock_bf16_duty if case.plan.dtype == "bf16" else 1.0
    values = {
        "sm_count": gpu.sm_count,
        "earlier_share": case.earlier_share,
        "quiet_cycles": gpu.block_start_cycles + gpu.dram_latency_cycles,
        "store_drain": starts.store_drain,
        "later_rounds": starts.later_rounds,
        "until_b": starts.until_b,
        "before_b": starts.before_b,
        "ends_apart": starts.ends_apart,
        "late_share": starts.late.share,
        "late_most": starts.late.most,
        "late_counted": starts.late.counted,
        "late_start": starts.late.start,
        "spared_scale": starts.spared_scale,
        "l2_bytes_per_s": gpu.l2_bytes_per_s,
        "l2_store_bytes_per_s": gpu.l2_store_bytes_per_s,
        "requests_over_reads": requests_over_reads(case.plan, case.amounts),
        "c_line_cost": store_cost(case.plan.programs).lines,
        "dram_bytes_per_s": gpu.dram_bytes_per_s,
        "dram_write_bytes_per_s": gpu.dram_write_bytes_per_s,
        "launch_s": launch_s - beside_s(case.plan, gpu),
        "max_clock_hz": gpu.max_clock_hz,
        "tensor_activity": tensor_draw(case.plan, gpu) * of_format,
        "follow_s": gpu.clock_follow_s,
        "activity_per_l2_byte": gpu.clock_activity_per_l2_byte_per_clk,
        "activity_per_dram_byte": gpu.clock_activity_per_dram_byte_per_clk,
    }
    return np.array([tuple(values[name] for name in CHIP.names or ())], CHIP)


def _clock_points(gpu: GpuSpec, state: str) -> ClockPoints:
    clock_hz = gpu.clock_burst_hz if state == "burst" else gpu.clock_sustained_hz
    return ClockPoints(np.array(gpu.clock_activity, np.float64), np.array(clock_hz, np.float64))
