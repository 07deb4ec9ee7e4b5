"""Launches of `planes.cu`: images into planes, and pooling and upsampling from planes to planes.

The kernels write every element of the planes, zeros in the borders included. They are not part of any plan;
predictions account for them by their bytes.
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
    """The pixels that become one."""

    mode: str = "max"
    """One of `MODES`."""
    size: int = 1
    """Pixels of a side; with `nearest`, pixels of the output for each side of a pixel of the input."""
    stride: int = 1
    padding: int = 0

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the output. BadInput : the window does not fit into the image."""
        if self.mode == "nearest":
            return height * self.size, width * self.size
        found = [(side + 2 * self.padding - self.size) // self.stride + 1 for side in (height, width)]
        if min(found) < 1:
            raise BadInput(f"windows of {self.size} pixels do not fit into images of {height} x {width}")
        return found[0], found[1]


class Images(NamedTuple):
    """Images in any layout, in elements of 2 bytes."""

    pointer: int
    shape: tuple[int, ...]
    """Images, channels, height, width."""
    steps: tuple[int, ...]
    """Elements from one to the next, of each."""


def into_planes_args(x: Images, to: PlaneLayout, batch: int, out: int) -> tuple[np.ndarray[Any, Any], int]:
    """Return the argument of `into_planes` and the number of blocks."""
    args = np.zeros(1, PLANES_ARGS)
    args["x"], args["out"], args["steps"] = x.pointer, out, x.steps
    args["from"], args["to"] = (*x.shape[1:], 0), tuple(to)
    lines = to.height + to.border
    neighbours, places = (to.planes, lines * to.line) if are_channels(x) else (to.line, to.planes * lines)
    across, groups = -(-neighbours // EDGE), -(-batch // IMAGES)
    args["images"], args["batch"], args["blocks_across"], args["groups"] = x.shape[0], batch, across, groups
    return args, across * places * groups


def are_channels(x: Images) -> bool:
    """Return whether the channels of a pixel are contiguous, in pairs that a load can read at once."""
    steps = (x.steps[0], *x.steps[2:])
    return x.steps[1] == 1 and x.pointer % 4 == 0 and all(step % 2 == 0 for step in steps)


def between_planes_args(
    x: int, source: PlaneLayout, to: PlaneLayout, batch: int, out: int
) -> tuple[np.ndarray[Any, Any], int]:
    """Return the argument of `between_planes` and the number of blocks."""
    args = np.zeros(1, PLANES_ARGS)
    args["x"], args["out"], args["from"], args["to"], args["batch"] = x, out, tuple(source), tuple(to), batch
    return args, -(-to.pixels * batch // 8 // THREADS)


def planes_launch(
    entry: str, args: np.ndarray[Any, Any], blocks: int, defines: tuple[tuple[str, int], ...], device: int
) -> PreparedLaunch:
    """Return a launch with these arguments, which the caller must keep alive."""
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
    """Return the preprocessor names of a kernel."""
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
