"""What one item of a form of the tile kernel costs, in simple arithmetic: waits, pipes, and its end."""

from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig, tile_costs
from prunecast.kernels.tile.programs.gather import (
    PRODUCER_WARPS,
    copy_overhead_bytes,
    edge_cycles,
    producer_cycles,
    start_cycles,
)
from prunecast.kernels.tile.programs.mma import walk_of_step
from prunecast.kernels.tile.step_cost import StepCost, pace_of_warps
from prunecast.kernels.tile.wgmma_configs import staging_bytes
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.bind import total

__all__ = [
    "FormItem",
    "FormLoad",
    "FormPace",
    "form_item",
    "form_load",
    "form_pace",
    "index_cycles",
    "lead_cycles",
    "next_item_cycles",
    "stores_behind",
]

ISSUES_PER_PAIR = {"wgmma": 1.25, "mma": 5.0, "registers": 5.0}
"""Issue cycles in which a lane converts two sums and turns them in shared memory; where all warps do it
together, two of them share a scheduler."""
FIXED_EDGE_ISSUES = 100
ROUND_ISSUES = 20
"""Of a warp that rounds its sums before they leave, beside one for every 64 of them."""
ENTRY_ISSUES = 36
"""Of a warp that multiplies, for its next entry in the list and its rows of C."""


