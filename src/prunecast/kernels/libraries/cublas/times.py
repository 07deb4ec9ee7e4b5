"""How long each form of the dense kernel takes, by arithmetic on arrays of forms: for choosing between them.

The physics of the performance model on equal items: a step takes as long as the slowest of tensor cores,
shared memory, the SM's port and the warps' own waits; the end of an item hides only behind what the copies
run ahead; the busiest SM counts; L2 and DRAM bound the launch. A second kernel adds parts along K up.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.cublas.clusters import in_large_clusters, one_line_cycles, sharing_blocks
from prunecast.kernels.libraries.cublas.forms import MOST_TILE_ALONE
from prunecast.kernels.libraries.cublas.launches import counter_seconds, reduction_seconds
from prunecast.kernels.libraries.cublas.programs import GROUP_CYCLES, operand_bytes
from prunecast.kernels.libraries.cublas.start import first_stage_cycles
from prunecast.kernels.libraries.cublas.taken import PAIRS_BELIEVED, SMALL_SIDE
from prunecast.kernels.tile.config import TileConfig, wgmma_use
from prunecast.kernels.tile.step_cost import pace_of_warps
from prunecast.plan.tensor_rate import tensor_fma_per_clk

__all__ = ["FormTimes", "form_times", "uncut_times"]

FloatArray = npt.NDArray[np.float64]

MOST_PARTS = 32
FEWEST_STEPS_PER_PART = {"wgmma": 21, "mma": 4, "registers": 64}
"""Of a part along K. On sm_90 the fewest of 70 named products that are cut (21 to 27 where that limits
their parts); the others fitted, A100 table, V100 table (products of K up to 2816 are not cut there)."""
NARROWEST_TILE = 64
"""Rows of one of the two operands in a tensor instruction of a warpgroup."""
NARROW_WARP_PRODUCT = 16
"""Rows or tokens of a product above which no warp-level tile is narrower than 64 (A100 table)."""
ISSUES_PER_PAIR = {"wgmma": 1.25, "mma": 5.0, "registers": 5.0}
"""Issue cycles in which a lane converts two sums and turns them in shared memory."""
EDGE_ISSUES = 100
"""Start and end of an item beside that: addresses, barriers, fences."""


UNHIDDEN = {"wgmma": 0.5, "mma": 1.0, "registers": 4.0}
"""Share of the shorter of SM time and chip time that the longer one is taken not to hide when forms are
compared: libraries prefer tiles that read less to tiles that fill SMs a little better. Fitted (RTX 3090: 768
rows run in tiles of 128 x 128, not 128 x 64, as they do from 0.9 on; H200 records: 0.3 to 0.6; V100: 4)."""


class FormTimes(NamedTuple):
    """Seconds of forms (rows) cut into parts along K (columns), infinite where there are too few k-steps."""

    seconds: FloatArray
    """(forms, parts)"""
    parts: npt.NDArray[np.int64]
    """(parts,)"""
    step_cycles: FloatArray
    """(forms,): of one block that has its SM to itself."""


class _Table(NamedTuple):
    """What does not depend on the product, one entry per form."""

    block_m: FloatArray
    block_n: FloatArray
    block_k: FloatArray
    row_bytes: FloatArray
    element_bytes: FloatArray
    pair: FloatArray
    slots: FloatArray
    stages: FloatArray
    tensor: FloatArray
    """SM cycles of a step in the tensor pipes."""
    shared: FloatArray
    """The same of shared memory."""
    chain: FloatArray
    """SM cycles from a step to the next that the warps' own waits take."""
    chain_alone: FloatArray
    """The same where an SM has one item, which one warpgroup multiplies."""
    edge: FloatArray
    """SM cycles around the steps, stores of C aside."""
    turn: FloatArray
    """SM cycles in which C passes shared memory."""
    unhidden: FloatArray
    fewest: FloatArray
    """K-steps of a part."""
    ahead: FloatArray
    """1 where warps of their own copy and so run ahead of the item's end, else 0."""


