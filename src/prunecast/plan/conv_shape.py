"""`ConvShape`: the convolution that a product computes, and the matrix B that nobody needs to write down.

A layer of filters (out, in, kernel_h, kernel_w) is A (M, K) with M = out and K = in * kernel_h * kernel_w,
its columns in the order of the filters: input channel, row, column. B (K, N) has a row for each, in which
every output pixel of every image finds the one input pixel that it meets there. Written out (im2col) B is
kernel_h * kernel_w times the input. A kernel that gathers rows of B may as well compute where they begin and
read the input itself: the implicit product.

Images lie innermost: the input is (in, height, width, batch), the output (out, height_out, width_out, batch),
so that N = height_out * width_out * batch and the shift of a filter's column is whole images. Layers chain.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput

MOST_PIXELS = 2**24
"""Output pixels of all images, at most: columns of B and C."""
COPY_BYTES = 16
"""The longest asynchronous copy of one lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvShape:
    """A convolution of `batch` images, zeros around them.

    Parameters
    ----------
    channels : of the input
    height, width : of the input
    kernel_h, kernel_w : of a filter
    stride, padding : the same along both axes
    batch : images

    Raises
    ------
    BadInput : a size below 1, filters larger than the padded input, or more than `MOST_PIXELS` outputs

    """

    channels: int
    height: int
    width: int
    kernel_h: int
    kernel_w: int
    stride: int = 1
    padding: int = 0
    batch: int = 1

    def __post_init__(self) -> None:
        sizes = (
            self.channels,
            self.height,
            self.width,
            self.kernel_h,
            self.kernel_w,
            self.stride,
            self.batch,
        )
        if min(sizes) < 1 or self.padding < 0:
            raise BadInput(
                f"convolution: wanted sizes from 1 and a padding from 0, got an input of {self.height}x"
                f"{self.width}, filters of {self.kernel_h}x{self.kernel_w}, {self.channels} channels, "
                f"stride {self.stride}, padding {self.padding}, batch {self.batch}"
            )
        if self.n > MOST_PIXELS:
            raise BadInput(f"convolution: wanted at most {MOST_PIXELS} pixels of output, got {self.n}")
        if self.height_out < 1 or self.width_out < 1:
            raise BadInput(
                f"convolution: filters of {self.kernel_h}x{self.kernel_w} do not fit an input of "
                f"{self.height}x{self.width} with padding {self.padding}"
            )

    @classmethod
    def square(
        cls, channels: int, side: int, kernel: int, *, stride: int = 1, padding: int | None = None, batch: int
    ) -> "ConvShape":
        """Return the convolution of square images with square filters; None pads half a filter."""
        return cls(
            channels=channels,
            height=side,
            width=side,
            kernel_h=kernel,
            kernel_w=kernel,
            stride=stride,
            padding=kernel // 2 if padding is None else padding,
            batch=batch,
        )

    @property
    def height_out(self) -> int:
        """Rows of the output."""
        return (self.height + 2 * self.padding - self.kernel_h) // self.stride + 1

    @property
    def width_out(self) -> int:
        """Columns of the output."""
        return (self.width + 2 * self.padding - self.kernel_w) // self.stride + 1

    @property
    def n(self) -> int:
        """Columns of B and C: output pixels of all images."""
        return self.height_out * self.width_out * self.batch

    @property
    def taps(self) -> int:
        """Elements of a filter in one channel: rows of B that read the same channel."""
        return self.kernel_h * self.kernel_w

    @property
    def k(self) -> int:
        """Columns of A and rows of B."""
        return self.channels * self.taps

    @property
    def is_matrix(self) -> bool:
        """Whether B is the input as it lies: filters of one pixel, one for each input pixel."""
        return self.taps == 1 and self.stride == 1 and self.padding == 0

    @property
    def source_tokens(self) -> int:
        """Input pixels of one channel, of all images, that any output pixel reads."""
        rows = _read(self.height, self.height_out, self.kernel_h, self.stride, self.padding)
        columns = _read(self.width, self.width_out, self.kernel_w, self.stride, self.padding)
        return rows * columns * self.batch

    @property
    def source_ratio(self) -> float:
        """Input pixels that are read over output pixels: 1 for a stride of 1, about 4 for a stride of 2."""
        return self.source_tokens / self.n

    def copy_bytes(self, element_bytes: int) -> int:
        """Bytes that one copy can move: a power of two up to 16 that divides the images of one pixel."""
        run = self.batch * element_bytes
        return min(COPY_BYTES, run & -run)

    def rows_of_input(self, source: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """B (K, N) float64, written out.

        Parameters
        ----------
        source : (channels, height, width, batch)

        Raises
        ------
        BadInput : another shape

        """
        shape = (self.channels, self.height, self.width, self.batch)
        if source.shape != shape:
            raise BadInput(f"convolution: wanted an input of shape {shape}, got {source.shape}")
        border = [(0, 0), (self.padding, self.padding), (self.padding, self.padding), (0, 0)]
        padded = np.pad(source.astype(np.float64), border)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (self.kernel_h, self.kernel_w), (1, 2))
        some = windows[:, :: self.stride, :: self.stride]
        return some.transpose(0, 4, 5, 1, 2, 3).reshape(self.k, self.n)


def _read(size: int, size_out: int, kernel: int, stride: int, padding: int) -> int:
    """Places of one axis that are read."""
    places = np.arange(size_out)[:, None] * stride + np.arange(kernel) - padding
    return int(np.unique(places[(places >= 0) & (places < size)]).size)
