"""`small-n`: tiles times few tokens, where reading the weights is all the time there is.

One block for up to 64 rows of a tile and all that it keeps; no block is cut along K, none waits for another.
Blocks are small so that all of them are on the GPU at once. Where launches overlap, some SMs get as many as
fit, so that the config decides how long the slowest takes. Rows of B are read once a block.
"""

from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.small_n.configs import (
    WIDTHS,
    SmallConfig,
    k16_instructions,
    small_configs,
    small_resources,
)
from prunecast.kernels.small_n.programs import most_kept, small_programs
from prunecast.kernels.tile.tile_plan import check_tokens
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.kernel_plan import KernelPlan, PlanDoesNotFit
from prunecast.plan.order import assign_hardware
from prunecast.plan.tensor_rate import check_dtype, tensor_fma_per_clk
from prunecast.plan.tile_rows import cut_rows
from prunecast.plan.work_items import raster, take_items, whole_items

__all__ = ["SmallCandidate", "choose_small_n", "plan_small_n"]

MOST_N = WIDTHS[-1]
"""Above it the planner leaves the product to the kernels for many tokens."""

# Fitted together to 390 times of configs on an H200, 1, 16 and 64 tokens (0008)
ISSUE_CYCLES = 0.19
"""Cycles of an SM per warp instruction; four warps issue at once."""
STEP_CYCLES = 800
"""Cycles of a warp for a k16 beside its products: rows of B are requested, arrive and are read."""
SUM_BYTES_PER_CYCLE = 40
"""Bytes per cycle and SM at which the sums of all warps go through shared memory."""
START_CYCLES = 55
"""For each k16 of a ring that has to be filled before a warp begins."""


class SmallCandidate(NamedTuple):
    """A config and what it would take."""

    config: SmallConfig
    blocks: int
    blocks_per_sm: int
    seconds: float
    """Without what a launch costs whatever its config is."""


def plan_small_n(
    tiles: TileMap, n: int, dtype: str, gpu: GpuSpec, *, config: SmallConfig | None = None
) -> KernelPlan:
    """Plan the product of a tile map with few tokens.

    Parameters
    ----------
    config : one of `choose_small_n` or any other, or None for the first of them; a given config takes more
        tokens than fit in its block in turn

    Raises
    ------
    BadInput : n below 1, or above 64 without a config, a dtype other than fp16 and bf16, or a GPU without
        asynchronous copies
    PlanDoesNotFit : no config of the kernel fits
    """
    found = choose_small_n(tiles, n, dtype, gpu) if config is None else []
    if config is None and not found:
        raise PlanDoesNotFit(f"small-n: no config of the kernel fits on an SM of {gpu.name}")
    config = config or found[0].config
    _check(n, dtype, gpu)
    tiles = cut_rows(tiles, config.block_m)
    order = raster(tiles.tile_count, -(-n // config.block_n), 1)
    items = whole_items(tiles.kept_per_tile, order, n=n, block_n=config.block_n)
    assigned = assign_hardware(take_items(items, np.argsort(-items.k_stop, kind="stable")))
    return KernelPlan(
        kernel="small-n",
        n=n,
        dtype=dtype,
        tiles=tiles,
        work=assigned.work,
        schedule=assigned.schedule,
        blocks=assigned.blocks,
        shape=config.shape,
        resources=small_resources(config, n),
        programs=small_programs(
            config, n, dtype, most_kept=most_kept(tiles), row_cycles=gpu.dram_latency_cycles
        ),
        tensor="mma",
        pdl=gpu.compute_capability >= 90,
    )


def choose_small_n(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> list[SmallCandidate]:
    """Every config that fits on an SM, fastest first.

    Raises
    ------
    BadInput : as `plan_small_n`
    """
    _check(n, dtype, gpu)
    if n > MOST_N:
        raise BadInput(f"small-n: takes at most {MOST_N} tokens, got {n}")
    found = []
    for config in small_configs(n):
        fit = occupancy(small_resources(config, n), gpu).blocks_per_sm
        if fit > 0:
            found.append(_candidate(config, tiles, n, gpu, fit))
    return sorted(found, key=lambda c: c.seconds)


def _candidate(config: SmallConfig, tiles: TileMap, n: int, gpu: GpuSpec, fit: int) -> SmallCandidate:
    """Memory, or the SM that has most: launches overlap, so their blocks pile up on it, as many as fit."""
    per_tile = -(-tiles.rows_per_tile.astype(np.int64) // config.block_m)
    ranges = -(-n // config.block_n)
    k16 = -(-tiles.kept_per_tile.astype(np.int64) // 16)
    blocks = max(int(per_tile.sum()) * ranges, 1)
    waves = -(-blocks // (fit * gpu.sm_count))
    on_sm = min(fit, blocks) * waves
    mean_k16, most_k16 = float((per_tile * k16).sum()) * ranges / blocks, int(k16.max(initial=0))
    memory = 32.0 * config.block_m * float((per_tile * k16).sum()) * ranges + 2.0 * n * (tiles.k + tiles.m)
    sums = 2.0 * config.warps * config.block_m * config.block_n * 4
    cycles = (
        max(on_sm * mean_k16, most_k16) * k16_instructions(config, n) * ISSUE_CYCLES
        + waves * -(-most_k16 // config.warps) * STEP_CYCLES
        + on_sm * sums / SUM_BYTES_PER_CYCLE
    )
    clock = gpu.clock_burst_hz[0]
    slowest = max(memory / gpu.dram_bytes_per_s, cycles / clock)
    return SmallCandidate(config, blocks, fit, slowest + config.depth * START_CYCLES / clock)


def _check(n: int, dtype: str, gpu: GpuSpec) -> None:
    check_tokens(n)
    check_dtype(dtype)
    if dtype not in ("fp16", "bf16"):
        raise BadInput(f"small-n: dtype must be fp16 or bf16, got {dtype!r}; fp32 needs another kernel")
    if gpu.compute_capability < 80:
        raise BadInput(f"small-n: needs compute capability 8.0, {gpu.name} has {gpu.compute_capability / 10}")
    tensor_fma_per_clk(gpu, dtype, "mma")
