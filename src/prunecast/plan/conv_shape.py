"""`ConvShape`: sizes of a convolution and of the matrix product that computes it.

Filters (out, in, kernel_h, kernel_w) form A (M, K) with M = out and K = in * kernel_h * kernel_w. Columns of
A are in filter order: input channel, row, column. Row k of B (K, N) contains, for every output pixel of every
image, the input pixel that filter element k multiplies. Explicit B (im2col) is kernel_h * kernel_w times as
large as the input. A kernel that gathers rows of B can instead compute addresses and read the input itself
(implicit GEMM).

The batch is the innermost dimension: the input is (in, height, width, batch) and the output is (out,
height_out, width_out, batch), so that N = height_out * width_out * batch, and the offset of a filter column
is a whole number of pixels. The output of a layer has the layout that the next layer reads.
"""

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput

MOST_PIXELS = 2**24
"""Maximum number of output pixels of all images, which is the number of columns of B and C."""
COPY_BYTES = 16
"""Bytes of the longest asynchronous copy of one lane (`cp.async`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvShape:
    """A convolution of `batch` images with zero padding.

    Parameters
    ----------
    channels : number of input channels
    height, width : size of the input in pixels
    kernel_h, kernel_w : size of a filter
    stride, padding : the same along both axes
    batch : number of images

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

    @property
    def keeps_size(self) -> bool:
        """True if filters are square and odd, and the padding is half of their size."""
        return self.kernel_h == self.kernel_w == 2 * self.padding + 1

    def __post_init__(self) -> None:
        sizes = [size for name, size in asdict(self).items() if name != "padding"]
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
        """Return the convolution of square images with square filters; `padding` None means half a filter."""
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
        """Number of columns of B and C: output pixels of all images."""
        return self.height_out * self.width_out * self.batch

    @property
    def taps(self) -> int:
        """Number of filter elements per channel, equal to the rows of B that read the same channel."""
        return self.kernel_h * self.kernel_w

    @property
    def k(self) -> int:
        """Number of columns of A and rows of B."""
        return self.channels * self.taps

    def channel_of(self, columns: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the channel that each column of A reads."""
        return columns // self.taps

    @property
    def is_matrix(self) -> bool:
        """True if B equals the input in memory: 1x1 filters, stride 1, no padding."""
        return self.taps == 1 and self.stride == 1 and self.padding == 0

    @property
    def source_tokens(self) -> int:
        """Number of input pixels of one channel, over all images, that at least one output pixel reads."""
        rows = _read(self.height, self.height_out, self.kernel_h, self.stride, self.padding)
        columns = _read(self.width, self.width_out, self.kernel_w, self.stride, self.padding)
        return rows * columns * self.batch

    @property
    def source_ratio(self) -> float:
        """Input pixels read per output pixel: 1 for a stride of 1, about 4 for 3x3 filters of stride 2."""
        return self.source_tokens / self.n

    def copy_bytes(self, element_bytes: int) -> int:
        """Return the bytes per copy: the largest power of two up to 16 that divides the bytes of a pixel."""
        run = self.batch * element_bytes
        return min(COPY_BYTES, run & -run)

    def rows_of_input(self, source: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Return the explicit matrix B (K, N) in float64.

        Parameters
        ----------
        source : input, (channels, height, width, batch)

        Raises
        ------
        BadInput : `source` has another shape
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
    """Return the number of distinct positions along one axis that the filters read."""
    places = np.arange(size_out)[:, None] * stride + np.arange(kernel) - padding
    return int(np.unique(places[(places >= 0) & (places < size)]).size)