def form_times(forms: tuple[TileConfig, ...], m: int, k: int, n: int, gpu: GpuSpec) -> FormTimes:
    """Time of every form with every sensible number of parts, launch floor left out."""
    table = _table(forms, gpu)
    parts = _parts(k, table)
    steps_in_all = np.ceil(k / table.block_k)
    steps = np.ceil(steps_in_all[:, None] / parts)
    tiles = np.ceil(m / table.block_m) * np.ceil(n / table.block_n)
    items = tiles[:, None] * parts
    start = table.ahead[:, None] * _start(table, m, k, n, parts, gpu)
    sm_cycles = _sm_cycles(table, m, n, steps, items.astype(np.float64), start, gpu)
    clock_hz = gpu.clock_burst_hz[0]
    cut = _cut_by_rule(tiles, steps_in_all, gpu)
    chip_s = _chip_seconds(table, m, k, n, tiles, cut, gpu)
    quiet_s = (gpu.block_start_cycles + gpu.dram_latency_cycles) / clock_hz
    sm_s, chip_s = sm_cycles / clock_hz, chip_s[:, None] + quiet_s
    seconds = np.maximum(sm_s, chip_s) + table.unhidden[:, None] * np.minimum(sm_s, chip_s)
    seconds = seconds + np.array([reduction_seconds(m, n, int(count), gpu) for count in parts])
    seconds = seconds + np.where(parts > 1, 4.0 * m * n * parts / gpu.l2_store_bytes_per_s, 0.0)
    seconds = seconds + counter_seconds(items.astype(np.float64), gpu)
    refused = (parts > 1) & (steps < table.fewest[:, None])
    refused |= (table.ahead[:, None] > 0) & (parts != cut[:, None])
    refused |= ~_not_too_large(table, m, n)[:, None]
    return FormTimes(np.where(refused, np.inf, seconds), parts, _step_cycles(table))


def _step_cycles(table: _Table) -> FloatArray:
    return np.asarray(np.maximum(np.maximum(table.tensor, table.shared), table.chain))


def uncut_times(forms: tuple[TileConfig, ...], m: int, k: int, n: int, gpu: GpuSpec) -> FormTimes:
    """What the library for sm_90 goes by where it does not cut K, see `taken`.

    What the busiest SM has to do, and then what it reads of its share of L2, as if no block shared a read.
    """
    table = _table(forms, gpu)
    one = np.ones(1, np.int64)
    tiles = np.ceil(m / table.block_m) * np.ceil(n / table.block_n)
    steps = np.ceil(k / table.block_k)
    start = _start(table, m, k, n, one, gpu)
    sm_cycles = _sm_cycles(table, m, n, steps[:, None], tiles[:, None], start, gpu)[:, 0]
    reads = np.ceil(tiles / gpu.sm_count) * steps * (table.block_m + table.block_n) * table.row_bytes
    seconds = sm_cycles / gpu.clock_burst_hz[0] + reads * gpu.sm_count / gpu.l2_bytes_per_s
    seconds = seconds + counter_seconds(tiles, gpu)
    seconds *= np.where(in_large_clusters(table.block_m, table.block_n, m, n), 1.0, PAIRS_BELIEVED)
    filled = m >= SMALL_SIDE and 2 * math.ceil(m / SMALL_SIDE) * math.ceil(n / SMALL_SIDE) > gpu.sm_count
    too_small = filled & (table.block_m * table.block_n < SMALL_SIDE**2)
    seconds = np.where(_not_too_large(table, m, n) & ~too_small, seconds, np.inf)
    return FormTimes(seconds[:, None], one, _step_cycles(table))


def _cut_by_rule(tiles: FloatArray, steps: FloatArray, gpu: GpuSpec) -> FloatArray:
    """(forms,): into how many parts the library for sm_90 cuts, whether it pays or not.

    Of 300 named products none with over half as many tiles as SMs is cut, and none with fewer and 42 k-steps
    or more is not: 64 tiles of 5120 x 5120 with 128 tokens are cut in two and take 22.5 us, 80 take 18.9
    (own measurements, cuBLAS 13.1, H200, 2026-11-21 and 22).
    """
    most = np.minimum(np.floor(gpu.sm_count / tiles), np.floor(steps / FEWEST_STEPS_PER_PART["wgmma"]))
    return np.asarray(np.where(2 * tiles <= gpu.sm_count, np.clip(most, 1.0, MOST_PARTS), 1.0))


