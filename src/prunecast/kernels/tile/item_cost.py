"""Cost of a work item of the tile kernel on an SM, for longest-first lists and split-K decisions.

These are simple formulas of a config, evaluated before there is a plan; `prunecast.models` estimates the time
of a plan.
"""

from typing import NamedTuple

import numpy as np

from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import ItemTimes
from prunecast.kernels.tile.config import TileConfig, staging_bytes
from prunecast.kernels.tile.programs.gather import (
    PRODUCER_WARPS,
    copy_overhead_bytes,
    edge_cycles,
    producer_cycles,
    start_cycles,
)
from prunecast.kernels.tile.programs.warp_programs import walk_of_step
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.assignment import FEWEST_STEPS_PER_PART, ItemCost
from prunecast.plan.program import total
from prunecast.plan.tensor_rate import fma_per_clk
from prunecast.plan.tile_rows import kept_per_piece


def item_cost(config: TileConfig, tiles: TileMap, n: int, gpu: GpuSpec) -> ItemCost:
    """Return the costs of items of a config, with as many resident blocks per SM as fit.

    Parameters
    ----------
    tiles : tiles of any height
    n : number of tokens
    """
    load = _load_of(config, tiles, n)
    shape, k16 = config.shape, config.shape.block_k / 16
    slots = occupancy(config.resources, gpu).blocks_per_sm
    gathers = config.tensor_path == "wgmma" and not config.is_sparse
    tokens = load.tokens if gathers else min(shape.block_n, n)
    copied = config.weight_bytes_per_k16 + tokens * 16 * config.element_bytes
    read = config.operand_bytes_per_warp_per_k16 * config.consumer_warps
    rate = fma_per_clk(gpu, config.dtype, config.tensor)
    tensor = config.fma_per_warp_per_k16 * config.consumer_warps * k16 / rate
    sums = shape.block_m * shape.block_n * 4 / gpu.l2_port_bytes_per_clk_per_sm + gpu.l2_latency_cycles
    costs = load_costs("prunecast.kernels.tile", gpu.compute_capability)
    passing = read + copied + (PRODUCER_WARPS * copy_overhead_bytes(config, costs) if gathers else 0)
    cost = ItemCost(
        step=max(tensor, passing * k16 / gpu.shared_bytes_per_clk_per_sm) * slots,
        overhead=costs["item_cycles"],
        fix_up=costs["fix_up_over_transfer"] * sums,
        slots=slots,
    )
    port = copied * k16 / gpu.l2_port_bytes_per_clk_per_sm
    if not gathers:
        busy = min(load.items, gpu.sm_count)
        l2_share = copied * k16 / (gpu.l2_bytes_per_s / gpu.clock_burst_hz[-1] / busy)
        cost = cost._replace(step=max(cost.step, port * slots, l2_share * slots))
        if config.is_sparse:
            return cost
        overhead = costs["item_cycles"] + _store_cycles(config, load, gpu)
        chain = _chain_cycles(config, tensor, gpu, costs)
        return cost._replace(overhead=overhead, fetch=chain, fetch_overhead=overhead)
    fetch = max(port + 4, _gather_cycles(config, load, gpu, costs))
    wait = gpu.gather_latency_cycles / 2  # the loads of an item's entry and indices queue after gathers
    overhead = wait + costs["entry_issues"] + _epilogue_cycles(config, load, gpu, costs)
    return cost._replace(
        overhead=overhead,
        fetch=fetch,
        fetch_overhead=max(overhead - config.resources.stages * fetch, wait) + costs["next_item_wait"],
        fewest_columns=shape.block_k + 16,
        start=float(start_cycles(config, costs) + gpu.dram_latency_cycles + gpu.block_start_cycles),
    )


