"""Which of its kernels for rows that are not aligned the library takes, and into how many parts it cuts K.

The kernel that is fastest by arithmetic, among the ways to cut that names show: 9,000 sizes of 64 to 20,000
rows and columns, drawn at random (cuBLAS 13.1, H200, 2026-11-22). Of 604 of them with 128 columns and more it
is the very tile for 77 % of even counts of tokens and 89 % of odd ones (the tests count them).
"""

from functools import lru_cache
from typing import NamedTuple

from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.cublas.launches import reduction_seconds
from prunecast.kernels.libraries.cublas.unaligned import (
    COPY_LANE_BYTES,
    LANES,
    SHARED_BYTES_PER_CLK,
    UnalignedKernel,
    copy_lane_bytes,
    unaligned_kernels,
)
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.step_cost import pace_of_warps
from prunecast.plan.tensor_rate import tensor_fma_per_clk

__all__ = ["Taken", "taken_kernels"]

STEP_COLUMNS, FEWEST_STEPS = 64, 2
"""Of a part along K; one step in Turing's 64 x 64."""
LEAST_CUT, LEAST_CUT_SMALL, LEAST_CUT_TURING = 512, 704, 480
"""Columns. Turing's tiles above 32 x 32 are cut whatever K is."""
MORE_TILES_PARTS, FEWEST_STEPS_OF_MORE = (1, 2, 3, 4, 5), 4
"""Where tiles fill over half of the places, parts even out the last round."""
MOST_SMALL_WORK, MOST_SMALL_WORK_WIDE, FEW_TOKENS = 140_000, 70_000, 32
"""Tiles of 32 x 32 times columns: of 5,200 such names hardly any has more, up to 32 tokens and above."""
ISSUES_PER_PAIR, EDGE_ISSUES, QUIET_CYCLES = 5, 100, 1000
BETWEEN_STEPS = 100.0
"""Cycles of a barrier, and of what is not hidden behind copies."""
SHARED_EDGE = 0.3
"""Share of an item's end that other blocks on the SM cannot work through."""


class Taken(NamedTuple):
    """A kernel, its parts along K, and what both take by arithmetic."""

    kernel: UnalignedKernel
    parts: int
    step_cycles: float
    """Of a block that has its SM to itself."""
    seconds: float


class _Costs(NamedTuple):
    """SM cycles of a form."""

    tensor: float
    """Of a step, in the tensor pipes."""
    reads: float
    """Of a step, of fragments from shared memory."""
    pace: float
    """From a step to the next that the warps' own waits take."""
    edge: float
    """Around the steps, stores of C aside."""
    blocks: int
    """On an SM."""


class _Step(NamedTuple):
    """A step of one block."""

    busy: float
    """Cycles that no other block on the SM can have."""
    alone: float
    """Cycles of a block that has its SM to itself."""
    copied_bytes: int


