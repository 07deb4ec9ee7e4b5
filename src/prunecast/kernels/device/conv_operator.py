"""`ConvOperator`: a convolution on one device, from the operator of its product."""

from typing import Any

from prunecast.errors import BadInput
from prunecast.kernels.device.arrays import Wanted, check_given
from prunecast.kernels.device.frameworks import framework_of
from prunecast.kernels.device.launch import Place
from prunecast.plan.conv_grid import ConvGrid
from prunecast.plan.kernel_plan import DTYPE_BYTES


class ConvOperator:
    """A convolution on one device, `c = op(b)`: both are planes of a `ConvGrid`, pixels of `batch` elements.

    Attributes
    ----------
    grid : of the input
    output : where pixels of the output lie
    """

    def __init__(self, operator: Any, grid: ConvGrid) -> None:
        self._operator, self.grid, self.plan, self.clock = operator, grid, operator.plan, operator.clock
        self.output = grid.output(self.plan.m)
        self._pixel = grid.conv.batch * DTYPE_BYTES[self.plan.dtype]
        self._first, self._plane = self.output.first * self._pixel, self.output.plane * self._pixel

    def __call__(self, b: Any, out: Any = None) -> Any:
        """C (output.pixels, batch) of B (grid.source.pixels, batch): CuPy arrays or torch tensors.

        Enqueued on the current stream of the framework of `b`. An `out` has zeros between its planes already,
        such as a former output.

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
        """The launch alone: nothing is checked, and borders between planes of C are not written.

        Parameters
        ----------
        b, c : input and output, the bytes of a pixel for those of a row
        stream : handle
        """
        self._operator.enqueue(b, Place(c.pointer + self._first, self._plane), stream)

    def copy(self) -> "ConvOperator":
        """A copy with device memory of its own, to be used on another stream."""
        return ConvOperator(self._operator.copy(), self.grid)

    def _place(self, name: str, framework: Any, array: Any, pixels: int) -> Place:
        given, conv = framework.describe(name, array), self.grid.conv
        wanted = Wanted(pixels, pixels, conv.batch, self.plan.dtype, self._operator.device)
        check_given(name, given, wanted, pixels)
        if given.strides[0] != self._pixel or given.pointer % wanted.align_bytes:
            raise BadInput(f"{name} must lie without gaps from a multiple of {wanted.align_bytes} bytes on")
        return Place(given.pointer, self._pixel)

    def clear(self, c: Any) -> None:
        """Zeros between the planes of C, a CuPy array."""
        import cupy as cp

        shape = (self.plan.m + 1, self._first // c.itemsize)
        cp.lib.stride_tricks.as_strided(c, shape, (self._plane, c.itemsize))[...] = 0
