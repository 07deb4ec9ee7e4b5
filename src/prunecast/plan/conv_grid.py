"""`ConvGrid`: a convolution's input as it lies in memory for the tile kernel, with zeros between its images.

An input is a list of planes: channels, and where the stride is above 1 the pixels of a channel that lie a
stride apart, in planes of their own. A plane has as many lines and pixels as the output, and all planes
together are one run of pixels of `batch` elements each:

    border lines | lines of plane 0 | border lines | lines of plane 1 | ... | border lines

from pixel `border` on, where a line is `width` pixels and `border` zeros; as many zeros end it. The zeros
behind a line are those in front of the next one, and the lines below a plane those above the next one. Every
element of a filter then meets whole lines, zeros included, that begin at one offset and follow each other: a
row of B begins at pixel `offsets[k]` and is `n` elements long, and rows overlap. A kernel that gathers rows
of B needs no other address than for a product. Columns of C in the border are stored as zeros, so that C is
such an input again.
"""

from dataclasses import dataclass

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
    border : zeros behind a line, in pixels, and between planes, in lines; what the filters need, or more for
        the layers that read the output

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
        if self.border < -(-conv.padding // conv.stride):
            raise BadInput(
                f"convolution: filters of {conv.kernel_h}x{conv.kernel_w} with stride {conv.stride} reach "
                f"across a border of {self.border}"
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
    def line(self) -> int:
        """Pixels from one line to the next."""
        return self.conv.width_out + self.border

    @property
    def plane(self) -> int:
        """Pixels from one plane to the next, of input and output."""
        return (self.conv.height_out + self.border) * self.line

    @property
    def first(self) -> int:
        """First pixel of the first plane."""
        return self.border * self.line + self.border

    @property
    def n(self) -> int:
        """Columns of B and C: pixels of a plane, of all images, with the border behind its lines."""
        return self.conv.height_out * self.line * self.conv.batch

    @property
    def phases(self) -> IntArray:
        """(phases,) int32: of the pixels of an axis modulo the stride, those that filters read."""
        taps = np.arange(-self.conv.padding, self.conv.padding + 1)
        return np.unique(taps % self.conv.stride).astype(np.int32)

    @property
    def planes(self) -> int:
        """Planes of the input."""
        return self.channels * int(self.phases.size) ** 2

    @property
    def source_pixels(self) -> int:
        """Pixels of the input, borders included, each of `batch` elements."""
        return self.pixels(self.planes)

    @property
    def source_ratio(self) -> float:
        """Elements of a channel that are read over columns of C."""
        return float(self.planes // self.channels)

    def pixels(self, planes: int) -> int:
        """Pixels of so many planes, borders included."""
        return planes * self.plane + self.first + self.border

    def offsets(self) -> IntArray:
        """(K,) int32: the pixel with which each row of B begins."""
        taps = np.arange(-self.conv.padding, self.conv.padding + 1)
        phase = np.searchsorted(self.phases, taps % self.conv.stride)
        shift = taps // self.conv.stride
        channel, y, x = np.ix_(np.arange(self.channels), np.arange(taps.size), np.arange(taps.size))
        plane = (channel * self.phases.size + phase[y]) * self.phases.size + phase[x]
        found = plane * self.plane + self.first + shift[y] * self.line + shift[x]
        return found.reshape(-1).astype(np.int32)

    def source_of(self, images: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """The input (source_pixels, batch) of images (channels, height, width, batch).

        Raises
        ------
        BadInput : another shape
        """
        conv = self.conv
        shape = (conv.channels, conv.height, conv.width, conv.batch)
        if images.shape != shape:
            raise BadInput(f"convolution: wanted an input of shape {shape}, got {images.shape}")
        planes = np.zeros((conv.channels, self.phases.size, self.phases.size, *self._lines, conv.batch))
        for i, y in enumerate(self.phases):
            for j, x in enumerate(self.phases):
                some = images[:, y :: conv.stride, x :: conv.stride]
                planes[:, i, j, : some.shape[1], : some.shape[2]] = some
        source = np.zeros((self.source_pixels, conv.batch))
        source[self.first : self.first + self.planes * self.plane] = planes.reshape(-1, conv.batch)
        return source

    def rows_of_input(self, source: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """B (K, N) float64, written out.

        Parameters
        ----------
        source : (source_pixels, batch)

        Raises
        ------
        BadInput : another shape
        """
        shape = (self.source_pixels, self.conv.batch)
        if source.shape != shape:
            raise BadInput(f"convolution: wanted an input of shape {shape}, got {source.shape}")
        flat = source.astype(np.float64).reshape(-1)
        return np.stack([flat[at : at + self.n] for at in self.offsets().astype(np.int64) * self.conv.batch])

    def in_border(self) -> npt.NDArray[np.bool_]:
        """(N,): columns of C that are no pixels."""
        pixel = np.arange(self.n) // self.conv.batch % self.line
        return np.asarray(pixel >= self.conv.width_out)

    def images_of(self, c: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Images (M, height, width, batch) of C (M, N), without the border."""
        conv = self.conv
        return c.reshape(-1, conv.height_out, self.line, conv.batch)[:, :, : conv.width_out]

    @property
    def _lines(self) -> tuple[int, int]:
        """Lines and pixels of a line, those of the border behind them included."""
        return self.conv.height_out + self.border, self.line
