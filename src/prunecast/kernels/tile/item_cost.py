"""Cost of a work item of the tile kernel on an SM, for longest-first lists and split-K decisions.

These are simple formulas of a config, evaluated before there is a plan; `prunecast.models` estimates the time
of a plan. `_ConfigCosts` contains the quantities that depend only on the config and the GPU, and is cached.

Work lists of recorded plans follow from these formulas (`tests/validation/test_recorded_plans.py`). Therefore
they do not read instructions of warp programs, which may change, but only the charges for fitted cycles
(`programs.gather`, `walk_of_step`) and the numbers of instructions below.

Samples of block times from the simulator (`models.block_times`) do not replace these formulas; decision 0022
gives the measurements.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.hardware.costs import Costs, load_costs
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import ItemTimes
from prunecast.kernels.tile.config import TileConfig, staging_bytes
from prunecast.kernels.tile.programs.epilogue import copies
from prunecast.kernels.tile.programs.gather import (
    PRODUCER_WARPS,
    copy_overhead,
    edge_waits,
    set_up_wait,
    waits,
)
from prunecast.kernels.tile.programs.warp_programs import walk_of_step
from prunecast.patterns.tile_map import IntArray, TileMap
from prunecast.plan.assignment import FEWEST_STEPS_PER_PART, ItemCost
from prunecast.plan.program import Charge, total
from prunecast.plan.tensor_rate import fma_per_clk
from prunecast.plan.tile_rows import kept_per_piece

LANES_BYTES = 512
"""Maximum bytes that the 32 lanes of a warp load with one instruction, 16 each. Kind: definition, PTX ISA."""
ISSUES_PER_K16, ISSUES_PER_COPY = 26, 2
"""Instructions of a producer warp per 16 columns, and in addition per copy of rows of B, with which work
lists are made. Kind: as-compiled, sm_90a, the kernel of the recorded plans (2026-11-21)."""


class _ConfigCosts(NamedTuple):
    """Costs of a config on a GPU, independent of the tiles; in SM cycles unless stated otherwise."""

    slots: int
    """Maximum number of resident blocks per SM."""
    gathers: bool
    """True if producer warps gather rows of B, and other warps multiply."""
    weight_bytes: int
    """Bytes of weights that a block copies per 16 columns."""
    element_bytes: int
    output_bytes: int
    """Bytes of an element of C; `element_bytes` are the bytes of an element of B."""
    port_bytes: int
    """Bytes per 16 columns that are charged to the shared-memory port in addition to the copied bytes:
    operands of tensor instructions and the overhead of copies."""
    tensor: float
    """Cycles for which a k-step occupies the tensor pipes."""
    overhead: float
    """Cycles of an item in addition to its k-steps and its store of C."""
    store_share: float
    """Fraction of the store of C for which the item waits."""
    fix_up: float
    issues: float = 0.0
    """Issue cycles of a producer warp per 16 columns while it first fills the pipeline stages."""
    refill_issues: float = 0.0
    """Additional issue cycles of a producer warp per 16 columns after the stages have been filled once."""
    edge_issues: float = 0.0
    """Additional issue cycles of a producer warp per 16 columns if the token range of the tile extends beyond
    N."""
    chain: float = 0.0
    """Cycles of a k-step if the same warps copy and multiply; 0 if separate producer warps copy."""
    wait: float = 0.0
    """Cycles until the list entry and the column indices of an item arrive; these loads queue after
    gathers."""
    next_item: float = 0.0
    """Cycles of a producer warp between two items."""
    start: float = 0.0
    """Cycles of a block's prologue."""


