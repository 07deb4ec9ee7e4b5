"""`ConvGrid`: memory layout of a convolution's input and output for the tile kernels, with zero borders.

Input and output are sequences of planes, one plane per channel, stored as one run of pixels of `batch`
elements each:

    border lines | lines of plane 0 | border lines | lines of plane 1 | ... | border lines

The planes begin at pixel `border`. A line is `width` pixels followed by `border` zero pixels, and the run
ends with as many zeros. The zeros after one line also serve as the left border of the next line. The border
lines below one plane also serve as those above the next plane. With a stride of 1, each filter element
therefore reads whole lines, zeros included, which start at one offset and are contiguous: row k of B begins
at pixel `offsets[k]` and has `n` elements, and rows overlap. A kernel that gathers rows of B needs no other
address computation than for a matrix product. With a larger stride it reads only every stride-th pixel and
line of such a row. Columns of C in the border are stored as zeros, so that C can be the next layer's input.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.conv_shape import ConvShape

IMAGES_TOGETHER = 8
"""Number of images whose fp16 values of one pixel fill a 16-byte copy. The tile kernels need a batch that is
a multiple of this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvGrid:
    """A convolution that keeps the size of its input (divided by the stride), stored with zero borders.

    Parameters
    ----------
    conv : the convolution; its filters have an odd size, and the padding is half of it, rounded down
    border : number of zero pixels after each line of the input, and of zero lines between its planes; at
        least the padding, more if a layer that reads the output needs it
    border_out : number of zero pixels and zero lines in the output; None for the same number as `border`. It
        may differ from `border` only if the stride is above 1
    second : number of channels of a second input, which has the size of the output. Each channel is one more
        row of B. If the corresponding columns of A are an identity, the second input is added to the output
        (a residual)

    Raises
    ------
    BadInput : the filter size is not 2 * padding + 1; the border is smaller than the padding; with stride 1,
        the output has another border; or with another stride, there is a second input
    """

    conv: ConvShape
    border: int = 1
    second: int = 0
    border_out: int | None = None

    def __post_init__(self) -> None:
        conv, wanted = self.conv, 2 * self.conv.padding + 1
        if (conv.kernel_h, conv.kernel_w) != (wanted, wanted):
            raise BadInput(
                f"convolution: wanted odd filters with half of their size for padding, got "
                f"{conv.kernel_h}x{conv.kernel_w} with padding {conv.padding}"
            )
        if self.border < conv.padding:
            raise BadInput(
                f"convolution: filters of {wanted}x{wanted} reach across a border of {self.border}"
            )
        if conv.stride == 1 and self.output_border != self.border:
            raise BadInput(
                f"convolution: with a stride of 1 input and output have one border, got {self.border} and "
                f"{self.border_out}"
            )
        if self.second and conv.stride != 1:
            raise BadInput(f"convolution: a second input needs a stride of 1, got {conv.stride}")

    @classmethod
    def of_network(cls, conv: ConvShape) -> "ConvGrid":
        """Return the grid of a convolution in a network.

        The batch is rounded up to a multiple of `IMAGES_TOGETHER`. With a stride above 1, the output has a
        border of one pixel. Raises BadInput in the same cases as the class.
        """
        border = max(conv.padding, 1)
        batch = -(-conv.batch // IMAGES_TOGETHER) * IMAGES_TOGETHER
        conv = conv if batch == conv.batch else replace(conv, batch=batch)
        return cls(conv=conv, border=border, border_out=1 if conv.stride > 1 else border)

    @property
    def channels(self) -> int:
        """Number of channels of all inputs."""
        return self.conv.channels + self.second

    @property
    def taps(self) -> int:
        """Number of filter elements per channel, equal to the rows of B that read the same channel."""
        return self.conv.taps

    @property
    def k(self) -> int:
        """Number of columns of A and rows of B."""
        return self.conv.k + self.second

    def channel_of(self, columns: IntArray) -> IntArray:
        """Return the channel that each column of A reads; channels of the second input are numbered after
        those of the first.
        """
        own = self.conv.channel_of(columns)
        return np.where(columns < self.conv.k, own, columns - self.conv.k + self.conv.channels)

    @property
    def source(self) -> "PlaneLayout":
        """Layout of the input's pixels."""
        return PlaneLayout(self.conv.channels, self.conv.height, self.conv.width, self.border)

    def output(self, filters: int) -> "PlaneLayout":
        """Return the layout of the output's pixels."""
        return PlaneLayout(filters, self.conv.height_out, self.conv.width_out, self.output_border)

    @property
    def output_border(self) -> int:
        """Number of zero pixels around the images of the output."""
        return self.border if self.border_out is None else self.border_out

    @property
    def line(self) -> int:
        """Pixels from one line of the output to the next."""
        return self.conv.width_out + self.output_border

    @property
    def n(self) -> int:
        """Number of columns of B and C: pixels of a plane, border included, times the batch."""
        return self.conv.height_out * self.line * self.conv.batch

    @property
    def source_ratio(self) -> float:
        """Input elements that are read per channel, divided by the number of columns of C."""
        return self.conv.source_tokens / self.n

    def offsets(self) -> IntArray:
        """Return the pixel at which each row of B begins in its input (first or second), (K,) int32."""
        shift, source = np.arange(self.conv.kernel_h) - self.conv.padding, self.source
        channel, y, x = np.ix_(np.arange(self.conv.channels), shift, shift)
        found = channel * source.plane + source.first + y * source.line + x
        second = self.output(self.second)
        rows = second.first + second.plane * np.arange(self.second)
        return np.concatenate((found.reshape(-1), rows)).astype(np.int32)

    def places(self) -> npt.NDArray[np.int64]:
        """Return the pixel offset of each output pixel within a row of B, (N / batch,) int64.

        The values in the border are arbitrary.
        """
        y, x = np.divmod(np.arange(self.n // self.conv.batch), self.line)
        inside = np.where(x < self.conv.width_out, x, 0)
        return np.asarray(self.conv.stride * (y * self.source.line + inside), np.int64)

    def rows_of_input(self, source: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Return the explicit matrix B (K, N) in float64.

        Parameters
        ----------
        source : input, (source.pixels, batch), followed by the pixels of the second input if there is one

        Raises
        ------
        BadInput : `source` has another shape
        """
        more = self.output(self.second).pixels if self.second else 0
        shape = (self.source.pixels + more, self.conv.batch)
        if source.shape != shape:
            raise BadInput(f"convolution: wanted an input of shape {shape}, got {source.shape}")
        offsets = self.offsets()
        offsets[self.conv.k :] += self.source.pixels
        rows = source.astype(np.float64)[offsets[:, None] + self.places()]
        return np.asarray(rows.reshape(self.k, self.n))


class PlaneLayout(NamedTuple):
    """Layout of the pixels of images, in pixels of `batch` elements."""

    planes: int
    height: int
    width: int
    border: int

    @property
    def line(self) -> int:
        """Pixels from one line to the next."""
        return self.width + self.border

    @property
    def plane(self) -> int:
        """Pixels from one plane to the next."""
        return (self.height + self.border) * self.line

    @property
    def first(self) -> int:
        """Pixels before the first pixel of the first plane."""
        return self.border * self.line + self.border

    @property
    def pixels(self) -> int:
        """Pixels of all planes, borders included."""
        return self.planes * self.plane + self.first + self.border
