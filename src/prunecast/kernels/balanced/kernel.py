"""`balanced`: planner and record of the kernel for Balanced Sparsity, on CUDA cores with windows of B in
shared memory.

After Yao et al., "Balanced Sparsity for Efficient DNN Inference on GPU" (AAAI'19), where equal counts per
segment give every lane equal work. The layout, dense columns plus an equal number of other elements per row,
is the project's own.
"""

from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.balanced.layout import (
    GROUP_ROWS,
    LANES,
    REST_CLOCKS,
    WARPS,
    BalancedLayout,
    balanced_layout,
    choose_rest,
    vector_layout,
)
from prunecast.kernels.balanced.programs import Sharers, matrix_programs
from prunecast.kernels.balanced.vector_programs import MOST_REGISTERS, vector_programs, vector_registers
from prunecast.kernels.kernel import Entry, ItemTimes, Kernel, LaunchTraits, Sources, of_each
from prunecast.kernels.tile.tile_plan import check_tokens
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.assignment import assign_hardware
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape, KernelPlan, PlanDoesNotFit
from prunecast.plan.program import Op, WarpProgram
from prunecast.plan.tensor_rate import check_core_dtype
from prunecast.plan.work_items import raster_items

TOKENS = 64
"""Tokens of a block. Kind: CUDA source, `matrix.cu`."""
STAGES = 2
"""Number of pipeline stages. Kind: CUDA source, `matrix.cu`."""
MATRIX_REGISTERS = 128
"""Maximum number of registers per thread. Kind: CUDA source, `matrix.cu`, launch bounds."""
MOST_VECTOR_ROWS = 4
"""Maximum number of rows per warp for one token. Kind: choice, the compile tests build these numbers without
spills."""
SPLITS = (1, 2, 4, 8, 16)
"""Numbers of warps that share a group of 16 rows. Kind: choice, divisors of a block's warps."""
WINDOWS = (128, 64, 32, 16)
"""Columns of A in a window, the columns that a warp multiplies in a step. Kind: choice, the compile tests
build these widths."""


class _BalancedConfig(NamedTuple):
    """One compiled config of the kernel; the packing of the elements also depends on the matrix."""

    rows: int
    """Rows of A that a block computes."""
    window: int
    """Columns of A that a warp multiplies in a step; 0 for one token, where each lane has its own segments of
    columns instead."""

    def __str__(self) -> str:
        """Return the short name, e.g. `64x64 w32`: rows and tokens of a block, and its window; `16x1` for one
        token.
        """
        return f"{self.rows}x{TOKENS} w{self.window}" if self.window else f"{self.rows}x1"

    @property
    def splits(self) -> int:
        """Number of warps of a block that share a group of 16 rows; each warp processes a part of the windows
        (ranges of columns of A).
        """
        return GROUP_ROWS * WARPS // self.rows


