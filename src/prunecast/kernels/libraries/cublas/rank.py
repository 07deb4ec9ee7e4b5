"""Model of the heuristic by which cuBLAS ranks its kernels: a roofline of the busiest SM and of the chip.

The library does not always choose the fastest kernel. This model ranks kernels by the larger of two times
(the busiest SM; memory traffic of the chip) plus a fitted fraction of the smaller one. It therefore prefers
kernels that read less to kernels that fill SMs slightly better, and explains most of the kernel names that
were captured; the tests count them.

The SM cycles of a k-step and of the epilogue were inferred from the library's choices, not measured.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.cublas.configs import LibraryKernel, library_kernels
from prunecast.kernels.libraries.cublas.launches import cublas_costs, multicast, reduction_seconds
from prunecast.kernels.libraries.cublas.programs import operand_bytes
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.item_cost import chain_cycles
from prunecast.plan.kernel_plan import DTYPE_BYTES, OUTPUT_BYTES
from prunecast.plan.tensor_rate import fma_per_clk

Array = npt.NDArray[np.float64]
Table = dict[str, Array]
"""Properties that do not depend on the product, each (kernels, 1): rules, shape, step cycles, CTAs per SM."""
SMALL_SIDE, EVEN_TOKENS, SPLIT_COLUMNS = 64, 64, 64
"""Units of the tables: side of small tiles (`narrow_up_to`), tokens (`deals_out`) and columns
(`split_least_steps`). Kind: definition, `configs.LibraryKernel`."""
LANES = 32
"""Lanes of a warp. Kind: definition, PTX ISA."""
MOST_LOST = 1.25
"""A kernel whose longer time is more than this many times the shortest one is not chosen. The weighted sum of
both times would choose kernels on a V100 that are 34 % slower than others, some of them only with more SMs.
Kind: choice, changes no choice for 150 random products on each of H200, H100, B200, A100 and RTX 4090, 9
on a V100 and 6 on a T4, whose choices are not recorded (2026-11-29)."""


class Ranked(NamedTuple):
    """A kernel with a number of split-K slices, and its time in the model of the heuristic."""

    kernel: LibraryKernel
    slices: int
    seconds: float


def rank(m: int, k: int, n: int, dtype: str, gpu: GpuSpec, row_bytes: int) -> list[Ranked]:
    """Return the kernels that cuBLAS may choose, the preferred one first.

    Each kernel has the number of split-K slices with its shortest time. The list is empty if no kernel fits.

    Parameters
    ----------
    m, k, n : sizes of C (m, n) = A (m, k) @ B (k, n)
    row_bytes : alignment in bytes of rows of A, B and C, see `configs.aligned_bytes`
    """
    kernels = library_kernels(gpu, dtype, row_bytes)
    if not kernels:
        return []
    table = _table(gpu, dtype, row_bytes)
    slices = _slices(table, m, k, n, gpu)
    longer, shorter = _seconds(table, np.maximum(slices, 1.0), m, k, n, dtype, gpu)
    longer = np.where((slices > 0) & _may_be_taken(table, m, k, n, gpu), longer, np.inf)
    unhidden = cublas_costs(gpu.compute_capability)["heuristic_unhidden"]
    # Kernels that are much slower come after the one with the shortest longer time, whatever its shorter one
    seconds = longer + unhidden * np.where(longer <= MOST_LOST * longer.min(), shorter, longer)
    best = np.argmin(seconds, axis=1)
    least = seconds[np.arange(best.size), best]
    order = np.argsort(least, kind="stable")[: np.isfinite(least).sum()]
    columns = (column[order].tolist() for column in (slices[np.arange(best.size), best], least))
    return [Ranked(kernels[i], int(count), time) for i, count, time in zip(order, *columns, strict=True)]


def _seconds(
    t: Table, slices: Array, m: int, k: int, n: int, dtype: str, gpu: GpuSpec
) -> tuple[Array, Array]:
    """Return the longer and the shorter of the times of the busiest SM and of the chip's memory traffic, in
    seconds without launch overhead, each in the shape of `slices`, (kernels, candidates). The longer one
    includes the sum over split-K slices.
    """
    element, output = DTYPE_BYTES[dtype], OUTPUT_BYTES[dtype]
    tiles = np.ceil(m / t["block_m"]) * np.ceil(n / t["block_n"])
    rows, tokens = np.minimum(t["block_m"], m), np.minimum(t["block_n"], n)
    steps = np.ceil(np.ceil(k / t["block_k"]) / slices)
    copied = tokens / np.where(m > t["block_m"], t["pair"], 1.0)
    port = (rows + copied) * t["block_k"] * element / gpu.l2_port_bytes_per_clk_per_sm
    lead = gpu.block_start_cycles + gpu.dram_latency_cycles + gpu.store_latency_cycles
    epilogue = t["epilogue"] + rows * tokens * output / gpu.store_bytes_per_clk_per_sm
    alone = steps * np.maximum(t["alone"], port) + epilogue + np.where(t["persistent"], 0.0, lead)
    demand = steps * np.maximum(t["busy"], port)
    rounds, rest = np.divmod(np.ceil(tiles * slices / gpu.sm_count), t["ctas_per_sm"])
    cycles = rounds * np.maximum(alone, t["ctas_per_sm"] * demand)
    cycles += np.where(rest > 0, np.maximum(alone, rest * demand), 0.0) + np.where(t["persistent"], lead, 0.0)
    sm_s = cycles / gpu.clock_burst_hz[0]
    shared = multicast(t["block_m"], t["block_n"], m, n)
    by_rows, by_tokens = (np.where(t["persistent"], count, 1.0) for count in shared)
    l2_s = tiles * (rows / by_rows + tokens / by_tokens) * k * element / gpu.l2_bytes_per_s
    # DRAM delivers the same bytes for every kernel, so it does not affect the choice
    chip_s = l2_s + m * n * output / gpu.l2_store_bytes_per_s
    sums_s = reduction_seconds(m, n, slices, gpu) + 4.0 * m * n * slices / gpu.l2_store_bytes_per_s
    return np.maximum(sm_s, chip_s) + np.where(slices > 1, sums_s, 0.0), np.minimum(sm_s, chip_s)


def _slices(t: Table, m: int, k: int, n: int, gpu: GpuSpec) -> Array:
    """Return candidate numbers of split-K slices, (kernels, candidates); 0 for a candidate that is not used.

    If tiles leave SMs idle, slices fill one or two waves of CTAs. Otherwise a few slices may balance the last
    wave.
    """
    tiles, steps = np.ceil(m / t["block_m"]) * np.ceil(n / t["block_n"]), np.ceil(k / SPLIT_COLUMNS)
    waves = np.concatenate([t["split_waves"], t["split_most_waves"]], axis=1)
    room = np.floor(waves * gpu.sm_count / tiles)
    fills = (room[:, :1] > 1) & (k >= t["split_least_k"])
    filling = np.clip(np.minimum(room, np.floor(steps / t["split_least_steps"])), 1.0, t["most_slices"])
    filling = np.minimum(np.ceil(steps / np.ceil(steps / filling)), np.ceil(k / t["block_k"]))
    free = np.arange(1.0, t["free_slices"].max() + 1.0)[None, :]
    may = (free <= t["free_slices"]) & (steps >= free * t["free_least_steps"]) & (k >= t["split_least_k"])
    evening = np.where(~fills & (may | (free == 1.0)), free, 0.0)
    return np.concatenate([np.where(fills, filling, 0.0), evening], axis=1)


def _may_be_taken(t: Table, m: int, k: int, n: int, gpu: GpuSpec) -> npt.NDArray[np.bool_]:
    """Return True for kernels whose tile suits the product, (kernels, 1).

    Such a tile is neither much smaller nor much larger than the product.
    """
    dealt = 8.0 * np.ceil(n / (8.0 * np.ceil(n / t["block_n"])))
    wanted = (t["deals_out"] == 0) | ((n % EVEN_TOKENS != 0) & (t["block_n"] == dealt))
    small = np.minimum(t["block_m"], t["block_n"]) < SMALL_SIDE
    wanted &= np.ceil(m / t["block_m"]) * np.ceil(n / t["block_n"]) * k <= t["most_work"]
    for side, size in ((t["block_m"], m), (t["block_n"], n)):
        wanted &= side < np.maximum(size, SMALL_SIDE) + t["overhang"]
    wanted &= ~small | (min(m, n) <= t["narrow_up_to"])
    filled = m >= SMALL_SIDE and 2 * -(-m // SMALL_SIDE) * -(-n // SMALL_SIDE) > gpu.sm_count
    if filled and n % EVEN_TOKENS == 0:
        wanted &= t["block_m"] * t["block_n"] >= SMALL_SIDE**2
    return np.asarray(wanted)


@lru_cache(maxsize=64)
def _table(gpu: GpuSpec, dtype: str, row_bytes: int) -> Table:
    rows = [_entry(kernel, gpu) for kernel in library_kernels(gpu, dtype, row_bytes)]
    return {name: np.array([row[name] for row in rows], np.float64)[:, None] for name in rows[0]}


def _entry(kernel: LibraryKernel, gpu: GpuSpec) -> dict[str, float]:
    """Return the numbers of a kernel by which `rank` compares kernels, one row of its arrays."""
    config, steps = kernel.config, _step_cycles(kernel, gpu)
    return {
        **kernel.rules,
        **config.shape._asdict(),
        **steps._asdict(),
        "pair": config.pair,
        "ctas_per_sm": occupancy(config.resources, gpu).blocks_per_sm,
        # Persistent CTAs, whose producer warps prefetch during the epilogue
        "persistent": config.tensor_path == "wgmma",
        "deals_out": kernel.deals_out,
    }


class _StepCycles(NamedTuple):
    """SM cycles of a kernel."""

    alone: float
    """Cycles from one k-step to the next of a CTA that is the only one on its SM."""
    busy: float
    """Cycles for which one CTA's k-step occupies the tensor pipes or shared memory, whichever is longer."""
    epilogue: float
    """Cycles outside the k-steps, in which sums are converted and transposed in shared memory."""


