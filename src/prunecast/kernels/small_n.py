"""`small-n`: tiles times few tokens, where reading the weights is all the time there is.

One block for up to 64 rows of a tile and all that it keeps; no block is cut along K, none waits for another.
Blocks are small so that all of them are on the GPU at once: then the memory is shared evenly by blocks, not
by SMs, and what an SM has too many of does not matter until the last bytes. Rows of B are read once a block.
"""

from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.choose import ITEM_OVERHEAD_CYCLES
from prunecast.kernels.items import raster, take_items, whole_items
from prunecast.kernels.order import assign_hardware
from prunecast.kernels.plan import KernelPlan, PlanDoesNotFit
from prunecast.kernels.small_n_forms import SmallForm, small_forms, small_resources
from prunecast.kernels.small_n_programs import small_programs
from prunecast.kernels.tensor_rate import tensor_fma_per_clk
from prunecast.kernels.tile_plan import check_tokens
from prunecast.kernels.tile_rows import cut_rows
from prunecast.patterns.tile_map import TileMap

__all__ = ["SmallCandidate", "choose_small_n", "plan_small_n"]

SECTOR_BYTES = 32


class SmallCandidate(NamedTuple):
    """A form and what it would take."""

    form: SmallForm
    blocks: int
    blocks_per_sm: int
    seconds: float


def plan_small_n(
    tiles: TileMap, n: int, dtype: str, gpu: GpuSpec, *, form: SmallForm | None = None
) -> KernelPlan:
    """Plan the product of a tile map with few tokens; more than 64 are taken 64 at a time.

    Parameters
    ----------
    form : one of `choose_small_n` or any other form, or None for the first of them

    Raises
    ------
    BadInput : n below 1, a dtype other than fp16 and bf16, or a GPU without asynchronous copies
    PlanDoesNotFit : no form of the kernel fits
    """
    found = choose_small_n(tiles, n, dtype, gpu) if form is None else []
    if form is None and not found:
        raise PlanDoesNotFit(f"small-n: no form of the kernel fits on an SM of {gpu.name}")
    form = form or found[0].form
    _check(n, dtype, gpu)
    tiles = cut_rows(tiles, form.block_m)
    order = raster(tiles.tile_count, -(-n // form.block_n), 1)
    items = whole_items(tiles.kept_per_tile, order, n=n, block_n=form.block_n)
    assigned = assign_hardware(take_items(items, np.argsort(-items.k_stop, kind="stable")))
    return KernelPlan(
        kernel="small-n",
        n=n,
        dtype=dtype,
        tiles=tiles,
        work=assigned.work,
        schedule=assigned.schedule,
        blocks=assigned.blocks,
        shape=form.shape,
        resources=small_resources(form, n),
        programs=small_programs(form, n, dtype),
        tensor="mma",
        overlaps=gpu.compute_capability >= 90,
    )


def choose_small_n(tiles: TileMap, n: int, dtype: str, gpu: GpuSpec) -> list[SmallCandidate]:
    """The deepest ring of each height that keeps all blocks on the GPU at once, fastest first."""
    _check(n, dtype, gpu)
    best: dict[int, SmallCandidate] = {}
    for form in small_forms(n):
        fit = occupancy(small_resources(form, n), gpu).blocks_per_sm
        if fit == 0:
            continue
        candidate = _candidate(form, tiles, n, gpu, fit)
        if form.block_m not in best or candidate.seconds < best[form.block_m].seconds:
            best[form.block_m] = candidate
    return sorted(best.values(), key=lambda c: c.seconds)


def _candidate(form: SmallForm, tiles: TileMap, n: int, gpu: GpuSpec, fit: int) -> SmallCandidate:
    """The slowest of memory, L2, the fullest SM and the heaviest block; and what rounds of blocks add."""
    per_tile = -(-tiles.rows_per_tile.astype(np.int64) // form.block_m)
    ranges = -(-n // form.block_n)
    blocks = max(int(per_tile.sum()) * ranges, 1)
    k16 = -(-tiles.kept_per_tile.astype(np.int64) // 16)
    weights = k16 * form.block_m * 32
    rows = tiles.kept_per_tile.astype(np.int64) * max(2 * min(n, form.block_n), SECTOR_BYTES)
    block_bytes = weights + rows
    all_bytes = float((per_tile * block_bytes).sum()) * ranges
    memory = float((per_tile * weights).sum()) + 2.0 * n * (tiles.k + tiles.m)
    clock = gpu.clock_burst_hz[0]
    port = gpu.gather_bytes_per_clk_per_sm * clock
    waves = -(-blocks // (fit * gpu.sm_count))
    seconds = max(
        memory / gpu.dram_bytes_per_s,
        all_bytes / gpu.l2_bytes_per_s,
        -(-blocks // gpu.sm_count) * all_bytes / blocks / port,
        float(block_bytes.max(initial=0)) / port,
    )
    return SmallCandidate(form, blocks, fit, seconds + waves * ITEM_OVERHEAD_CYCLES / clock)


def _check(n: int, dtype: str, gpu: GpuSpec) -> None:
    check_tokens(n)
    if dtype not in ("fp16", "bf16"):
        raise BadInput(f"small-n: dtype must be fp16 or bf16, got {dtype!r}; fp32 needs another kernel")
    if gpu.compute_capability < 80:
        raise BadInput(f"small-n: needs compute capability 8.0, {gpu.name} has {gpu.compute_capability / 10}")
    tensor_fma_per_clk(gpu, dtype, "mma")
