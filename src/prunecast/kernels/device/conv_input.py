"""A convolution's input in place of B: pixels for columns, where lines of C end, and strides."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.packed import uncovered_rows
from prunecast.kernels.device.tile_stages import PackedStages
from prunecast.plan.conv_grid import ConvGrid
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

CHUNK = 8
"""Tokens that are zeros together, and that a row of B begins at a multiple of. Kind: CUDA source,
`border.cuh`."""


def grid_of(plan: KernelPlan) -> ConvGrid | None:
    """The convolution whose input a plan reads; None for a product.

    Raises
    ------
    BadInput : images that no kernel reads, or not a multiple of 8 of them
    """
    if plan.source is None:
        return None
    if not isinstance(plan.source, ConvGrid):
        raise BadInput(
            f"{plan.kernel}: no kernel reads the input of a convolution without a grid; it is predicted only"
        )
    if plan.source.conv.batch % CHUNK:
        raise BadInput(f"{plan.kernel}: wanted a multiple of {CHUNK} images, got {plan.source.conv.batch}")
    return plan.source


def check_conv(plan: KernelPlan) -> None:
    """Refuse plans of other kernels than those of tiles, and filters in no tile, with `BadInput`."""
    if plan.inner is not None or plan.tensor not in ("wgmma", "mma"):
        raise BadInput(f"{plan.kernel}: the tile kernels alone read the input of a convolution")
    if uncovered_rows(plan.tiles).size:
        raise BadInput(f"{plan.kernel}: wanted every filter of a convolution in a tile")


def conv_defines(plan: KernelPlan) -> dict[str, int]:
    """Preprocessor names of a kernel that reads a convolution's input; none for a product."""
    grid = grid_of(plan)
    if grid is None:
        return {}
    strided = grid.conv.stride > 1
    return {**({"BORDER": 1} if grid.border or strided else {}), **({"STRIDED": 1} if strided else {})}


def reading_input(plan: KernelPlan, packed: PackedStages) -> PackedStages:
    """Images whose columns are pixels of the input, `batch` elements apart; those of a product unchanged."""
    grid = grid_of(plan)
    if grid is None:
        return packed
    pixels = np.append(grid.offsets(), np.int32(-1))
    return packed._replace(columns=np.ascontiguousarray(pixels[packed.columns]))


def write_grid(plan: KernelPlan, args: npt.NDArray[Any]) -> None:
    """Lines, their pixels and strides into the argument of a launch; nothing for a product."""
    grid = grid_of(plan)
    if grid is None:
        return
    conv, pixel_bytes = grid.conv, grid.conv.batch * DTYPE_BYTES[plan.dtype]
    chunks = conv.batch // CHUNK
    args["line_chunks"], args["pixel_chunks"] = grid.line * chunks, conv.width_out * chunks
    step = conv.stride * pixel_bytes
    args["strides"] = (chunks, step, step * grid.source.line, 0)
