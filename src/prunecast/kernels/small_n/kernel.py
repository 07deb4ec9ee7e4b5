"""`small-n`: planner and record of the kernel for tiles and few tokens, whose time is bound by reading the
weights.

A block has up to 64 rows of a tile and all its kept columns. There is no split-K, and no block waits for
another. Blocks are small so that all of them are resident at once. With overlapping launches (programmatic
dependent launch, PDL), some SMs get as many blocks as fit, so that the config determines the time of the
slowest SM. Every block reads its rows of B once.

A plan contains the maximum number of registers that a config may use on any architecture. The tables here
contain the registers as compiled for sm_90a (CUDA 13), rounded up to the allocation unit of eight.
"""

import sys

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.costs import load_costs
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.kernel import Entry, ItemTimes, Kernel, LaunchTraits, Sources, of_each
from prunecast.kernels.small_n.configs import (
    WIDTHS,
    SmallConfig,
    small_configs,
)
from prunecast.kernels.small_n.programs import most_kept, small_programs, with_early_blocks
from prunecast.kernels.tile.tile_plan import check_tokens
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.assignment import assign_hardware, take_items
from prunecast.plan.expert_items import expert_items
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.tensor_rate import check_own_dtype, tensor_fma_per_clk
from prunecast.plan.tile_rows import cut_rows, kept_per_piece
from prunecast.plan.work_items import raster_items

HOPPER = 90
"""Compute capability, times ten, for which the tables contain the compiled registers. Kind: definition,
sm_90a."""
_IN_PIECES = {
    (16, 8): 56,
    (16, 16): 64,
    (16, 32): 64,
    (16, 64): 80,
    (32, 8): 56,
    (32, 16): 56,
    (32, 32): 80,
    (32, 64): 112,
    (64, 8): 64,
    (64, 16): 80,
    (64, 32): 120,
    (64, 64): 192,
}
"""Rows and tokens of a block -> registers per thread, if a lane copies its part of a row of B in aligned
copies of 4 to 16 bytes, or as one word. Kind: as-compiled, sm_90a, CUDA 13."""
_BY_WORDS = {
    (16, 16): 64,
    (16, 32): 80,
    (16, 64): 120,
    (32, 16): 72,
    (32, 32): 88,
    (32, 64): 128,
    (64, 16): 88,
    (64, 32): 120,
    (64, 64): 200,
}
"""Rows and tokens of a block -> registers per thread, if a lane copies its part of a row of B as several
words. With 64 registers, two blocks of 16 x 16 and 16 warps fit on an SM; with 80, one. Kind: as-compiled,
sm_90a, CUDA 13."""
_SHORT_RINGS = {(4, 4): 48, (4, 8): 48, (6, 8): 56}
"""Depth and warps -> registers per thread of 16 x 16 blocks that need fewer than `_IN_PIECES`. Kind:
as-compiled, sm_90a, CUDA 13."""
MOST_N = WIDTHS[-1]
"""Maximum number of tokens for which there are configs; other kernels run more. Kind: choice, the last of
`WIDTHS`."""


def _plan_small_n(
    tiles: TileMap, n: int, dtype: str, gpu: GpuSpec, config: SmallConfig, *, loads: tuple[int, ...] = ()
) -> KernelPlan:
    """Return the plan of a product of a tile map with few tokens.

    Parameters
    ----------
    config : any config; if `n` exceeds the tokens of its block, there are several token ranges
    loads : number of tokens of each expert, if `tiles` is the map of several experts' matrices stacked along
        M; `n` is then ignored

    Raises
    ------
    BadInput : n below 1, a dtype other than fp16 and bf16, or a GPU without asynchronous copies
    """
    _check(n, dtype, gpu)
    tiles = cut_rows(tiles, config.block_m)
    if loads:
        items, n = expert_items(tiles, loads, config.block_n)
    else:
        items = raster_items(tiles.kept_per_tile, n=n, block_n=config.block_n)
        items = take_items(items, np.argsort(-items.k_stop, kind="stable"))
    assigned = assign_hardware(items)
    return KernelPlan(
        kernel="small-n",
        n=n,
        dtype=dtype,
        tiles=tiles,
        **assigned._asdict(),
        shape=config.shape,
        resources=config.resources(n),
        programs=small_programs(config, n, dtype, most_kept=most_kept(tiles)),
        tensor="mma",
        experts=max(len(loads), 1),
        pdl=gpu.compute_capability >= 90,
        config=config,
    )


