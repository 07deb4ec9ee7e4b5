"""Launches of `planes.cu`: convert images to planes, and pool or upsample planes.

Planes are the layout of `plan.conv_grid`: (pixels, batch), one plane of pixels for each channel, with zero
borders. The kernels write every element of the planes, including the zeros in the borders. They are not part
of any plan; predictions account for them by the bytes that they move.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.pass_launch import PassLaunch, record
from prunecast.plan.conv_grid import PlaneLayout

THREADS, EDGE, IMAGES = 256, 64, 32
"""Threads of a block; with `into_planes`, also the neighbouring pixels (or channels, if these are contiguous)
and the images that a block processes. Kind: CUDA source, `planes.cu`."""
SHARED_BYTES = 2 * EDGE * (IMAGES + 2)
"""Shared memory of a block. Kind: CUDA source, `planes.cu`."""
MODES = {"max": 0, "average": 1, "nearest": 2}
"""Reduction of the pixels of a window to one pixel -> number of the mode in the kernel. Kind: CUDA source,
`planes.cu`."""

PLANES_ARGS = np.dtype(
    [("x", "u8"), ("out", "u8"), ("steps", "i8", (4,)), ("from", "i4", (4,)), ("to", "i4", (4,))]
    + [(name, "i4") for name in ("images", "batch", "blocks_across", "groups")]
)
"""Layout of `PlanesArgs`. Kind: CUDA source, `planes.cu`."""


class Window(NamedTuple):
    """Window of a pooling or upsampling operation; the default copies each pixel."""

    mode: str = "max"
    """One of `MODES`."""
    size: int = 1
    """Side of the window in pixels; with `nearest`, output pixels per input pixel along each axis."""
    stride: int = 1
    padding: int = 0

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the output for an image of `height` x `width` pixels.

        Raises BadInput if the window does not fit into the image.
        """
        if self.mode == "nearest":
            return height * self.size, width * self.size
        found = [(side + 2 * self.padding - self.size) // self.stride + 1 for side in (height, width)]
        if min(found) < 1:
            raise BadInput(f"windows of {self.size} pixels do not fit into images of {height} x {width}")
        return found[0], found[1]


class Images(NamedTuple):
    """Address, shape and strides of images (2-byte elements) in any layout, such as NCHW or NHWC."""

    pointer: int
    shape: tuple[int, ...]
    """Images, channels, height, width."""
    steps: tuple[int, ...]
    """Strides in elements: from one image, channel, row and column to the next."""


def into_planes_launch(
    x: Images,
    to: PlaneLayout,
    batch: int,
    out: int,
    window: Window,
    *,
    relu: bool = False,
    bf16: bool = False,
) -> PassLaunch:
    """Return the launch that converts images to planes, with max pooling over each window.

    Parameters
    ----------
    x : the images to convert
    to : layout of the planes
    batch : number of images, the elements of one pixel of the planes
    out : device address of the planes
    relu : apply ReLU to the result
    bf16 : True for bf16 elements, else fp16
    """
    lines, channels = to.height + to.border, are_channels(x)
    neighbours, places = (to.planes, lines * to.line) if channels else (to.line, to.planes * lines)
    across, groups = -(-neighbours // EDGE), -(-batch // IMAGES)
    values = {"from": (*x.shape[1:], 0), "to": tuple(to), "images": x.shape[0], "batch": batch}
    values |= {"x": x.pointer, "out": out, "steps": x.steps, "blocks_across": across, "groups": groups}
    defines = {"CHANNELS": int(channels), "RELU": int(relu), "BF16": int(bf16)}
    return _launch("into_planes", values, across * places * groups, window, defines)


def are_channels(x: Images) -> bool:
    """Return True if the channels of a pixel are contiguous and 4-byte aligned.

    One load then reads two channels.
    """
    steps = (x.steps[0], *x.steps[2:])
    return x.steps[1] == 1 and x.pointer % 4 == 0 and all(step % 2 == 0 for step in steps)


def between_planes_launch(
    x: int, source: PlaneLayout, to: PlaneLayout, batch: int, out: int, window: Window, *, bf16: bool = False
) -> PassLaunch:
    """Return the launch that pools or upsamples planes.

    Parameters
    ----------
    x, out : device addresses of the input and output planes
    source, to : layouts of the input and output planes
    batch : images of a pixel, a multiple of 8
    bf16 : True for bf16 elements, else fp16
    """
    values = {"x": x, "out": out, "from": tuple(source), "to": tuple(to), "batch": batch}
    defines = {"CHANNELS": 0, "RELU": 0, "BF16": int(bf16)}
    return _launch("between_planes", values, -(-to.pixels * batch // 8 // THREADS), window, defines)


def _launch(
    entry: str, values: Mapping[str, object], blocks: int, window: Window, defines: Mapping[str, int]
) -> PassLaunch:
    sides = {"MODE": MODES[window.mode], "SIZE": window.size, "STRIDE": window.stride}
    sides |= {"PADDING": window.padding, **defines}
    args = record(PLANES_ARGS, **values)
    return PassLaunch("planes/planes.cu", entry, args, blocks, THREADS, SHARED_BYTES, tuple(sides.items()))