def _step_cycles(kernel: LibraryKernel, gpu: GpuSpec) -> _StepCycles:
    """Return the cycles of a k-step of a kernel with full tiles."""
    config, costs = kernel.config, cublas_costs(gpu.compute_capability)
    k16, warps = config.shape.block_k / 16, config.consumer_warps
    area, rate = config.shape.block_m * config.shape.block_n, gpu.shared_bytes_per_clk_per_sm
    tensor = area * config.shape.block_k / fma_per_clk(gpu, config.dtype, config.tensor)
    reads = k16 * warps * operand_bytes(config, gpu) / rate
    copied = k16 * config.share_bytes_per_k16
    writes = copied / rate
    if kernel.rules["heuristic_copy_cycles"]:
        writes = kernel.rules["heuristic_copy_cycles"] * copied / (LANES * kernel.rules["align_bytes"])
    busy = max(tensor, reads + writes)
    if config.tensor_path == "mma":
        busy += costs["step_barrier_cycles"]
    path = "wgmma" if config.tensor_path == "wgmma" else "mma"
    epilogue = costs[f"epilogue_cycles_per_pair_{path}"] * area / (2 * LANES * warps)
    epilogue += costs["item_instructions"] + 2 * gpu.shared_latency_cycles
    epilogue += 2 * area * config.output_bytes / rate
    return _StepCycles(max(busy, _waits(config, tensor, gpu)), busy, epilogue)


def _waits(config: TileConfig, tensor: float, gpu: GpuSpec) -> float:
    """Return the cycles from one k-step to the next if warps are bound by the latency of products and
    operands.
    """
    if config.tensor_path == "wgmma":
        # The products of two k-steps are in flight at once
        own = tensor * config.warps_per_part / config.consumer_warps
        group = cublas_costs(gpu.compute_capability)["group_cycles"]
        return (gpu.warpgroup_latency_cycles + group + own) / 2
    return chain_cycles(config, tensor, gpu)
