"""`balanced`: Balanced Sparsity on CUDA cores, windows of B in shared memory.

After Yao et al., "Balanced Sparsity for Efficient DNN Inference on GPU" (AAAI'19), where equal counts per
segment give every lane equal work. The layout, with dense columns beside the equal rest, is our own.
"""

from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.balanced.copies import Sharers
from prunecast.kernels.balanced.layout import (
    GROUP_ROWS,
    WARPS,
    BalancedLayout,
    balanced_layout,
    choose_rest,
    vector_layout,
)
from prunecast.kernels.balanced.programs import matrix_programs
from prunecast.kernels.balanced.registers import MOST_REGISTERS
from prunecast.kernels.balanced.vector_programs import vector_programs
from prunecast.kernels.tile.tile_plan import check_tokens
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.kernel_plan import DTYPE_BYTES, BlockShape, KernelPlan, PlanDoesNotFit
from prunecast.plan.order import assign_hardware
from prunecast.plan.program import WarpProgram
from prunecast.plan.tensor_rate import check_dtype
from prunecast.plan.work_items import raster, whole_items

__all__ = ["TOKENS", "WARPS", "MatrixForm", "matrix_form", "plan_balanced", "ring_bytes"]

TOKENS = 64
STAGES = 2
MATRIX_REGISTERS = 128
MOST_VECTOR_ROWS = 4
"""Rows of a warp for one token."""
SPLITS = (1, 2, 4, 8, 16)
WINDOWS = (128, 64, 32, 16)


class MatrixForm(NamedTuple):
    """How a plan of more than one token is run."""

    splits: int
    """Warps of a block that share a group of rows; each takes a part of the windows."""
    layout: BalancedLayout
    slot_words: int
    """Words of 16 bytes of the longest record."""


def plan_balanced(elements: ElementMap, n: int, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Plan the product of a balanced matrix with `n` tokens.

    Any element map is right; it is fast where every segment of a row keeps equally many.

    Raises
    ------
    BadInput : n below 1, a dtype that the GPU does not compute in, or no elements but tiles
    PlanDoesNotFit : no block fits
    """
    check_tokens(n)
    check_dtype(dtype)
    if not isinstance(elements, ElementMap):
        raise BadInput(f"balanced: wanted an ElementMap, got {type(elements).__name__}")
    if dtype == "bf16" and gpu.compute_capability < 80:
        needed = f"{gpu.name} has {gpu.compute_capability / 10}"
        raise BadInput(f"dtype bf16 needs compute capability 8.0, {needed}")
    if n == 1:
        return _vector_plan(elements, dtype, gpu)
    form = matrix_form(elements, n, dtype, gpu)
    shape = BlockShape(GROUP_ROWS * WARPS // form.splits, TOKENS, form.layout.window * form.splits)
    ranges = -(-n // TOKENS)
    alike = min(-(-elements.m // shape.block_m), max(gpu.sm_count // ranges, 1))
    sharers = Sharers(alike, -(-(-(-elements.m // shape.block_m) * ranges) // gpu.sm_count))
    programs = matrix_programs(form.layout, form.splits, n, dtype, gpu, sharers=sharers)
    return _plan(elements, n, dtype, shape, _matrix_resources(form, dtype), programs, gpu)


def _vector_plan(elements: ElementMap, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """One wave of blocks if four rows a warp are enough for it."""
    vector = vector_layout(elements)
    rows = min(max(-(-elements.m // (gpu.sm_count * WARPS)), 1), MOST_VECTOR_ROWS)
    shape = BlockShape(rows * WARPS, 1, 128)
    resources = BlockResources(32 * WARPS, MOST_REGISTERS, 128 * (vector.places + 1))
    if occupancy(resources, gpu).blocks_per_sm == 0:
        raise PlanDoesNotFit(f"balanced: a block of {resources} does not fit on an SM of {gpu.name}")
    blocks = -(-elements.m // (rows * WARPS))
    programs = vector_programs(vector, elements.k, rows, dtype, blocks=blocks)
    return _plan(elements, 1, dtype, shape, resources, programs, gpu)


def matrix_form(elements: ElementMap, n: int, dtype: str, gpu: GpuSpec) -> MatrixForm:
    """The form with the fewest splits whose waves are near the least, then the longest windows, that fits.

    More splits mean fewer rows that share a read of B from L2: fuller waves must gain a tenth to be worth it.
    """
    work = {splits: _waves(elements.m, n, splits, gpu) / splits for splits in SPLITS}
    enough = 1.1 * min(work.values())
    for splits in sorted(SPLITS, key=lambda s: (work[s] > enough, s if work[s] <= enough else work[s])):
        for window in WINDOWS:
            if ring_bytes(window, splits, dtype) > gpu.shared_bytes_per_block:
                continue
            form = _form(elements, splits, window)
            if occupancy(_matrix_resources(form, dtype), gpu).blocks_per_sm:
                return form
    raise PlanDoesNotFit(f"balanced: no block of {32 * WARPS} threads fits on an SM of {gpu.name}")


def ring_bytes(window: int, splits: int, dtype: str) -> int:
    """Shared memory of the windows of B; each ends in a column of zeros."""
    return STAGES * splits * (window + 1) * TOKENS * DTYPE_BYTES[dtype]


def _form(elements: ElementMap, splits: int, window: int) -> MatrixForm:
    layout = balanced_layout(elements, window, choose_rest(elements, window))
    return MatrixForm(splits, layout, int(layout.words.max(initial=1)))


def _matrix_resources(form: MatrixForm, dtype: str) -> BlockResources:
    records = STAGES * WARPS * form.slot_words * 16
    shared = ring_bytes(form.layout.window, form.splits, dtype) + records
    return BlockResources(32 * WARPS, MATRIX_REGISTERS, shared, STAGES)


def _waves(m: int, n: int, splits: int, gpu: GpuSpec) -> int:
    blocks = -(-m * splits // (GROUP_ROWS * WARPS)) * -(-n // TOKENS)
    return -(-blocks // gpu.sm_count)


def _plan(
    elements: ElementMap,
    n: int,
    dtype: str,
    shape: BlockShape,
    resources: BlockResources,
    programs: tuple[WarpProgram, ...],
    gpu: GpuSpec,
) -> KernelPlan:
    tiles = dense_tile_map(elements.m, elements.k, shape.block_m)
    order = raster(tiles.tile_count, -(-n // shape.block_n), 1)
    assigned = assign_hardware(whole_items(tiles.kept_per_tile, order, n=n, block_n=shape.block_n))
    return KernelPlan(
        kernel="balanced",
        n=n,
        dtype=dtype,
        tiles=tiles,
        inner=elements,
        work=assigned.work,
        schedule=assigned.schedule,
        blocks=assigned.blocks,
        shape=shape,
        resources=resources,
        programs=programs,
        tensor="none",
        b_access="dense_tile",
        pdl=gpu.compute_capability >= 90,
    )