def _parts(k: int, table: _Table) -> npt.NDArray[np.int64]:
    most = int(max(float((np.ceil(k / table.block_k) / table.fewest).max()), 1))
    choices = np.arange(1, MOST_PARTS + 1)
    return choices[choices <= min(most, MOST_PARTS)]


def _not_too_large(table: _Table, m: int, n: int) -> npt.NDArray[np.bool_]:
    """(forms,): tiles within the product, if need be within 64 rows or 64 tokens, or all where none are."""
    fit = _within(table, m, n)
    if min(m, n) > NARROW_WARP_PRODUCT:
        narrow = (table.ahead == 0.0) & (np.minimum(table.block_m, table.block_n) < NARROWEST_TILE)
        fit = fit & ~narrow if (fit & ~narrow).any() else fit
    return fit


def _within(table: _Table, m: int, n: int) -> npt.NDArray[np.bool_]:
    rows, tokens = -(-m // 8) * 8, -(-n // 8) * 8
    wide_rows, wide_tokens = max(rows, NARROWEST_TILE), max(tokens, NARROWEST_TILE)
    for most_rows, most_tokens in ((rows, tokens), (wide_rows, tokens), (wide_rows, wide_tokens)):
        fit = (table.block_m <= most_rows) & (table.block_n <= most_tokens)
        if fit.any():
            return np.asarray(fit)
    return np.ones(table.block_m.size, np.bool_)


def _sm_cycles(
    table: _Table, m: int, n: int, steps: FloatArray, items: FloatArray, start: FloatArray, gpu: GpuSpec
) -> FloatArray:
    """(forms, parts): until the busiest SM is done. `start` comes before a block's first copy."""
    rows, tokens = np.minimum(table.block_m, m), np.minimum(table.block_n, n)
    port = (rows + tokens / table.pair) * table.row_bytes / gpu.l2_port_bytes_per_clk_per_sm
    chain = np.where(items <= gpu.sm_count, table.chain_alone[:, None], table.chain[:, None])
    pace = np.maximum(table.tensor, table.shared)
    pace = np.maximum(pace, table.ahead * one_line_cycles(table.block_m, table.block_n, m, n, gpu))
    pace = np.maximum(pace[:, None], chain)
    store_rate = min(
        gpu.store_bytes_per_clk_per_sm, gpu.l2_store_bytes_per_s / gpu.max_clock_hz / gpu.sm_count
    )
    edge = table.edge + table.turn + rows * tokens * table.element_bytes / store_rate
    ring = table.ahead * table.stages * port
    fetch = steps * port[:, None] + np.maximum(edge - ring, 0.0)[:, None]
    alone = np.maximum(steps * pace + edge[:, None], fetch)
    alone += ((1.0 - table.ahead) * (gpu.l2_latency_cycles + 3 * gpu.sync_latency_cycles))[:, None]
    busy = np.maximum(np.maximum(table.tensor, table.shared), port)
    demand = steps * busy[:, None] + table.turn[:, None]
    lead = gpu.block_start_cycles + gpu.dram_latency_cycles + gpu.barrier_latency_cycles + port
    per_item = np.where(table.ahead > 0, 0.0, lead + gpu.store_latency_cycles)
    once = np.where(table.ahead > 0, lead + gpu.store_latency_cycles, 0.0)
    each = np.ceil(items / gpu.sm_count)
    rounds, rest = np.divmod(each, table.slots[:, None])
    whole = np.maximum(alone + per_item[:, None], table.slots[:, None] * demand)
    last = np.where(rest > 0, np.maximum(alone + per_item[:, None], rest * demand), 0.0)
    return np.asarray(rounds * whole + last + once[:, None] + start)


def _start(table: _Table, m: int, k: int, n: int, parts: npt.NDArray[np.int64], gpu: GpuSpec) -> FloatArray:
    """(forms, parts): cycles until a warp that copies begins."""
    ring = (table.stages * table.block_k)[:, None]
    return first_stage_cycles(
        m, k, n, int(table.element_bytes[0]), ring, parts.astype(np.float64)[None, :], gpu
    )


def _chip_seconds(
    table: _Table, m: int, k: int, n: int, tiles: FloatArray, cut: FloatArray, gpu: GpuSpec
) -> FloatArray:
    """(forms,): that L2 or DRAM work. The library for sm_90 does not seem to reckon with DRAM, which has the
    same to do in all forms: it cuts 4096 x 4096 with 40 tokens in two, where DRAM takes longer than either.
    """
    element = float(table.element_bytes[0])
    shared = sharing_blocks(table.block_m, table.block_n, m, n, cut)
    weights, tokens = (np.where(table.ahead > 0, count, 1.0) for count in shared)
    per_column = np.minimum(table.block_m, m) / weights + np.minimum(table.block_n, n) / tokens
    reads = tiles * per_column * k * element
    l2_s = reads / gpu.l2_bytes_per_s + m * n * element / gpu.l2_store_bytes_per_s
    dram_s = element * (m * k + k * n + m * n) / gpu.dram_bytes_per_s
    return np.asarray(np.maximum(l2_s, np.where(table.ahead > 0, 0.0, dram_s)))


@lru_cache(maxsize=16)
def _table(forms: tuple[TileConfig, ...], gpu: GpuSpec) -> _Table:
    rows = [_entry(form, gpu) for form in forms]
    return _Table(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))