@lru_cache(maxsize=1024)
def _config_costs(config: TileConfig, gpu: GpuSpec) -> _ConfigCosts:
    """Return the costs of an item that do not depend on its tile.

    All forms: `tensor` = FMA of a k-step / rate of the tensor pipes; `fix_up` = (4 block_m block_n / L2 port
    rate + L2 latency) * `fix_up_over_transfer`. On wgmma, producer warps gather B (`gathers`): their issues
    and waits, and the epilogue, are those of `programs/gather.py`. On mma and CUDA cores, the same warps copy
    and multiply, one after the other (`chain`).
    """
    costs, shape = load_costs("prunecast.kernels.tile", gpu.compute_capability), config.shape
    gathers = config.tensor_path == "wgmma" and not config.is_sparse
    passing = config.operand_bytes_per_warp_per_k16 * config.consumer_warps
    rate = fma_per_clk(gpu, config.dtype, config.tensor)
    tensor = config.fma_per_warp_per_k16 * config.consumer_warps * (shape.block_k / 16) / rate
    sums = shape.block_m * shape.block_n * 4 / gpu.l2_port_bytes_per_clk_per_sm + gpu.l2_latency_cycles
    common = _ConfigCosts(
        slots=occupancy(config.resources, gpu).blocks_per_sm,
        gathers=gathers,
        weight_bytes=config.weight_bytes_per_k16,
        element_bytes=config.element_bytes,
        output_bytes=config.output_bytes,
        port_bytes=passing,
        tensor=tensor,
        overhead=costs["item_cycles"],
        store_share=0.0 if config.is_sparse else 1.0,
        fix_up=costs["fix_up_over_transfer"] * sums,
    )
    if gathers:
        wait, tile_bytes = gpu.gather_latency_cycles / 2, shape.block_m * shape.block_n * config.output_bytes
        row_copies = copies(16 * shape.block_n * config.element_bytes // PRODUCER_WARPS)
        before_item = total((*set_up_wait(config), Charge("next_item_wait")), costs)
        rounds = max(tile_bytes // staging_bytes(shape, config.output_bytes), 1)
        return common._replace(
            port_bytes=passing + PRODUCER_WARPS * round(total(copy_overhead(config), costs)),
            overhead=wait + costs["entry_issues"] + _epilogue_cycles(config, rounds, gpu, costs),
            store_share=(rounds - 1) / rounds,
            issues=ISSUES_PER_K16 + ISSUES_PER_COPY * row_copies + total(waits(config), costs),
            refill_issues=costs["refill_wait_per_k16"],
            edge_issues=max(round(total(edge_waits(config), costs)), 0),
            wait=wait,
            next_item=costs["next_item_wait"],
            start=float(before_item + gpu.dram_latency_cycles + gpu.block_start_cycles),
        )
    if config.is_sparse:
        return common
    walk = 0.0
    if config.tensor_path == "mma":
        *issued, waited = walk_of_step(config)
        warps = config.consumer_warps / gpu.sub_partitions_per_sm
        walk = total((waited,), costs) + total(tuple(issued), costs) * warps
    return common._replace(chain=chain_cycles(config, tensor, gpu, walk))


def item_cost(config: TileConfig, kept: IntArray, rows: int, n: int, gpu: GpuSpec) -> ItemCost:
    """Return the costs of the items of a config, with as many resident blocks per SM as fit.

    Parameters
    ----------
    kept : (tiles,) kept columns of each tile; no tile is taller than the config's block
    rows : number of rows of all tiles
    n : number of tokens
    """
    own, shape, ranges = _config_costs(config, gpu), config.shape, -(-n // config.shape.block_n)
    k16, tiles = shape.block_k / 16, max(kept.size, 1)
    items = tiles * ranges
    tokens = -(-n // ranges) if own.gathers else min(shape.block_n, n)
    copied = own.weight_bytes + tokens * 16 * own.element_bytes
    passing = (own.port_bytes + copied) * k16 / gpu.shared_bytes_per_clk_per_sm
    port = copied * k16 / gpu.l2_port_bytes_per_clk_per_sm
    # Time to store the C of a mean item while all SMs that have an item store, too
    l2_share = gpu.l2_store_bytes_per_s / gpu.max_clock_hz / min(items, gpu.sm_count)
    c_bytes = float(rows) * n * own.output_bytes / items
    store = own.store_share * (c_bytes / min(gpu.store_bytes_per_clk_per_sm, l2_share))
    cost = ItemCost(
        step=max(own.tensor, passing) * own.slots,
        overhead=own.overhead + store,
        fix_up=own.fix_up,
        slots=own.slots,
    )
    if not own.gathers:
        l2_rate = gpu.l2_bytes_per_s / gpu.clock_burst_hz[-1] / min(items, gpu.sm_count)
        step = max(cost.step, port * own.slots, copied * k16 / l2_rate * own.slots)
        return cost._replace(step=step, fetch=own.chain, fetch_overhead=cost.overhead if own.chain else 0.0)
    # The maximum of the gather port, latency over the stages in flight, and issue
    fewest, stages = shape.block_k + 16, config.resources.stages
    gathered = tokens * shape.block_k * own.element_bytes / gpu.gather_bytes_per_clk_per_sm
    steps = float((-(-np.maximum(kept, fewest) // shape.block_k)).sum()) / tiles
    refilled = max(1.0 - stages / max(steps * max(items / gpu.sm_count, 1.0), 1.0), 0.0)
    issues = own.issues + refilled * own.refill_issues
    issues += (1.0 / ranges if n % shape.block_n else 0.0) * own.edge_issues
    latency = (gathered + gpu.gather_latency_cycles) / stages
    fetch = max(port + 4, gathered, latency, issues * shape.block_k / 16)
    return cost._replace(
        fetch=fetch,
        fetch_overhead=max(cost.overhead - stages * fetch, own.wait) + own.next_item,
        fewest_columns=fewest,
        start=own.start,
    )


def item_times(
    configs: Sequence[TileConfig],
    tiles: TileMap,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    *,
    persistent: bool,
    splits: bool = False,
) -> list[ItemTimes]:
    """Return the `ItemTimes` of each config, by which configs are ranked.

    Parameters
    ----------
    tiles : tiles of any height; tiles taller than a config's block are cut
    n, dtype : number of tokens, and the format of the configs
    persistent : True if each block processes a list of items; otherwise each item has its own block
    splits : True if the planner splits tiles along K
    """
    kept = {height: kept_per_piece(tiles, height) for height in {config.shape.block_m for config in configs}}
    found = []
    for config in configs:
        own, pieces, block_k = _config_costs(config, gpu), kept[config.shape.block_m], config.shape.block_k
        cost = item_cost(config, pieces, tiles.row_index.size, n, gpu)
        columns = np.maximum(pieces, cost.fewest_columns).astype(np.float64)
        k16, ranges = np.ceil(columns / 16), -(-n // config.shape.block_n)
        pipe = k16 * 16 / block_k * cost.step / max(cost.slots, 1)
        fetch = np.ceil(columns / block_k) * cost.fetch + cost.fetch_overhead
        first_stage = cost.start + gpu.gather_latency_cycles + gpu.barrier_latency_cycles
        once, each = (first_stage, 0.0) if persistent else (0.0, first_stage)
        longest, all_k16 = -(-int(pieces.max(initial=0)) // block_k), float(k16.sum())
        weight_bytes = all_k16 * own.weight_bytes
        times = ItemTimes(
            alone=np.maximum(pipe + cost.overhead, fetch) + each,
            pipe=pipe,
            ranges=ranges,
            slots=cost.slots,
            weight_bytes=weight_bytes,
            read_bytes=weight_bytes * ranges + all_k16 * 16 * n * own.element_bytes,
            once=once,
            prologue=cost.start if persistent else 0.0,
            fix_up=cost.fix_up if splits and longest >= 2 * FEWEST_STEPS_PER_PART else None,
        )
        found.append(times)
    return found


def chain_cycles(config: TileConfig, tensor: float, gpu: GpuSpec, walk: float = 0.0) -> float:
    """Return the cycles of a k-step if the same warps copy and multiply, with several warps per scheduler.

    Parameters
    ----------
    tensor : cycles for which the k-step occupies the tensor pipes
    walk : cycles of the k-step for step records, column indices and addresses, in addition to copies, reads
        and products
    """
    warps, rate = config.consumer_warps, gpu.shared_bytes_per_clk_per_sm
    abreast = -(-warps // gpu.sub_partitions_per_sm)
    operands, copied = config.operand_bytes_per_warp_per_k16, config.share_bytes_per_k16
    issues = config.instructions_per_k16 + (operands + 2 * copied / warps) / LANES_BYTES + 3
    wait = gpu.shared_latency_cycles + warps * operands / rate
    if config.tensor_path == "registers":
        wait += gpu.shared_latency_cycles + copied / rate
    own = config.shape.block_k / 16 * (wait + abreast * issues) + gpu.sync_latency_cycles + walk
    return max(own, tensor / abreast)


def _epilogue_cycles(config: TileConfig, rounds: int, gpu: GpuSpec, costs: Costs) -> float:
    """Return the cycles in which a consumer warp converts C and fills its staging buffer `rounds` times,
    without waits for the store.
    """
    of_warp = config.shape.block_m * config.shape.block_n * config.output_bytes / config.consumer_warps
    issues = of_warp / config.output_bytes / 64 + costs["round_issues"] + of_warp / LANES_BYTES
    return issues + rounds * gpu.shared_latency_cycles + of_warp / gpu.shared_bytes_per_clk_per_sm
