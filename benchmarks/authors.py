"""Kernels of the papers in their authors' forms, as baselines of `benchmarks.papers`.

What is known of them is their public code: tiles, warps, launches, and in which order a warp copies, reads
and multiplies. Warp programs say that here, and the simulator times them, in streams and not in graphs:
blocks of four warps that wait for one another are what the closed form leaves out.

    cutlass-1.3    dense: 128 x 128 x 32, four warps of 64 x 64, two stages (StreamMaskedGEMM)
    per-tile       the same for each tile of TW, a launch on a stream of its own; host waits for the device
    wmma           Shfl-BW on sm_70: a block for a row group, next steps in registers, nothing split
    csrmm          cuSPARSE until CUDA 10: B column-major, so that a kept weight reads a sector for each token
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt

from prunecast.hardware import GpuSpec
from prunecast.hardware.occupancy import BlockResources
from prunecast.hardware.spec import SECTOR_BYTES
from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.patterns import ElementMap, TileMap
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.assignment import assign_hardware
from prunecast.plan.kernel_plan import BlockShape
from prunecast.plan.program import Code, Instruction, Op, WarpProgram
from prunecast.plan.work_items import raster, whole_items
from prunecast.simulator import simulate

VOLTA_FMA = 256
"""Of m8n8k4 for a warp. Kind: definition, PTX ISA."""
WAIT_S = 10e-6
"""From the end of the last kernel until the host may launch again. Kind: guess, cudaDeviceSynchronize."""
PORT_BYTES, READ_BYTES = 128, 512
"""Bytes a cycle at the port of shared memory, and of a read of 16 bytes a lane. Kind: datasheet, CUDA C++
Programming Guide."""
L1_PASSES = 2
"""Times that loaded bytes pass the memory that L1 shares with shared memory: filled, then read. Kind:
datasheet, NVIDIA Tesla V100 GPU Architecture whitepaper, combined L1 data cache and shared memory."""
INDICES = 512
"""Of columns, staged in shared memory at once. Kind: CUDA source, the authors' `blockwise_kernel.h`."""
WMMA_FORMS = tuple(
    (*form, stages)
    for form, stages in product(
        [(64, bk, 32, 32) for bk in (16, 32)]
        + [(128, bk, *part) for bk in (16, 32) for part in ((32, 64), (64, 32))],
        (2, 3, 4),
    )
)
"""Tokens and columns of a step, rows and tokens of a warp's part, steps in registers, of blocks of 64 rows.
Kind: CUDA source, the authors' `blockwise_library.cu`."""
CUTLASS_REGISTERS, EPILOGUE_ROUNDS = 208, 8
"""Registers of a thread, and rounds in which C passes shared memory. Kind: guess."""


def _config(shape: tuple[int, int, int], part: tuple[int, int], resources: BlockResources) -> TileConfig:
    return TileConfig(
        tensor_path="registers",
        tensor="mma",
        dtype="fp16",
        shape=BlockShape(*shape),
        part_m=part[0],
        part_n=part[1],
        fma_per_instruction=VOLTA_FMA,
        resources=resources,
    )


def _timed(plan: KernelPlan, program: WarpProgram, gpu: GpuSpec) -> float:
    return simulate(replace(plan, programs=(program,)), gpu, launch="stream").seconds


def _program(config: TileConfig, *, begin: Code, fill: Code, step: Code, end: Code) -> WarpProgram:
    return WarpProgram(
        role="worker",
        warps=config.consumer_warps,
        start=(Instruction(Op.ISSUE, issue=40),),
        begin=begin,
        fill=fill,
        step=step,
        end=end,
    )