def _entry(form: TileConfig, gpu: GpuSpec) -> tuple[float, ...]:
    shape, element = form.shape, form.element_bytes
    k16, warps = shape.block_k / 16, form.consumer_warps
    area = shape.block_m * shape.block_n
    tensor = area * shape.block_k / tensor_fma_per_clk(gpu, form.dtype, form.tensor)
    written = form.share_bytes_per_k16
    shared = k16 * (operand_bytes(form) * warps + written) / gpu.shared_bytes_per_clk_per_sm
    latency = gpu.warpgroup_latency_cycles if form.tensor_path == "wgmma" else gpu.tensor_latency_cycles
    pairs = area / (64 * warps)
    edge = ISSUES_PER_PAIR[form.tensor_path] * pairs + EDGE_ISSUES + 2 * gpu.shared_latency_cycles + latency
    return (
        shape.block_m,
        shape.block_n,
        shape.block_k,
        shape.block_k * element,
        element,
        form.pair,
        occupancy(form.resources, gpu).blocks_per_sm,
        form.resources.stages,
        tensor,
        shared,
        _chain(form, tensor, gpu),
        _chain_alone(form, tensor, gpu),
        edge,
        2 * area * element / gpu.shared_bytes_per_clk_per_sm,
        UNHIDDEN[form.tensor_path],
        FEWEST_STEPS_PER_PART[form.tensor_path],
        float(form.tensor_path == "wgmma"),
    )


def _chain(form: TileConfig, tensor: float, gpu: GpuSpec) -> float:
    """A warpgroup keeps one step's products under way beside the last ones; eight warps copy and multiply."""
    if form.tensor_path == "wgmma":
        own = tensor * form.warps_per_part / form.consumer_warps
        return (gpu.warpgroup_latency_cycles + GROUP_CYCLES + own) / 2
    return pace_of_warps(form, tensor, gpu)


def _chain_alone(form: TileConfig, tensor: float, gpu: GpuSpec) -> float:
    """One warpgroup reads both operands of its products, or multiplies them, behind their latency."""
    block_m, block_n, block_k = form.shape
    if form.tensor_path != "wgmma" or block_m * block_n > MOST_TILE_ALONE:
        return _chain(form, tensor, gpu)
    use = wgmma_use(block_m, block_n, form.element_bytes, sparse=False)
    reads = use.operand_bytes * block_k / 16 / gpu.shared_bytes_per_clk_per_sm if use else 0.0
    return (gpu.warpgroup_latency_cycles + max(tensor, reads)) / 2
