"""Launches of `planes.cu`: convert images to planes, and pool or upsample planes.

Planes are the layout of `plan.conv_grid`: (pixels, batch), one plane of pixels for each channel, with zero
borders. The kernels write every element of the planes, including the zeros in the borders. They are not part
of any plan; predictions account for them by the bytes that they move.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.build import SOURCES, CompiledKernel, compile_cubin
from prunecast.kernels.device.launch import PreparedLaunch, arch_of, capability_of, load_function
from prunecast.plan.conv_grid import PlaneLayout

THREADS, EDGE, IMAGES = 256, 64, 32
"""Threads of a block, neighbours and images of a block of `into_planes`. Kind: CUDA source, `planes.cu`."""
SHARED_BYTES = 2 * EDGE * (IMAGES + 2)
"""Shared memory of a block. Kind: CUDA source, `planes.cu`."""
MODES = {"max": 0, "average": 1, "nearest": 2}
"""How the pixels of a window become one. Kind: CUDA source, `planes.cu`."""

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
    """Pixels of a side; with `nearest`, pixels of the output for each side of a pixel of the input."""
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


def into_planes_args(x: Images, to: PlaneLayout, batch: int, out: int) -> tuple[np.ndarray[Any, Any], int]:
    """Return the argument record of the kernel `into_planes` and the number of thread blocks.

    Parameters
    ----------
    x : the images to convert
    to : layout of the planes
    batch : images of a pixel of the planes
    out : device address of the planes
    """
    args = np.zeros(1, PLANES_ARGS)
    args["x"], args["out"], args["steps"] = x.pointer, out, x.steps
    args["from"], args["to"] = (*x.shape[1:], 0), tuple(to)
    lines = to.height + to.border
    neighbours, places = (to.planes, lines * to.line) if are_channels(x) else (to.line, to.planes * lines)
    across, groups = -(-neighbours // EDGE), -(-batch // IMAGES)
    args["images"], args["batch"], args["blocks_across"], args["groups"] = x.shape[0], batch, across, groups
    return args, across * places * groups


def are_channels(x: Images) -> bool:
    """Return True if the channels of a pixel are contiguous and 4-byte aligned.

    One load then reads two channels.
    """
    steps = (x.steps[0], *x.steps[2:])
    return x.steps[1] == 1 and x.pointer % 4 == 0 and all(step % 2 == 0 for step in steps)


def between_planes_args(
    x: int, source: PlaneLayout, to: PlaneLayout, batch: int, out: int
) -> tuple[np.ndarray[Any, Any], int]:
    """Return the argument record of the kernel `between_planes` and the number of thread blocks.

    Parameters
    ----------
    x, out : device addresses of the input and output planes
    source, to : layouts of the input and output planes
    batch : images of a pixel, a multiple of 8
    """
    args = np.zeros(1, PLANES_ARGS)
    args["x"], args["out"], args["from"], args["to"], args["batch"] = x, out, tuple(source), tuple(to), batch
    return args, -(-to.pixels * batch // 8 // THREADS)


def planes_launch(
    entry: str, args: np.ndarray[Any, Any], blocks: int, defines: tuple[tuple[str, int], ...], device: int
) -> PreparedLaunch:
    """Return the launch of the kernel `entry`; the caller must keep the argument record `args` alive."""
    cubin = build_planes(arch_of(device), defines).cubin
    return PreparedLaunch(
        load_function(cubin, entry, SHARED_BYTES, device),
        [args.ctypes.data],
        blocks=blocks,
        threads=THREADS,
        shared_bytes=SHARED_BYTES,
        overlap=capability_of(device) >= 90,
    )


def planes_defines(
    window: Window, *, channels: bool = False, relu: bool = False, bf16: bool = False
) -> tuple[tuple[str, int], ...]:
    """Return the preprocessor macros of a kernel.

    Parameters
    ----------
    window : the pooling or upsampling window
    channels : True if one load of `into_planes` can read two channels of a pixel, see `are_channels`; other
        kernels ignore it
    relu : apply ReLU to the result
    bf16 : True for bf16 elements, else fp16
    """
    return (
        ("MODE", MODES[window.mode]),
        ("SIZE", window.size),
        ("STRIDE", window.stride),
        ("PADDING", window.padding),
        ("CHANNELS", int(channels)),
        ("RELU", int(relu)),
        ("BF16", int(bf16)),
    )


@cache
def build_planes(arch: str, defines: tuple[tuple[str, int], ...]) -> CompiledKernel:
    """Compile the kernels for an architecture such as `sm_90`."""
    return compile_cubin(SOURCES / "planes" / "planes.cu", arch, dict(defines))