def plan_balanced(
    elements: ElementMap, n: int, dtype: str, gpu: GpuSpec, config: _BalancedConfig
) -> KernelPlan:
    """Return the plan of a product of a balanced matrix with `n` tokens.

    The result is correct for any element map. It is fast if every segment of a row keeps equally many
    elements.

    Parameters
    ----------
    config : one of `_balanced_configs`

    Raises
    ------
    BadInput : n below 1, a dtype that the GPU does not multiply on CUDA cores, or a map that is not an
        `ElementMap`
    PlanDoesNotFit : a block does not fit on an SM
    """
    _check(elements, n, dtype, gpu)
    if n == 1:
        return _vector_plan(elements, dtype, gpu, config)
    layout, splits = matrix_layout(elements, config.window), config.splits
    records = STAGES * WARPS * int(layout.words.max(initial=1)) * 16
    shared = ring_bytes(layout.window, splits, dtype) + records
    resources = BlockResources(32 * WARPS, MATRIX_REGISTERS, shared, STAGES)
    _check_fit(
        resources, gpu, f"two windows of B for each of {splits} splits, and the weights of {WARPS} warps"
    )
    shape = BlockShape(config.rows, TOKENS, config.window * splits)
    ranges = -(-n // TOKENS)
    alike = min(-(-elements.m // shape.block_m), max(gpu.sm_count // ranges, 1))
    sharers = Sharers(alike, -(-(-(-elements.m // shape.block_m) * ranges) // gpu.sm_count))
    programs = matrix_programs(layout, splits, n, dtype, gpu, sharers=sharers)
    return _plan(elements, n, dtype, shape, resources, programs, gpu, config)


def _balanced_configs(elements: ElementMap, n: int, dtype: str, gpu: GpuSpec) -> tuple[_BalancedConfig, ...]:
    """Return the configs whose windows of B fit into shared memory. The packed weights of a block (records),
    which need shared memory in addition, are not checked. Raise BadInput in the same cases as
    `plan_balanced`.
    """
    _check(elements, n, dtype, gpu)
    if n == 1:  # one wave of blocks if that needs at most four rows per warp
        rows = min(max(-(-elements.m // (gpu.sm_count * WARPS)), 1), MOST_VECTOR_ROWS)
        return (_BalancedConfig(rows * WARPS, 0),)
    fitting = [
        _BalancedConfig(GROUP_ROWS * WARPS // splits, window)
        for splits in SPLITS
        for window in WINDOWS
        if ring_bytes(window, splits, dtype) <= gpu.shared_bytes_per_block
    ]
    return tuple(fitting)


def _balanced_times(
    config: _BalancedConfig, elements: ElementMap, n: int, dtype: str, gpu: GpuSpec
) -> ItemTimes:
    """Return the estimated times of items, limited by the words of B that each element reads from shared
    memory.
    """
    tokens, blocks = TOKENS if config.window else 1, -(-elements.m // config.rows)
    kept = elements.kept_count / max(blocks, 1)
    pipe = np.full(blocks, kept * (REST_CLOCKS / 4 if config.window else 1 / LANES))
    steps = -(-elements.k // (config.window * config.splits)) if config.window else 1
    read = elements.k * min(n, tokens) * DTYPE_BYTES[dtype]
    packed = elements.kept_count * (DTYPE_BYTES[dtype] + 1.0)
    return ItemTimes(
        alone=pipe + steps * (gpu.sync_latency_cycles + gpu.barrier_latency_cycles) + gpu.dram_latency_cycles,
        pipe=pipe,
        ranges=-(-n // tokens),
        slots=1 if config.window else 2,
        weight_bytes=packed,
        read_bytes=-(-n // tokens) * (packed + float(blocks) * read),
        once=float(gpu.block_start_cycles),
    )


def matrix_layout(elements: ElementMap, window: int) -> BalancedLayout:
    """Return the layout of a matrix for more than one token. It depends only on the matrix and the window."""
    return balanced_layout(elements, window, choose_rest(elements, window))


def _check(elements: ElementMap, n: int, dtype: str, gpu: GpuSpec) -> None:
    check_tokens(n)
    check_core_dtype(dtype, gpu)
    if not isinstance(elements, ElementMap):
        raise BadInput(f"balanced: wanted an ElementMap, got {type(elements).__name__}")


def _check_fit(resources: BlockResources, gpu: GpuSpec, held: str) -> None:
    """Raise PlanDoesNotFit if a block, which holds `held` in shared memory, does not fit on an SM."""
    fit = occupancy(resources, gpu)
    if fit.blocks_per_sm == 0:
        raise PlanDoesNotFit(
            f"balanced: no block fits on an SM of {gpu.name}, limit: {fit.limiter} (a block may have "
            f"{gpu.shared_bytes_per_block} bytes, {held} need {resources.shared_bytes})"
        )


def _vector_plan(elements: ElementMap, dtype: str, gpu: GpuSpec, config: _BalancedConfig) -> KernelPlan:
    """Return the plan for one token."""
    vector, rows = vector_layout(elements), config.rows // WARPS
    shape = BlockShape(config.rows, 1, vector.step_columns(elements.k))
    resources = BlockResources(32 * WARPS, MOST_REGISTERS, 128 * (vector.places + 1))
    _check_fit(resources, gpu, f"{elements.k} rows of B for one token")
    blocks = -(-elements.m // (rows * WARPS))
    programs = vector_programs(vector, elements.k, rows, dtype, blocks=blocks)
    return _plan(elements, 1, dtype, shape, resources, programs, gpu, config)


def ring_bytes(window: int, splits: int, dtype: str) -> int:
    """Return the bytes of shared memory for the windows of B of all stages and splits; each window ends with
    a column of zeros.
    """
    return STAGES * splits * (window + 1) * TOKENS * DTYPE_BYTES[dtype]


def _plan(
    elements: ElementMap,
    n: int,
    dtype: str,
    shape: BlockShape,
    resources: BlockResources,
    programs: tuple[WarpProgram, ...],
    gpu: GpuSpec,
    config: _BalancedConfig,
) -> KernelPlan:
    tiles = dense_tile_map(elements.m, elements.k, shape.block_m)
    assigned = assign_hardware(raster_items(tiles.kept_per_tile, n=n, block_n=shape.block_n))
    return KernelPlan(
        kernel="balanced",
        n=n,
        dtype=dtype,
        tiles=tiles,
        inner=elements,
        **assigned._asdict(),
        shape=shape,
        resources=resources,
        programs=programs,
        tensor="none",
        b_access="dense_tile",
        pdl=gpu.compute_capability >= 90,
        config=config,
    )


def _balanced_traits(plan: KernelPlan, gpu: GpuSpec) -> LaunchTraits:
    """Return the launch traits. With one token, weights are read evict-first, so that B stays in L2."""
    own = gpu.compute_capability >= 90
    if plan.n > 1 or plan.inner is None:
        prologue = _without_set_up(plan.programs)
        return LaunchTraits(co_resident=True, prologue=lambda share: prologue, aligns_rows=own)
    programs, registers = _without_set_up(plan.programs), 0
    if plan.pdl:
        layout = vector_layout(plan.inner)
        rows = plan.shape.block_m // WARPS
        registers = vector_registers(rows, layout.segment, layout.index_bytes, plan.dtype)
    return LaunchTraits(
        co_resident=True,
        registers_per_thread=registers,
        prologue=lambda share: _posted(programs) if share >= 1.0 else programs,
        aligns_rows=own,
        weights_evict_first=True,
    )


BALANCED = Kernel(
    name="balanced",
    meaning="the same number of kept weights in every segment of a row",
    takes=ElementMap,
    natural_pattern="balanced:64",
    families=("balanced",),
    opt_in=True,
    costs="prunecast.kernels.balanced",
    plan=plan_balanced,
    configs=_balanced_configs,
    times=of_each(_balanced_times),
    coarse_times=True,
    compilers={
        "none": Entry(
            "prunecast.kernels.balanced.cuda.operator", "BalancedOperator", 75, ("fp16", "bf16", "fp32")
        )
    },
    sources=Sources("balanced", ("device", "balanced/cuda")),
    unaligned_tokens=1,
    traits=_balanced_traits,
)


def _without_set_up(programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    return tuple(replace(program, start=()) for program in programs)


def _posted(programs: tuple[WarpProgram, ...]) -> tuple[WarpProgram, ...]:
    """Return the programs with the first loads of weights marked as prefetches that the blocks of the next
    launch issue during this launch.
    """
    (worker,) = programs
    first = tuple(takewhile(lambda i: i.op is Op.LOAD_A, worker.begin))
    begin = (*(load._replace(posted=True) for load in first), *worker.begin[len(first) :])
    return (replace(worker, begin=begin),)
