"""Convolutions with implicit GEMM on the tile kernels: input offsets, line ends, strides, and
`ConvOperator`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.arrays import Wanted, check_given
from prunecast.kernels.device.frameworks import framework_of
from prunecast.kernels.device.launch import Place
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.conv_grid import ConvGrid
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

CHUNK = 8
"""Number of tokens per chunk: zeros and starts of rows of B are aligned to chunks. Kind: CUDA source,
`border.cuh`."""
_WORD_BYTES = 8
"""Bytes of the words with which borders are cleared. Kind: choice, a pixel is whole groups of 8 images of 2
bytes."""


def grid_of(plan: KernelPlan) -> ConvGrid | None:
    """Return the convolution whose input a plan reads; None for a matrix product.

    Raises
    ------
    BadInput : the plan has no `ConvGrid`, or the number of images is not a multiple of 8
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
    """Return the preprocessor names of a kernel that reads a convolution's input; none for a
    matrix product.
    """
    grid = grid_of(plan)
    if grid is None:
        return {}
    strided = grid.conv.stride > 1
    return {**({"BORDER": 1} if grid.border or strided else {}), **({"STRIDED": 1} if strided else {})}


def rows_of_b(plan: KernelPlan, columns: IntArray) -> IntArray:
    """Return the rows of B of column indices: pixels of the input of a convolution; -1 stays -1."""
    grid = grid_of(plan)
    if grid is None:
        return columns
    return np.ascontiguousarray(np.append(grid.offsets(), np.int32(-1))[columns])


def write_grid(plan: KernelPlan, args: npt.NDArray[Any]) -> None:
    """Write line sizes, pixel counts and strides into the launch argument; nothing for a matrix product."""
    grid = grid_of(plan)
    if grid is None:
        return
    conv, pixel_bytes = grid.conv, grid.conv.batch * DTYPE_BYTES[plan.dtype]
    chunks = conv.batch // CHUNK
    args["line_chunks"], args["pixel_chunks"] = grid.line * chunks, conv.width_out * chunks
    step = conv.stride * pixel_bytes
    args["strides"] = (chunks, step, step * grid.source.line, 0)


class ConvOperator:
    """A convolution on one device, `c = op(b)`: both arrays are planes of a `ConvGrid`, pixels of `batch`
    elements.

    Attributes
    ----------
    grid : layout of the input
    output : layout of the output's pixels
    """

    def __init__(self, operator: Any, grid: ConvGrid) -> None:
        self._operator, self.grid, self.plan, self.clock = operator, grid, operator.plan, operator.clock
        self.output = grid.output(self.plan.m)
        self._pixel = grid.conv.batch * DTYPE_BYTES[self.plan.dtype]
        self._first, self._plane = self.output.first * self._pixel, self.output.plane * self._pixel

    def __call__(self, b: Any, out: Any = None) -> Any:
        """Return C (output.pixels, batch) for B (grid.source.pixels, batch): CuPy arrays or torch tensors.

        The launch is enqueued on the current stream of the framework of `b`. If `out` is given, it must
        already have zeros between its planes, for example because it is an earlier output.

        Raises
        ------
        BadInput : a dtype, shape, device or layout differs from the plan's; nothing was launched
        """
        framework = framework_of("B", b)
        read = self._place("B", framework, b, self.grid.source.pixels)
        c = framework.empty(b, self.output.pixels, self.grid.conv.batch) if out is None else out
        written = self._place("C", framework, c, self.output.pixels)
        import cupy as cp

        with framework.stream(b):
            if out is None:
                self.clear(framework.view(c))
            self.enqueue(read, written, int(cp.cuda.get_current_stream().ptr))
        return c

    def enqueue(self, b: Place, c: Place, stream: int) -> None:
        """Enqueue only the launch: nothing is checked, and borders between planes of C are not written.

        Parameters
        ----------
        b, c : input and output; `row_bytes` is the bytes of a pixel
        stream : handle
        """
        self._operator.enqueue(b, Place(c.pointer + self._first, self._plane), stream)

    def copy(self) -> "ConvOperator":
        """Return a copy with its own device memory, to be used on another stream."""
        return ConvOperator(self._operator.copy(), self.grid)

    def _place(self, name: str, framework: Any, array: Any, pixels: int) -> Place:
        given, conv = framework.describe(name, array), self.grid.conv
        wanted = Wanted(pixels, pixels, conv.batch, self.plan.dtype, self._operator.device)
        check_given(name, given, wanted, pixels)
        if given.strides[0] != self._pixel or given.pointer % wanted.align_bytes:
            raise BadInput(f"{name} must lie without gaps from a multiple of {wanted.align_bytes} bytes on")
        return Place(given.pointer, self._pixel)

    def clear(self, c: Any) -> None:
        """Write zeros between the planes of C, a CuPy array.

        Words of 8 bytes are faster: CuPy stores one element per thread, whatever its size.
        """
        import cupy as cp

        shape = (self.plan.m + 1, self._first // _WORD_BYTES)
        cp.ndarray(shape, "u8", c.data, (self._plane, _WORD_BYTES))[...] = 0