def item_times(
    config: TileConfig, tiles: TileMap, n: int, gpu: GpuSpec, *, persistent: bool, splits: bool = False
) -> ItemTimes:
    """Return the times of the items of a config, for ranking.

    Parameters
    ----------
    tiles : tiles of any height
    n : number of tokens
    persistent : blocks process a list of items, else each item is a block
    splits : the planner splits tiles along K
    """
    kept = kept_per_piece(tiles, config.shape.block_m)
    cost, block_k = item_cost(config, tiles, n, gpu), config.shape.block_k
    columns = np.maximum(kept, cost.fewest_columns).astype(np.float64)
    k16, ranges = np.ceil(columns / 16), -(-n // config.shape.block_n)
    pipe = k16 * 16 / block_k * cost.step / max(cost.slots, 1)
    alone = np.maximum(pipe + cost.overhead, np.ceil(columns / block_k) * cost.fetch + cost.fetch_overhead)
    first_stage = cost.start + gpu.gather_latency_cycles + gpu.barrier_latency_cycles
    longest = -(-int(kept.max(initial=0)) // block_k)
    weight_bytes = float(k16.sum()) * config.weight_bytes_per_k16
    return ItemTimes(
        alone=alone if persistent else alone + first_stage,
        pipe=pipe,
        ranges=ranges,
        slots=cost.slots,
        weight_bytes=weight_bytes,
        read_bytes=weight_bytes * ranges + float(k16.sum()) * 16 * n * config.element_bytes,
        once=first_stage if persistent else 0.0,
        prologue=cost.start if persistent else 0.0,
        fix_up=cost.fix_up if splits and longest >= 2 * FEWEST_STEPS_PER_PART else None,
    )


class _Load(NamedTuple):
    """Items of a config: their number, and the means of their k-steps, tokens and C."""

    items: int
    steps: float
    tokens: int
    """Mean number of tokens of an item, rounded up."""
    c_bytes: float
    lacking: float
    """Fraction of the items that have fewer tokens than `block_n`."""


def _load_of(config: TileConfig, tiles: TileMap, n: int) -> _Load:
    kept, shape = kept_per_piece(tiles, config.shape.block_m), config.shape
    ranges, fewest = -(-n // shape.block_n), shape.block_k + 16
    items = max(kept.size, 1) * ranges
    return _Load(
        items=items,
        steps=float((-(-np.maximum(kept, fewest) // shape.block_k)).sum()) / max(kept.size, 1),
        tokens=-(-n // ranges),
        c_bytes=float(tiles.row_index.size) * n * config.output_bytes / items,
        lacking=1.0 / ranges if n % shape.block_n else 0.0,
    )


def _chain_cycles(config: TileConfig, tensor: float, gpu: GpuSpec, costs: Costs) -> float:
    """Return the cycles of a k-step if the same warps copy and multiply, with several warps per scheduler.

    Parameters
    ----------
    tensor : cycles of the tensor pipes in a k-step
    """
    warps, rate = config.consumer_warps, gpu.shared_bytes_per_clk_per_sm
    abreast = -(-warps // gpu.sub_partitions_per_sm)
    operands, copied = config.operand_bytes_per_warp_per_k16, config.share_bytes_per_k16
    issues = config.instructions_per_k16 + (operands + 2 * copied / warps) / 512 + 3
    wait = gpu.shared_latency_cycles + warps * operands / rate
    if config.tensor_path == "registers":
        wait += gpu.shared_latency_cycles + copied / rate
    own = config.shape.block_k / 16 * (wait + abreast * issues) + gpu.sync_latency_cycles
    if config.tensor_path == "mma":
        *walk, walk_wait = walk_of_step(config)
        own += total((walk_wait,), costs) + total(tuple(walk), costs) * warps / gpu.sub_partitions_per_sm
    return max(own, tensor / abreast)


def _gather_cycles(config: TileConfig, load: _Load, gpu: GpuSpec, costs: Costs) -> float:
    """Return the cycles of a k-step: the maximum of the gather port, latency over the stages in flight, and
    issue.
    """
    block_k, stages = config.shape.block_k, config.resources.stages
    gathered = block_k * load.tokens * config.element_bytes / gpu.gather_bytes_per_clk_per_sm
    of_block = load.steps * max(load.items / gpu.sm_count, 1.0)
    issues = producer_cycles(config, costs, max(1.0 - stages / max(of_block, 1.0), 0.0))
    issues += load.lacking * edge_cycles(config, costs)
    return max(gathered, (gathered + gpu.gather_latency_cycles) / stages, issues * block_k / 16)


def _epilogue_cycles(config: TileConfig, load: _Load, gpu: GpuSpec, costs: Costs) -> float:
    """Return the cycles in which a consumer warp converts C and fills its staging buffer, including waits."""
    store = _store_cycles(config, load, gpu)
    tile_bytes = config.shape.block_m * config.shape.block_n * config.element_bytes
    of_warp = tile_bytes / config.consumer_warps
    rounds = max(tile_bytes // staging_bytes(config.shape, config.element_bytes), 1)
    issues = of_warp / config.element_bytes / 64 + costs["round_issues"] + of_warp / 512
    fills = rounds * gpu.shared_latency_cycles + of_warp / gpu.shared_bytes_per_clk_per_sm
    return issues + fills + (rounds - 1) / rounds * store


def _store_cycles(config: TileConfig, load: _Load, gpu: GpuSpec) -> float:
    """Return the cycles to store the C of a mean item while all SMs with an item store."""
    l2_share = gpu.l2_store_bytes_per_s / gpu.max_clock_hz / min(load.items, gpu.sm_count)
    return load.c_bytes / min(gpu.store_bytes_per_clk_per_sm, l2_share)