def _small_n_configs(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> tuple[SmallConfig, ...]:
    """Return every config that fits on an SM.

    Raises
    ------
    BadInput : n above 64; and in the same cases as `_plan_small_n`
    """
    _check(n, dtype, gpu)
    if n > MOST_N:
        raise BadInput(f"small-n: takes at most {MOST_N} tokens, got {n}")
    return tuple(c for c in small_configs(n) if occupancy(c.resources(n), gpu).blocks_per_sm > 0)


def _small_n_times(config: SmallConfig, tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> ItemTimes:
    """Return the estimated times of the items of a config.

    They include the instructions of all warps on the SM's schedulers, the exchange of all warps' sums through
    shared memory, and the DRAM latency once per k-step, in which each warp processes one k16 (16 kept
    columns).
    """
    k16 = -(-kept_per_piece(tiles, config.block_m) // 16).astype(np.float64)
    sums = 2 * config.warps * config.block_m * config.block_n * 4 / gpu.shared_bytes_per_clk_per_sm
    pipe = k16 * config.k16_instructions(n) / gpu.sub_partitions_per_sm + sums
    ranges, weight_bytes = -(-n // config.block_n), 32.0 * config.block_m * float(k16.sum())
    return ItemTimes(
        alone=pipe + np.ceil(k16 / config.warps) * gpu.dram_latency_cycles,
        pipe=pipe,
        ranges=ranges,
        slots=occupancy(config.resources(n), gpu).blocks_per_sm,
        weight_bytes=weight_bytes,
        read_bytes=weight_bytes * ranges + 32.0 * n * float(k16.sum()),
        once=float(gpu.block_start_cycles + gpu.dram_latency_cycles),
        co_resident=gpu.compute_capability >= 90,
    )


def _small_n_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """Return the launch traits: registers as compiled, and the programs of blocks that prefetch weights under
    PDL.
    """
    config = plan.config
    return LaunchTraits(
        co_resident=True,
        registers_per_thread=_compiled_resources(config, plan.n, gpu).registers_per_thread,
        cycles_per_column=load_costs(__package__, gpu.compute_capability)["k16_cycles"] / (16 * config.warps),
        prologue=lambda share: with_early_blocks(plan, config, share),
    )


SMALL_N = Kernel(
    name="small-n",
    in_torch=True,
    meaning=f"the same tiles for at most {MOST_N} tokens, where reading the weights is all the time there is",
    takes=TileMap,
    natural_pattern="tile-wise:128",
    keeps=("tiles",),
    most_tokens=MOST_N,
    groups=True,
    costs="prunecast.kernels.small_n",
    plan=_plan_small_n,
    configs=_small_n_configs,
    times=of_each(_small_n_times),
    compilers={"mma": Entry("prunecast.kernels.small_n.cuda.records", "SmallOperator", 80)},
    sources=Sources("small", ("device", "small_n/cuda")),
    writes_all_rows=True,
    unaligned_tokens=sys.maxsize,
    traits=_small_n_traits,
)


def _compiled_resources(config: SmallConfig, n: int, gpu: GpuSpec) -> BlockResources:
    """Return the resources of a block with the registers as compiled for sm_90, or with the maximum number of
    registers on other architectures.
    """
    most, tile = config.resources(n), (config.block_m, config.block_n)
    if gpu.compute_capability != HOPPER:
        return most
    if config.by_words(n) and config.tokens > 1:
        return most._replace(registers_per_thread=_BY_WORDS[tile])
    fewer = _SHORT_RINGS.get((config.depth, config.warps)) if tile == (16, 16) else None
    return most._replace(registers_per_thread=fewer or _IN_PIECES[tile])


def _check(n: int, dtype: str, gpu: GpuSpec) -> None:
    check_tokens(n)
    check_own_dtype(dtype)
    entry = SMALL_N.compilers["mma"]
    if dtype not in entry.dtypes:
        wanted = " or ".join(entry.dtypes)
        raise BadInput(f"small-n: dtype must be {wanted}, got {dtype!r}; fp32 needs another kernel")
    if not entry.runs(dtype, gpu):
        own = f"{gpu.name} has {gpu.compute_capability / 10}"
        raise BadInput(f"small-n: needs compute capability {entry.least / 10}, {own}")
    tensor_fma_per_clk(gpu, dtype, "mma")