class FormLoad(NamedTuple):
    """Items of a form, by their means."""

    items: int
    steps: float
    """K-steps of an item, the last one whole."""
    full_steps: float
    """The same in sixteenths of columns."""
    longest_kept: int
    """Columns of the longest item."""
    tokens: int
    """Of an item, rounded up."""
    c_bytes: float
    """An item's part of C."""
    packed_bytes: float
    """Weights of all tiles."""
    edge_share: float
    """Of the items, those with fewer tokens than a block takes, for which a producer asks one by one."""
    fewest_columns: int
    """That an item multiplies, whatever it keeps; as `KernelPlan.fewest_steps` has it."""

    def longest(self, block_k: int) -> "FormLoad":
        """The same if all items were like the longest one, and lacked tokens if any does."""
        multiplied = max(-(-self.longest_kept // 16) * 16, self.fewest_columns)
        steps, edge_share = float(-(-multiplied // block_k)), float(self.edge_share > 0.0)
        return self._replace(steps=steps, full_steps=multiplied / block_k, edge_share=edge_share)


class FormPace(NamedTuple):
    """SM cycles side by side in a block: the pipes' work, and fetching or a warp's own chain."""

    step: float
    """Of the pipes that multiply, for a full k-step."""
    edge: float
    """At the end of an item."""
    fetch: float
    """For a k-step, full or not, of warps that gather, or of warps that do one thing after another."""
    fetch_edge: float
    """Of the same around an item: on the way to the next, waiting for places in the ring or for columns."""


class FormItem(NamedTuple):
    """SM cycles of an item."""

    alone: float
    """Of a block that has its SM to itself."""
    demand: float
    """That the busiest pipe of the SM works for it."""
    at_end: float
    """More than `alone`, or less, that a block's last one takes: nobody fetches beside it, or turns away."""
    quiet: float
    """At its end, when all that it reads is there."""


def form_load(config: TileConfig, tiles: TileMap, n: int) -> FormLoad:
    """Items of a config on a tile map, from counts alone."""
    shape = config.shape
    high = -(-tiles.rows_per_tile.astype(np.int64) // shape.block_m)
    fewest = shape.block_k + 16 if config.tensor_path == "wgmma" else 0
    multiplied = np.maximum(tiles.kept_per_tile, fewest)
    steps = -(-multiplied // shape.block_k)
    ranges, count = -(-n // shape.block_n), max(int(high.sum()), 1)
    k16 = float(np.dot(high, -(-multiplied // 16)))
    return FormLoad(
        items=int(high.sum()) * ranges,
        steps=float(np.dot(high, steps)) / count,
        full_steps=k16 * 16 / shape.block_k / count,
        longest_kept=int(tiles.kept_per_tile.max(initial=0)),
        tokens=-(-n // ranges),
        c_bytes=float(tiles.rows_per_tile.sum()) * n * config.element_bytes / (count * ranges),
        packed_bytes=k16 * config.weight_bytes_per_k16,
        edge_share=1.0 / ranges if n % shape.block_n else 0.0,
        fewest_columns=fewest,
    )


def form_item(config: TileConfig, load: FormLoad, step: StepCost, gpu: GpuSpec) -> FormItem:
    """Cycles of a mean item whose data keep coming."""
    turn, shared = _turn_cycles(config, gpu), step.shared + _copy_overhead(config, gpu)
    pipes = load.full_steps * max(step.tensor, shared)
    demand = max(pipes, load.full_steps * shared + turn, load.full_steps * step.l2_port)
    pace = form_pace(config, load, step, gpu)
    if config.tensor_path == "wgmma":
        return _gathered_item(pace, load, demand)
    alone = max(pipes, load.steps * pace.fetch) + pace.edge
    return FormItem(max(alone, demand), demand, 0.0, pace.edge)


def form_pace(config: TileConfig, load: FormLoad, step: StepCost, gpu: GpuSpec) -> FormPace:
    """Of a block that has its SM to itself."""
    multiply = max(step.tensor, step.shared + _copy_overhead(config, gpu))
    if _posts_stores(config):
        edge = next_item_cycles(config, gpu) + _posted_edge(config, load, gpu)
    else:
        edge = _edge(config, load, gpu) + _turn_cycles(config, gpu)
    if config.tensor_path != "wgmma":
        edge += gpu.l2_latency_cycles + 3 * gpu.sync_latency_cycles
        own = pace_of_warps(config, step.tensor, gpu) + _walk_cycles(config, gpu)
        return FormPace(multiply, edge, own, edge)
    fetch = max(step.l2_port + 4, _pace_of_gathers(config, load, gpu))
    between = [edge - config.resources.stages * fetch]
    if not config.is_sparse:
        between.append(gpu.gather_latency_cycles / 2)  # its columns come behind gathers
    return FormPace(multiply, edge, fetch, max(*between, 0.0) + tile_costs(gpu)["next_item_wait"])


def _gathered_item(pace: FormPace, load: FormLoad, demand: float) -> FormItem:
    pipes, others = load.full_steps * pace.step, load.steps - 1.0
    alone = max(pipes + pace.edge, load.steps * pace.fetch + pace.fetch_edge, demand)
    fetched = others * pace.fetch
    last = max(load.full_steps - others, 0.0) * pace.step
    at_end = max(pipes, fetched + last) + pace.edge - alone
    return FormItem(alone, demand, at_end, pace.step + pace.edge)


def _walk_cycles(config: TileConfig, gpu: GpuSpec) -> float:
    if config.tensor_path != "mma":
        return 0.0
    *issues, wait = walk_of_step(config)
    abreast = config.consumer_warps / gpu.sub_partitions_per_sm
    return total((wait,), tile_costs(gpu)) + total(tuple(issues), tile_costs(gpu)) * abreast


def _copy_overhead(config: TileConfig, gpu: GpuSpec) -> float:
    """Of the port of shared memory, in a step of a block whose producers gather."""
    if config.tensor_path != "wgmma":
        return 0.0
    per_k16 = PRODUCER_WARPS * copy_overhead_bytes(config, tile_costs(gpu)) / gpu.shared_bytes_per_clk_per_sm
    return config.shape.block_k / 16 * per_k16


def _turn_cycles(config: TileConfig, gpu: GpuSpec) -> float:
    """C into shared memory and, by warps, out of it."""
    passes = 1 if _posts_stores(config) else 2
    return passes * _c_bytes(config) / gpu.shared_bytes_per_clk_per_sm


def _c_bytes(config: TileConfig) -> int:
    """Of a full tile."""
    return config.shape.block_m * config.shape.block_n * config.element_bytes


def _gather_cycles(config: TileConfig, tokens: int, gpu: GpuSpec) -> float:
    """Of the gather port, for a step's rows."""
    return config.shape.block_k * tokens * config.element_bytes / gpu.gather_bytes_per_clk_per_sm


def _pace_of_gathers(config: TileConfig, load: FormLoad, gpu: GpuSpec) -> float:
    """Whole rings are on their way; what a producer warp issues for a stage is a pace of its own."""
    gathered = _gather_cycles(config, load.tokens, gpu)
    on_their_way = (gathered + gpu.gather_latency_cycles) / config.resources.stages
    steps_of_block = load.steps * max(load.items / gpu.sm_count, 1.0)
    refilled = max(1.0 - config.resources.stages / max(steps_of_block, 1.0), 0.0)
    issues = producer_cycles(config, tile_costs(gpu), refilled)
    issues += load.edge_share * edge_cycles(config, tile_costs(gpu))
    issues *= config.shape.block_k / 16
    return max(gathered, on_their_way, issues)


def lead_cycles(config: TileConfig, load: FormLoad, step: StepCost, gpu: GpuSpec) -> float:
    """Until a block's first stage is there, its indices being there."""
    arrival = gpu.dram_latency_cycles + step.l2_port
    if config.tensor_path == "wgmma":
        arrival = max(arrival, gpu.gather_latency_cycles + _gather_cycles(config, load.tokens, gpu))
    return arrival + gpu.barrier_latency_cycles


def index_cycles(config: TileConfig, gpu: GpuSpec, *, persistent: bool) -> float:
    """Before that a producer of its own starts, and waits for its indices and the item no grid brings.

    Blocks that start while the launch before theirs ends have it behind them when that is over.
    """
    if config.tensor_path != "wgmma":
        return 0.0
    return float(
        start_cycles(config, tile_costs(gpu), item_in_memory=not persistent) + gpu.dram_latency_cycles
    )


def next_item_cycles(config: TileConfig, gpu: GpuSpec) -> float:
    """Of warps that multiply, from an item to the next: its entry comes behind gathers.

    A block's first item comes with the launch, or is read while its first stage is on its way.
    """
    return gpu.gather_latency_cycles / 2 + ENTRY_ISSUES if config.tensor_path == "wgmma" else 0.0


def _posted_edge(config: TileConfig, load: FormLoad, gpu: GpuSpec) -> float:
    """Rounding C, and filling its staging buffer time after time, which waits for what the buffer held."""
    of_warp = _c_bytes(config) / config.consumer_warps
    issues = of_warp / config.element_bytes / 64 + ROUND_ISSUES + of_warp / 512
    rounds = _staging_rounds(config)
    fills = rounds * gpu.shared_latency_cycles + of_warp / gpu.shared_bytes_per_clk_per_sm
    return issues + fills + (rounds - 1) / rounds * _store_cycles(load, gpu)


def _staging_rounds(config: TileConfig) -> int:
    """In which a tile of C leaves; as `programs_gather_end` has it."""
    return max(_c_bytes(config) // staging_bytes(config.shape, config.element_bytes), 1)


def _edge(config: TileConfig, load: FormLoad, gpu: GpuSpec) -> float:
    """Converting C, and storing it; as warps do it that go on when it has left."""
    pairs = config.shape.block_m * config.shape.block_n / (64 * config.consumer_warps)
    issues = ISSUES_PER_PAIR[config.tensor_path] * pairs + FIXED_EDGE_ISSUES
    latency = 2 * gpu.shared_latency_cycles + gpu.tensor_latency_cycles
    return _store_cycles(load, gpu) + issues + latency


def _posts_stores(config: TileConfig) -> bool:
    """Whether C leaves while the warps go on; as `programs_gather` has it."""
    return config.tensor_path == "wgmma" and not config.is_sparse


def _store_cycles(load: FormLoad, gpu: GpuSpec) -> float:
    """Of an item's C, while all SMs with an item store."""
    share_of_l2 = gpu.l2_store_bytes_per_s / gpu.max_clock_hz / max(min(load.items, gpu.sm_count), 1)
    return load.c_bytes / min(gpu.store_bytes_per_clk_per_sm, share_of_l2)


def stores_behind(config: TileConfig, load: FormLoad, gpu: GpuSpec) -> float:
    """Cycles from the end of an item's warps until L2 has its C and they know.

    What is posted last is still in the staging buffer then.
    """
    left = _store_cycles(load, gpu) / _staging_rounds(config) if _posts_stores(config) else 0.0
    return gpu.store_latency_cycles + left
