"""Implicit-GEMM convolutions on the tile kernels: input offsets, borders, strides, and `ConvOperator`."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.arrays import OperandSpec, check_given, current_stream
from prunecast.kernels.device.frameworks import framework_of
from prunecast.kernels.device.launch import Place
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.conv_grid import ConvGrid
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

CHUNK = 8
"""Number of neighbouring tokens to which zeros and starts of rows of B are aligned. Kind: CUDA source,
`border.cuh`."""
SECOND_SOURCE = 1 << 30
"""Bit that is set in the row index of B if the row is read from the second input. Kind: CUDA source,
`border.cuh`."""
_STRIDES = [(name, "i4") for name in ("pixel_chunks", "pixel_bytes", "line_bytes", "reserved")]
_GAPS = [(name, "i4") for name in ("between", "edge", "last_row", "reserved")]
PLANE_FIELDS = [("strides", _STRIDES), ("gaps", _GAPS), ("second", "i8")]
"""Fields of a launch argument that only convolutions read: `Strides` and `Gaps` of `border.cuh`, which says
what their members count. Kind: CUDA source, `tile_args.cuh`."""


def grid_of(plan: KernelPlan) -> ConvGrid | None:
    """Return the convolution that a plan computes; None for a matrix product.

    Raises
    ------
    BadInput : the plan is a convolution without a `ConvGrid`, or its batch is not a multiple of 8 images
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


def conv_defines(plan: KernelPlan) -> dict[str, int]:
    """Return the preprocessor macros of a kernel that reads the input of a convolution.

    The dict is empty for a matrix product.
    """
    grid = grid_of(plan)
    if grid is None:
        return {}
    strided, second = grid.conv.stride > 1, grid.second > 0
    names = {"BORDER": grid.output_border or strided or second, "STRIDED": strided, "SECOND": second}
    return {name: 1 for name, is_set in names.items() if is_set}


def rows_of_b(plan: KernelPlan, columns: IntArray) -> IntArray:
    """Return the row of B that each column of A multiplies, in the shape of `columns`; -1 (padding) stays -1.

    In a matrix product the row is the column's index. In a convolution it is the input pixel at which the row
    begins; for columns that read the second input, the bit `SECOND_SOURCE` is set.
    """
    grid = grid_of(plan)
    if grid is None:
        return columns
    rows = grid.offsets()
    rows[grid.conv.k :] |= SECOND_SOURCE
    return np.ascontiguousarray(np.append(rows, np.int32(-1))[columns])


def write_grid(plan: KernelPlan, args: npt.NDArray[Any]) -> None:
    """Write the line, pixel and border sizes of a convolution into the launch argument `args`.

    A matrix product leaves `args` unchanged.
    """
    grid = grid_of(plan)
    if grid is None:
        return
    conv, pixel_bytes = grid.conv, grid.conv.batch * DTYPE_BYTES[plan.dtype]
    chunks = conv.batch // CHUNK
    args["line_chunks"], args["pixel_chunks"] = grid.line * chunks, conv.width_out * chunks
    # The fields are views, through which `args` is written
    strides, gaps, border = args["strides"], args["gaps"], grid.output_border
    strides["pixel_chunks"], strides["pixel_bytes"] = chunks, conv.stride * pixel_bytes
    strides["line_bytes"] = conv.stride * pixel_bytes * grid.source.line
    gaps["between"], gaps["edge"], gaps["last_row"] = border * grid.line * chunks, border * chunks, plan.m - 1


class ConvOperator:
    """A convolution on one device, `c = op(b)`, whose input and output have the layout of a `ConvGrid`.

    Both arrays are (pixels, batch): one plane of pixels for each channel, with zero borders.

    Attributes
    ----------
    grid : the convolution and the layout of its input
    output : layout of the output's pixels
    """

    def __init__(self, operator: Any, grid: ConvGrid) -> None:
        self._operator, self.grid, self.plan, self.clock = operator, grid, operator.plan, operator.clock
        self.output, self.more = grid.output(self.plan.m), grid.output(grid.second)
        self._pixel = grid.conv.batch * DTYPE_BYTES[self.plan.dtype]
        self._first, self._plane = self.output.first * self._pixel, self.output.plane * self._pixel

    def __call__(self, b: Any, out: Any = None, *, second: Any = None) -> Any:
        """Return C (output.pixels, batch) for B (grid.source.pixels, batch): CuPy arrays or torch tensors.

        The launch is enqueued on the current stream of the framework of `b`. It writes all of C, including
        the zeros between its planes.

        Parameters
        ----------
        out : C, or None for a new array
        second : the second input, if the grid has one: `grid.second` planes in the layout of the output

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        framework = framework_of("B", b)
        read = self._place("B", framework, b, self.grid.source.pixels)
        if (second is None) != (self.grid.second == 0):
            raise BadInput(f"convolution: wanted a second input of {self.grid.second} channels")
        added = None if second is None else self._place("second", framework, second, self.more.pixels)
        c = framework.empty(b, self.output.pixels, self.grid.conv.batch) if out is None else out
        written = self._place("C", framework, c, self.output.pixels)
        with framework.stream(b):
            self.enqueue(read, written, current_stream(), added)
        return c

    def enqueue(self, b: Place, c: Place, stream: int, second: Place | None = None) -> None:
        """Enqueue only the launch: nothing is checked.

        Parameters
        ----------
        b, c, second : addresses of the inputs and the output; `row_bytes` is the size of a pixel in bytes
        stream : handle of a CUDA stream of the current device
        """
        written = Place(c.pointer + self._first, self._plane)
        self._operator.enqueue(b, written, stream, second=0 if second is None else second.pointer)

    def copy(self) -> "ConvOperator":
        """Return a copy with its own device memory, to be used on another stream."""
        return ConvOperator(self._operator.copy(), self.grid)

    def _place(self, name: str, framework: Any, array: Any, pixels: int) -> Place:
        given, conv = framework.describe(name, array), self.grid.conv
        wanted = OperandSpec(pixels, pixels, conv.batch, self.plan.dtype, self._operator.device)
        check_given(name, given, wanted, pixels)
        if given.strides[0] != self._pixel or given.pointer % wanted.align_bytes:
            raise BadInput(f"{name} must lie without gaps from a multiple of {wanted.align_bytes} bytes on")
        return Place(given.pointer, self._pixel)