def _loads(config: TileConfig, index: Code, *, ahead: int) -> Code:
    """Weights and tokens into registers, 16 columns of them."""
    a, b = _copied(config)
    return (
        *(i._replace(ahead=ahead) for i in index),
        Instruction(Op.ISSUE, issue=4 + 4 * (a + b) // READ_BYTES, per_k16=True, ahead=ahead),
        Instruction(Op.LOAD_B, 2 * config.shape.block_n, _reads(b), per_k16=True, ahead=ahead),
        Instruction(Op.LOAD_A, a, _reads(a), per_k16=True, ahead=ahead),
        Instruction(Op.SHARED, L1_PASSES * (a + b), 0, per_k16=True, ahead=ahead, posted=True),
    )


def _copied(config: TileConfig) -> tuple[int, int]:
    """Bytes of weights and of tokens that a warp copies for 16 columns."""
    return tuple(16 * 2 * size // config.consumer_warps for size in config.shape[:2])  # type: ignore[return-value]


def _reads(size: int) -> int:
    return max(size // READ_BYTES, 1)


# CUTLASS 1.3, and the tiles of TW


def _cutlass() -> TileConfig:
    resources = BlockResources(128, CUTLASS_REGISTERS, 2 * 2 * 32 * (128 + 128), 2)
    return _config((128, 128, 32), (64, 64), resources)


def _cutlass_program(config: TileConfig, *, gathers: bool) -> WarpProgram:
    """The next step is loaded behind the first reads, and stored when three quarters are multiplied.

    Every lane holds operands that another lane holds too. Columns' offsets are read before the rows that they
    name, by the iterator itself.
    """
    index = (Instruction(Op.LOAD_INDEX, 16, 4, per_k16=True), Instruction(Op.WAIT_LOAD)) if gathers else ()
    fill, stored = _loads(config, index, ahead=0), sum(_copied(config))
    store = Instruction(Op.SHARED, stored, _reads(stored), per_k16=True)
    operands = 2 * config.operand_bytes_per_warp_per_k16
    fma = config.fma_per_warp_per_k16

    def multiply(quarters: int) -> Code:
        read, done = quarters * operands // 4, quarters * fma // 4
        return (
            Instruction(Op.SHARED, read, _reads(read), per_k16=True),
            Instruction(Op.MMA, done, done // VOLTA_FMA, per_k16=True),
        )

    return _program(
        config,
        begin=(Instruction(Op.ISSUE, issue=60),),
        fill=(*fill, Instruction(Op.WAIT_LOAD), store, Instruction(Op.SYNC)),
        step=(
            *_loads(config, index, ahead=1),
            Instruction(Op.WAIT_MMA, 1),
            *multiply(3),
            Instruction(Op.WAIT_LOAD),
            store._replace(ahead=1),
            Instruction(Op.SYNC),
            *multiply(1),
        ),
        end=(Instruction(Op.WAIT_MMA, 0), *_rounds(config, gathers=gathers)),
    )


def _rounds(config: TileConfig, *, gathers: bool) -> Code:
    """C through shared memory, a part at a time; rows that are left out by their offsets."""
    size = 2 * config.shape.block_m * config.shape.block_n // config.consumer_warps // EPILOGUE_ROUNDS
    row = (Instruction(Op.LOAD_INDEX, 16), Instruction(Op.WAIT_LOAD)) if gathers else ()
    return (
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, size, size // PORT_BYTES),
        Instruction(Op.SYNC),
        Instruction(Op.SHARED, size, _reads(size)),
        *row,
        Instruction(Op.STORE_C, size, _reads(size)),
    ) * EPILOGUE_ROUNDS


def cutlass_seconds(m: int, k: int, n: int, gpu: GpuSpec) -> float:
    """Dense, with the host's wait."""
    tiles, config = dense_tile_map(m, k, 128), _cutlass()
    assigned = assign_hardware(items_of(tiles, config, n, gpu))
    plan = tile_plan("tile-wise", tiles, n, config, assigned, gpu, b_access="dense_tile")
    return _timed(plan, _cutlass_program(config, gathers=False), gpu) + WAIT_S


def per_tile_seconds(tiles: TileMap, n: int, gpu: GpuSpec) -> float:
    """All launches together, tile after tile: their blocks share the GPU, and none begins before the host has
    come to it.
    """
    config, ranges = _cutlass(), -(-n // 128)
    items = whole_items(tiles.kept_per_tile, raster(tiles.tile_count, ranges, ranges), n=n, block_n=128)
    plan = tile_plan("tile-wise", tiles, n, config, assign_hardware(items), gpu, b_access="gather")
    together = _timed(plan, _cutlass_program(config, gathers=True), gpu)
    launches = (tiles.tile_count - 1) * gpu.stream_launch_s
    return max(together, launches + together / max(tiles.tile_count, 1)) + WAIT_S


def halved(m: int, k: int) -> TileMap:
    """Half of the rows in tiles of 128, each with half of the columns, as the authors' benchmark prunes."""
    rng, count = np.random.default_rng(0), m // 256
    rows = [np.sort(rng.choice(m // count, 128, replace=False)) + i * (m // count) for i in range(count)]
    columns = [np.sort(rng.choice(k, k // 2, replace=False)) for _ in rows]
    return TileMap(
        m=m,
        k=k,
        row_start=np.arange(count + 1, dtype=np.int32) * 128,
        row_index=np.concatenate(rows).astype(np.int32),
        column_start=np.arange(count + 1, dtype=np.int32) * (k // 2),
        column_index=np.concatenate(columns).astype(np.int32),
        pattern="tile-wise:128",
    )


# Shfl-BW on sm_70


def _wmma(block_n: int, block_k: int, part_m: int, part_n: int, stages: int) -> TileConfig:
    """Sums, steps under way, one set of fragments and 38 registers for addresses."""
    warps = 64 // part_m * (block_n // part_n)
    staged = (64 + block_n) * block_k * 2 // (32 * warps) // 4
    registers = part_m * part_n // 32 + stages * staged + (part_m + part_n) // 2 + 38
    shared = max(2 * 2 * block_k * (64 + block_n) + 4 * INDICES, 2 * 64 * block_n + 4 * 64)
    resources = BlockResources(32 * warps, min(-(-registers // 8) * 8, 255), shared, stages + 1)
    return _config((64, block_n, block_k), (part_m, part_n), resources)


def _wmma_program(config: TileConfig) -> WarpProgram:
    """Store a step that was loaded long before, meet, read fragments, multiply, load a later step."""
    (a, b), (block_m, block_n, _), warps = _copied(config), config.shape, config.consumer_warps
    parts, stages = (config.part_m // 32, config.part_n // 32), config.resources.stages - 1
    ports = _fragment_cycles(block_m, block_n)
    operands = 4 * PORT_BYTES * (parts[0] * ports[0] + parts[1] * ports[1])
    stores, c_bytes = config.part_m * config.part_n // 64, 2 * block_m * block_n // warps
    index = (Instruction(Op.SHARED, _reads(b) * PORT_BYTES, _reads(b), per_k16=True),)
    staged = 4 * INDICES // warps
    return _program(
        config,
        begin=(
            Instruction(Op.LOAD_INDEX, 8),
            Instruction(Op.WAIT_LOAD),
            Instruction(Op.LOAD_INDEX, staged),
            Instruction(Op.WAIT_LOAD),
            Instruction(Op.SHARED, staged, staged // PORT_BYTES),
            Instruction(Op.SYNC),
        ),
        fill=_loads(config, index, ahead=0),
        step=(
            Instruction(Op.WAIT_LOAD, 1),
            Instruction(Op.SHARED, a + b, _reads(a) + _reads(b), per_k16=True),
            Instruction(Op.SYNC),
            Instruction(Op.SHARED, operands, 4 * sum(parts), per_k16=True),
            Instruction(
                Op.BLOCKING_MMA, config.fma_per_warp_per_k16, config.instructions_per_k16, per_k16=True
            ),
            *_loads(config, index, ahead=stages),
        ),
        end=(
            Instruction(Op.WAIT_MMA, 0),
            Instruction(Op.SYNC),
            Instruction(Op.ISSUE, issue=stores),
            Instruction(Op.SHARED, ports[2] * stores * PORT_BYTES, stores),
            Instruction(Op.SYNC),
            Instruction(Op.SHARED, c_bytes, _reads(c_bytes)),
            Instruction(Op.STORE_C, c_bytes, _reads(c_bytes)),
        ),
    )


def _fragment_cycles(block_m: int, block_n: int) -> tuple[int, int, int]:
    """Cycles at the port of a warp's read of weights, of tokens, and of its store of C.

    Places of the lanes are those of the authors' fragments of 32 x 32 x 16 (`mma.h`): two lanes read the
    same, and their exclusive or leaves rows of 64 weights on the same banks.
    """
    lane = np.arange(32)
    weights = (lane & 3) * block_m + ((lane & 4) << 2) + ((lane & 16) >> 1)
    tokens = (lane & 3) * block_n + ((lane & 8) << 1) + ((lane & 16) >> 1)
    sums = (((lane & 4) << 2) + ((lane & 16) >> 1) + (lane & 1)) * block_n + ((lane & 8) << 1) + (lane & 2)
    return _cycles(weights, 16), _cycles(tokens, 16), _cycles(sums, 4)


def _cycles(element: npt.NDArray[np.int64], lane_bytes: int) -> int:
    """Of fp16 elements at these places before the swizzle: as many lanes at once as bring 128 bytes."""
    first = 2 * (element ^ ((element & (7 << 6)) >> 3))
    words = (first[:, None] + np.arange(0, lane_bytes, 4)).reshape(-1, 32) // 4
    return sum(int(np.bincount(np.unique(at_once) % 32).max()) for at_once in words)


def wmma_seconds(tiles: TileMap, n: int, gpu: GpuSpec) -> float:
    """The fastest of the forms, as the authors take it."""
    return min(_wmma_seconds(_wmma(*form), tiles, n, gpu) for form in WMMA_FORMS)


def _wmma_seconds(config: TileConfig, tiles: TileMap, n: int, gpu: GpuSpec) -> float:
    assigned = assign_hardware(items_of(tiles, config, n, gpu))
    plan = tile_plan("tile-wise", tiles, n, config, assigned, gpu, b_access="gather")
    return _timed(plan, _wmma_program(config), gpu)


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
