"""Kernels of the papers in their authors' forms, as baselines of `benchmarks.papers`.

What is known of them is their public code: tiles, warps, launches. They are planned as ours are, and timed by
the same closed form, in streams and not in graphs.

    cutlass-1.3    dense: 128 x 128 x 32, four warps of 64 x 64, two stages (StreamMaskedGEMM)
    per-tile       the same for each tile of TW, a launch on a stream of its own; host waits for the device
    wmma           Shfl-BW on sm_70: a block for a row group, fragments by WMMA, nothing split
    csrmm          cuSPARSE until CUDA 10: B column-major, so that a kept weight reads a sector for each token
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np

from prunecast.hardware import GpuSpec
from prunecast.hardware.occupancy import BlockResources
from prunecast.hardware.spec import SECTOR_BYTES
from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.models import estimate
from prunecast.patterns import ElementMap, TileMap
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.kernel_plan import BlockShape
from prunecast.plan.order import assign_hardware
from prunecast.plan.program import Instruction, Op

VOLTA_FMA = 256
"""Of m8n8k4 for a warp. Kind: definition, PTX ISA."""
WAIT_S = 10e-6
"""From the end of the last kernel until the host may launch again. Kind: guess, cudaDeviceSynchronize."""
WMMA_READS = 4
"""Times that an operand passes the port of shared memory: a fragment of sm_70 holds every element twice
(Raihan et al., arXiv 1811.08309), and rows without a swizzle meet in banks. Kind: guess."""
WMMA_FORMS = ((64, 64, 32, 32), (64, 128, 32, 64), (64, 256, 32, 64))
"""Rows and tokens of a block, and of a warp's part, for V = 64. Kind: choice, three of the authors' own."""


def _config(block_m: int, block_n: int, part_m: int, part_n: int, *, registers: int) -> TileConfig:
    shape = BlockShape(block_m, block_n, 32)
    threads = 32 * (block_m // part_m) * (block_n // part_n)
    return TileConfig(
        tensor_path="registers",
        tensor="mma",
        dtype="fp16",
        shape=shape,
        part_m=part_m,
        part_n=part_n,
        fma_per_instruction=VOLTA_FMA,
        resources=BlockResources(threads, registers, 2 * 2 * 32 * (block_m + block_n), 2),
    )


CUTLASS = _config(128, 128, 64, 64, registers=208)


def _plan(tiles: TileMap, n: int, config: TileConfig, gpu: GpuSpec, b_access: str) -> KernelPlan:
    assigned = assign_hardware(items_of(tiles, config, n, gpu))
    return tile_plan("tile-wise", tiles, n, config, assigned, gpu, b_access=b_access)


def _seconds(plan: KernelPlan, gpu: GpuSpec) -> float:
    return estimate(plan, gpu, launch="stream").seconds


def cutlass_seconds(m: int, k: int, n: int, gpu: GpuSpec) -> float:
    """Dense, with the host's wait."""
    return _seconds(_plan(dense_tile_map(m, k, 128), n, CUTLASS, gpu, "dense_tile"), gpu) + WAIT_S


def per_tile_seconds(tiles: TileMap, n: int, gpu: GpuSpec) -> float:
    """All launches together: their work shares the GPU, and none begins before the host has come to it."""
    together = _seconds(_plan(tiles, n, CUTLASS, gpu, "gather"), gpu)
    launches = (tiles.tile_count - 1) * gpu.stream_launch_s
    last = together / max(tiles.tile_count, 1)
    return max(together, launches + last) + WAIT_S


def wmma_seconds(tiles: TileMap, n: int, gpu: GpuSpec) -> float:
    """The fastest of the forms, as the authors take it."""
    best = inf
    for form in WMMA_FORMS:
        plan = _plan(tiles, n, _config(*form, registers=128), gpu, "gather")
        programs = tuple(replace(p, step=tuple(map(_read_often, p.step))) for p in plan.programs)
        best = min(best, _seconds(replace(plan, programs=programs), gpu))
    return best


def _read_often(instruction: Instruction) -> Instruction:
    """Operands, which are not what is stored for the next step."""
    if instruction.op is not Op.SHARED or instruction.ahead:
        return instruction
    return instruction._replace(amount=WMMA_READS * instruction.amount)


def csrmm_seconds(elements: ElementMap, n: int, gpu: GpuSpec) -> float:
    """L2 delivers a sector for each token and each sector of K in which a row keeps something."""
    rows = np.repeat(np.arange(elements.m), np.diff(elements.row_start))
    together = SECTOR_BYTES // 4
    sectors = np.unique(rows * elements.k + elements.column_index // together).size
    return sectors * n * SECTOR_BYTES / gpu.l2_bytes_per_s + gpu.stream_launch_s


ON_MAPS: dict[str, Callable[..., float]] = {
    "per-tile": per_tile_seconds,
    "wmma": wmma_seconds,
    "csrmm": csrmm_seconds,
}
"""Name -> (map, n, gpu) -> seconds."""