def taken_kernels(m: int, k: int, n: int, dtype: str, gpu: GpuSpec) -> list[Taken]:
    """All kernels with their best number of parts, the one that the library takes first."""
    found = []
    for kernel in unaligned_kernels(dtype, copy_lane_bytes(k, n, dtype)):
        step = _step_cycles(kernel, m, k, n, gpu)
        most = -(-k // kernel.form.shape.block_k)
        ways = [
            Taken(
                kernel, min(parts, most), step.alone, _seconds(kernel, min(parts, most), step, m, k, n, gpu)
            )
            for parts in _parts(kernel, m, k, n, gpu)
        ]
        found.append(min(ways, key=lambda way: way.seconds))
    return sorted(found, key=lambda way: (_too_much(way.kernel, m, k, n), way.seconds))


def _too_much(kernel: UnalignedKernel, m: int, k: int, n: int) -> bool:
    """Ampere's small tiles are not for large products, whatever their time."""
    if not kernel.small or _by_turing(kernel, k, n):
        return False
    most = MOST_SMALL_WORK if n <= FEW_TOKENS else MOST_SMALL_WORK_WIDE
    return _tiles(kernel.form, m, n) * k > most


def _parts(kernel: UnalignedKernel, m: int, k: int, n: int, gpu: GpuSpec) -> tuple[int, ...]:
    """One round of blocks of Ampere's kernels, two of Turing's, which leave room for two on an SM."""
    turing = _by_turing(kernel, k, n)
    least = LEAST_CUT_SMALL if kernel.small else LEAST_CUT
    if turing:
        least = LEAST_CUT_TURING if kernel.small else 0
    if k < least:
        return (1,)
    rounds = 2 if turing and kernel.form.shape.block_n < 256 else 1
    steps, tiles = -(-k // STEP_COLUMNS), _tiles(kernel.form, m, n)
    most = rounds * gpu.sm_count // tiles
    if most > 1:
        fewest = 1 if turing and kernel.form.shape[:2] == (64, 64) else FEWEST_STEPS
        rounds_of = (1, 2) if kernel.small and not turing else (1,)
        found = (min(count * most, max(steps // fewest, 1)) for count in rounds_of)
        return tuple(_whole_steps(parts, steps) for parts in found)
    if kernel.small and not turing:
        return (1,)
    return tuple(p for p in MORE_TILES_PARTS if p == 1 or steps // p >= FEWEST_STEPS_OF_MORE)


def _by_turing(kernel: UnalignedKernel, k: int, n: int) -> bool:
    return copy_lane_bytes(k, n, kernel.form.dtype) < COPY_LANE_BYTES


def _whole_steps(parts: int, steps: int) -> int:
    return -(-steps // -(-steps // parts))


def _tiles(form: TileConfig, m: int, n: int) -> int:
    return -(-m // form.shape.block_m) * -(-n // form.shape.block_n)


def _seconds(kernel: UnalignedKernel, parts: int, step: _Step, m: int, k: int, n: int, gpu: GpuSpec) -> float:
    """Of SMs and chip the longer, and the shorter on top: the library goes by both (see `times.UNHIDDEN`)."""
    form, element = kernel.form, kernel.form.element_bytes
    rows, tokens = min(form.shape.block_m, m), min(form.shape.block_n, n)
    clock_hz = gpu.clock_burst_hz[0]
    sm_s = _sm_cycles(form, parts, step, m, k, n, gpu) / clock_hz
    l2_s = _tiles(form, m, n) * (rows + tokens) * k * element / gpu.l2_bytes_per_s
    l2_s += m * n * element / gpu.l2_store_bytes_per_s
    dram_s = element * (m * k + k * n + m * n) / gpu.dram_bytes_per_s
    seconds = sm_s + max(l2_s, dram_s) + QUIET_CYCLES / clock_hz
    if parts > 1:
        seconds += reduction_seconds(m, n, parts, gpu) + 4.0 * m * n * parts / gpu.l2_store_bytes_per_s
    return seconds


def _step_cycles(kernel: UnalignedKernel, m: int, k: int, n: int, gpu: GpuSpec) -> _Step:
    form, costs = kernel.form, _costs(kernel.form, gpu)
    rows, tokens = min(form.shape.block_m, m), min(form.shape.block_n, n)
    copied = (rows + tokens) * form.shape.block_k * form.element_bytes
    copies = copied / (LANES * copy_lane_bytes(k, n, form.dtype))
    busy = max(kernel.believed_cycles * copies + costs.reads, costs.tensor) + BETWEEN_STEPS
    return _Step(busy, max(busy, costs.pace), copied)


def _sm_cycles(form: TileConfig, parts: int, step: _Step, m: int, k: int, n: int, gpu: GpuSpec) -> float:
    """Until the busiest SM is done: rounds of blocks that share its pipes and its path to shared memory."""
    costs = _costs(form, gpu)
    whole = -(-k // form.shape.block_k)
    steps = -(-whole // parts)
    first = step.copied_bytes / gpu.l2_port_bytes_per_clk_per_sm
    start = gpu.block_start_cycles + gpu.dram_latency_cycles + gpu.store_latency_cycles + first
    stored = min(form.shape.block_m, m) * min(form.shape.block_n, n) * form.element_bytes
    alone = steps * step.alone + costs.edge + stored / gpu.store_bytes_per_clk_per_sm + start
    demand = steps * step.busy + SHARED_EDGE * costs.edge
    rounds, rest = divmod(-(-_tiles(form, m, n) * parts // gpu.sm_count), costs.blocks)
    last = max(alone, rest * demand) if rest else 0.0
    return rounds * max(alone, costs.blocks * demand) + last


@lru_cache(maxsize=64)
def _costs(form: TileConfig, gpu: GpuSpec) -> _Costs:
    block_m, block_n, block_k = form.shape
    warps, area = form.consumer_warps, block_m * block_n
    tensor = area * block_k / tensor_fma_per_clk(gpu, form.dtype, form.tensor)
    reads = warps * form.operand_bytes_per_warp_per_k16 * block_k / 16 / SHARED_BYTES_PER_CLK
    edge = ISSUES_PER_PAIR * area / (64 * warps) + EDGE_ISSUES
    edge += 2 * gpu.shared_latency_cycles + gpu.tensor_latency_cycles
    edge += 2 * area * form.element_bytes / SHARED_BYTES_PER_CLK
    blocks = occupancy(form.resources, gpu).blocks_per_sm
    return _Costs(tensor, reads, pace_of_warps(form, tensor, gpu), edge, blocks)
