"""`ConvGrid`: input and output of a convolution as the tile kernel has them, with zeros between images.

Both are lists of planes, one for each channel, in one run of pixels of `batch` elements each:

    border lines | lines of plane 0 | border lines | lines of plane 1 | ... | border lines

from pixel `border` on, where a line is `width` pixels and `border` zeros; as many zeros end it. The zeros
behind a line are those in front of the next one, and the lines below a plane those above the next one. With
a stride of 1 every element of a filter then meets whole lines, zeros included, that begin at one offset and
follow each other: a row of B begins at pixel `offsets[k]` and is `n` elements long, and rows overlap. A
kernel that gathers rows of B needs no other address than for a product. A larger stride takes every so many
pixels and lines of such a row. Columns of C in the border are stored as zeros, so that C is an input again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.conv_shape import ConvShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvGrid:
    """A convolution that keeps the size of its input, but for the stride, among zeros in memory.

    Parameters
    ----------
    conv : its filters have an odd size, and half of it for padding
    border : zeros behind a line, in pixels, and between planes, in lines, of input and output; the padding,
        or more for layers that read the output

    Raises
    ------
    BadInput : filters of another size, or a border that they reach across
    """

    conv: ConvShape
    border: int = 1

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

    @property
    def channels(self) -> int:
        """Channels of the input."""
        return self.conv.channels

    @property
    def taps(self) -> int:
        """Elements of a filter in one channel: rows of B that read the same channel."""
        return self.conv.taps

    @property
    def k(self) -> int:
        """Columns of A and rows of B."""
        return self.conv.k

    @property
    def source(self) -> "PlaneLayout":
        """Layout of the input's pixels."""
        return PlaneLayout(self.conv.channels, self.conv.height, self.conv.width, self.border)

    def output(self, filters: int) -> "PlaneLayout":
        """Layout of the output's pixels."""
        return PlaneLayout(filters, self.conv.height_out, self.conv.width_out, self.border)

    @property
    def line(self) -> int:
        """Pixels from one line of the output to the next."""
        return self.conv.width_out + self.border

    @property
    def n(self) -> int:
        """Columns of B and C: pixels of a plane, of all images, with the border behind its lines."""
        return self.conv.height_out * self.line * self.conv.batch

    @property
    def source_ratio(self) -> float:
        """Elements of a channel that are read over columns of C."""
        return self.conv.source_tokens / self.n

    def offsets(self) -> IntArray:
        """(K,) int32: the pixel of the input with which each row of B begins."""
        shift, source = np.arange(self.conv.kernel_h) - self.conv.padding, self.source
        channel, y, x = np.ix_(np.arange(self.channels), shift, shift)
        found = channel * source.plane + source.first + y * source.line + x
        return found.reshape(-1).astype(np.int32)

    def places(self) -> npt.NDArray[np.int64]:
        """(N / batch,): pixels from the first one of a row to each of it; of those in the border any."""
        y, x = np.divmod(np.arange(self.n // self.conv.batch), self.line)
        inside = np.where(x < self.conv.width_out, x, 0)
        return np.asarray(self.conv.stride * (y * self.source.line + inside), np.int64)

    def rows_of_input(self, source: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """B (K, N) float64, written out.

        Parameters
        ----------
        source : (source.pixels, batch)

        Raises
        ------
        BadInput : another shape
        """
        shape = (self.source.pixels, self.conv.batch)
        if source.shape != shape:
            raise BadInput(f"convolution: wanted an input of shape {shape}, got {source.shape}")
        rows = source.astype(np.float64)[self.offsets()[:, None] + self.places()]
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
        """Pixels in front of the first one of an image."""
        return self.border * self.line + self.border

    @property
    def pixels(self) -> int:
        """Pixels of all planes, borders included."""
        return self.planes * self.plane + self.first + self.border
