"""`csr`: unstructured sparsity on CUDA cores, one block per row of A and token range."""

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import BlockResources, occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.items import raster, split_items, whole_items
from prunecast.kernels.order import assign_hardware
from prunecast.kernels.plan import DTYPE_BYTES, BlockShape, KernelPlan, PlanDoesNotFit
from prunecast.kernels.programs_csr import CSR_WARPS, csr_programs
from prunecast.kernels.tensor_rate import check_dtype
from prunecast.kernels.tile_plan import check_tokens
from prunecast.patterns.element_map import ElementMap
from prunecast.patterns.tiling import row_tile_map

__all__ = ["plan_csr"]

BLOCK_K = 32
MOST_ELEMENTS = 128
"""A longer row is cut into parts of four k-steps. An assumption: cuSPARSE evidently balances long rows, for
uneven layers take no longer than even ones; how is not public. Adding the parts up is free here."""
REGISTERS = 40
OTHER_LAUNCHES_S = 7.8e-6
"""What cuSPARSE is taken to launch besides this kernel: 512 x 2048 at 98 % with 16 tokens takes 11.6 us, of
which the kernel is predicted to take 2.7 and the launch floor 1.1. Own measurement, H200, 2026-11-20; the
launches themselves were not counted."""


def plan_csr(elements: ElementMap, n: int, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """Plan the product of a CSR matrix with `n` tokens.

    Rows of B are read from L2 anew for every row of A that keeps their column: nothing is shared, so the
    traffic is that of the elements. Long rows are cut. All rows of a token range run together.

    Raises
    ------
    BadInput : n below 1, or a dtype that the GPU does not compute in
    PlanDoesNotFit : no block fits
    """
    check_tokens(n)
    _check_dtype(dtype, gpu)
    shape = BlockShape(1, 256 if n > 128 else 128, BLOCK_K)
    resources = BlockResources(32 * CSR_WARPS, REGISTERS, 0, 0)
    if occupancy(resources, gpu).blocks_per_sm == 0:
        raise PlanDoesNotFit(
            f"csr: a block of {resources.threads} threads does not fit on an SM of {gpu.name}"
        )
    tiles = row_tile_map(elements)
    order = raster(tiles.tile_count, -(-n // shape.block_n), 1)
    whole = whole_items(tiles.kept_per_tile, order, n=n, block_n=shape.block_n)
    pieces = np.maximum(-(-whole.k_stop.astype(np.int64) // MOST_ELEMENTS), 1)
    assigned = assign_hardware(split_items(whole, pieces, BLOCK_K))
    return KernelPlan(
        kernel="csr",
        n=n,
        dtype=dtype,
        tiles=tiles,
        work=assigned.work,
        schedule=assigned.schedule,
        blocks=assigned.blocks,
        shape=shape,
        resources=resources,
        programs=csr_programs(shape.block_n, DTYPE_BYTES[dtype]),
        tensor="none",
        other_launches_s=OTHER_LAUNCHES_S,
    )


def _check_dtype(dtype: str, gpu: GpuSpec) -> None:
    check_dtype(dtype)
    if dtype == "bf16" and gpu.compute_capability < 80:
        raise BadInput(
            f"dtype bf16 needs compute capability 8.0, {gpu.name} has {gpu.compute_capability / 10}"
        )
