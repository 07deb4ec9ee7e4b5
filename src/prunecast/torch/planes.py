"""Images in planes, the layout that the convolution kernels read and write, and operators on such images.

    conv(planes, images, tiles, bias, shape, activation, gpu, plan, second) -> planes
    into_planes(x, batch, border, relu, window) -> planes
    between_planes(planes, layout, mode, window) -> planes

Planes are a tensor (pixels, batch). Each row contains one pixel of one channel for all images of the batch,
and rows of zeros surround every image (`prunecast.plan.conv_grid`). The batch is padded to a multiple of 8.
`conv` has the arguments `images` (packed weights), `tiles`, `bias`, `gpu` and `plan` of `prunecast::linear`.
`shape` are the fields of `ConvCall`. `second` are the planes of an optional second input, which the last
columns of A, after those of the filters, multiply. `x` are images (N, channels, height, width). `layout` are
the fields of `PlaneLayout`, and `window` is (size, stride, padding), the last three fields of `Window`. On a
CPU the operators compute in fp32.
"""

from typing import Any, NamedTuple

import torch

from prunecast.kernels import ConvGrid, ConvShape
from prunecast.kernels.device.conv_input import CHUNK
from prunecast.kernels.device.planes.planes import Window
from prunecast.patterns import TileMap
from prunecast.plan.conv_grid import PlaneLayout
from prunecast.torch.epilogue import Epilogue, activated
from prunecast.torch.layer_table import known_layer
from prunecast.torch.weight_layouts import unpack

_PLANES = "_prunecast_planes"
"""Attribute of images that are a view of planes: the planes (pixels, batch), contiguous."""


class ConvCall(NamedTuple):
    """Sizes of a convolution of padded images with square filters."""

    channels: int
    height: int
    width: int
    size: int
    stride: int
    batch: int
    """Images, a multiple of 8."""
    border: int
    """Zeros around images in memory, in pixels."""
    second: int
    """Channels of a second input; 0 for none."""
    border_out: int
    """Zeros around images of the output."""

    @property
    def grid(self) -> ConvGrid:
        """Memory layout of the input."""
        shape = ConvShape(
            channels=self.channels,
            height=self.height,
            width=self.width,
            kernel_h=self.size,
            kernel_w=self.size,
            stride=self.stride,
            padding=self.size // 2,
            batch=self.batch,
        )
        return ConvGrid(conv=shape, border=self.border, second=self.second, border_out=self.border_out)


class Planes(NamedTuple):
    """Images in planes, as the modules of a rewritten network pass them to each other."""

    data: torch.Tensor
    """(pixels, batch)."""
    channels: int
    height: int
    width: int
    border: int
    n_images: int
    """Number of images; the batch has up to 7 more."""

    def after(self, data: torch.Tensor, layout: PlaneLayout) -> "Planes":
        """Return `Planes` with another tensor and other sizes, for the same number of images."""
        return Planes(data, *layout, self.n_images)

    def images(self) -> torch.Tensor:
        """Return a view of the images, (n_images, channels, height, width)."""
        return images_in(self.data, PlaneLayout(*self[1:5]), self.n_images)


def whole_batch(count: int) -> int:
    """Return the batch size of planes for `count` images: the next multiple of 8."""
    return -(-count // CHUNK) * CHUNK


def planes_of(
    x: torch.Tensor, batch: int, border: int, window: Window | None = None, *, relu: bool = False
) -> torch.Tensor:
    """Copy images (N, channels, height, width), with N at most `batch`, into planes.

    With a window, the largest pixel of each window is copied (max pooling). With `relu`, negative pixels
    become zero.
    """
    sizes = list((window or Window())[1:])
    found: torch.Tensor = torch.ops.prunecast.into_planes.default(x, batch, border, relu, sizes)
    return found


def images_in(planes: torch.Tensor, layout: PlaneLayout, count: int) -> torch.Tensor:
    """Return images (count, channels, height, width) as a view of planes (pixels, batch)."""
    batch = planes.shape[1]
    strides = (1, layout.plane * batch, layout.line * batch, batch)
    return planes.as_strided((count, *layout[:3]), strides, layout.first * batch)


def in_planes(x: torch.Tensor, border: int = 1) -> torch.Tensor:
    """Return images (batch, channels, height, width) as a view of planes, which `SparseConv2d` reads.

    This needs one copy, which several modules can share, or none if a `SparseConv2d` wrote the images.
    """
    count, channels, height, width = x.shape
    layout, batch = PlaneLayout(channels, height, width, border), whole_batch(count)
    planes = getattr(x, _PLANES, None)
    if planes is not None and _is_view(x, planes, layout, batch):
        return x
    return seen_in(planes_of(x, batch, border), layout, count)


def seen_in(planes: torch.Tensor, layout: PlaneLayout, count: int) -> torch.Tensor:
    """Return a view of planes as images, which `SparseConv2d` reads without a copy."""
    images = images_in(planes, layout, count)
    if not torch.compiler.is_compiling():
        setattr(images, _PLANES, planes)
    return images


def planes_behind(x: torch.Tensor) -> torch.Tensor | None:
    """Return the planes of which the images are a view, or None.

    Elementwise kernels read planes at full bandwidth. On the images themselves, the compiler puts columns
    innermost, which are a whole batch apart in memory, and its kernels are five times slower.
    """
    return getattr(x, _PLANES, None)


def _is_view(x: torch.Tensor, planes: torch.Tensor, layout: PlaneLayout, batch: int) -> bool:
    """Return whether images are still the unchanged view of the planes that a module returned, with this
    layout.
    """
    if planes.shape != (layout.pixels, batch):
        return False
    made = images_in(planes, layout, x.shape[0])
    return bool(x.data_ptr() == made.data_ptr() and x.stride() == made.stride())


def _layout_of_images(x: torch.Tensor, border: int, window: list[int]) -> PlaneLayout:
    return PlaneLayout(x.shape[1], *Window("max", *window).sides(x.shape[2], x.shape[3]), border)


def fake_into_planes(x: torch.Tensor, batch: int, border: int, relu: bool, window: list[int]) -> torch.Tensor:
    """Return uninitialised planes."""
    return x.new_empty((_layout_of_images(x, border, window).pixels, batch))


def into_planes_on_cpu(
    x: torch.Tensor, batch: int, border: int, relu: bool, window: list[int]
) -> torch.Tensor:
    """Convert images (N, channels, height, width) to planes, with torch's operators."""
    layout = _layout_of_images(x, border, window)
    if window != [1, 1, 0]:
        x = torch.nn.functional.max_pool2d(x.float(), *window).to(x.dtype)
    found = x.new_zeros((layout.pixels, batch))
    images_in(found, layout, x.shape[0]).copy_(torch.relu(x) if relu else x)
    return found


def into_planes_on_cuda(
    x: torch.Tensor, batch: int, border: int, relu: bool, window: list[int]
) -> torch.Tensor:
    """Convert images (N, channels, height, width) to planes, with one kernel launch."""
    from prunecast.torch.cuda.planes import into_planes

    found = fake_into_planes(x, batch, border, relu, window)
    into_planes(x, found, _layout_of_images(x, border, window), Window("max", *window), relu=relu)
    return found


def between_planes(planes: torch.Tensor, layout: PlaneLayout, window: Window) -> torch.Tensor:
    """Call `prunecast::between_planes`: pool or upsample images in planes."""
    arguments = (list(layout), window.mode, list(window[1:]))
    found: torch.Tensor = torch.ops.prunecast.between_planes.default(planes, *arguments)
    return found


def _layout_after(layout: list[int], mode: str, window: list[int]) -> PlaneLayout:
    channels, height, width, border = layout
    return PlaneLayout(channels, *Window(mode, *window).sides(height, width), border)


def fake_between_planes(
    planes: torch.Tensor, layout: list[int], mode: str, window: list[int]
) -> torch.Tensor:
    """Return uninitialised planes."""
    return planes.new_empty((_layout_after(layout, mode, window).pixels, planes.shape[1]))


def between_planes_on_cpu(
    planes: torch.Tensor, layout: list[int], mode: str, window: list[int]
) -> torch.Tensor:
    """Pool or upsample images in planes, with torch's operators."""
    x = images_in(planes, PlaneLayout(*layout), planes.shape[1]).float()
    size, stride, padding = window
    if mode == "nearest":
        y = torch.nn.functional.interpolate(x, scale_factor=size, mode="nearest")
    else:
        pool = torch.nn.functional.max_pool2d if mode == "max" else torch.nn.functional.avg_pool2d
        y = pool(x, size, stride, padding)
    return into_planes_on_cpu(y.to(planes.dtype), planes.shape[1], layout[3], False, [1, 1, 0])


def between_planes_on_cuda(
    planes: torch.Tensor, layout: list[int], mode: str, window: list[int]
) -> torch.Tensor:
    """Pool or upsample images in planes, with one kernel launch."""
    from prunecast.torch.cuda.planes import between_planes as launch

    found = fake_between_planes(planes, layout, mode, window)
    launch(planes, PlaneLayout(*layout), found, _layout_after(layout, mode, window), Window(mode, *window))
    return found


class _ConvOperands(NamedTuple):
    """Arguments of `prunecast::conv`."""

    planes: torch.Tensor
    images: list[torch.Tensor]
    tiles: torch.Tensor
    bias: torch.Tensor | None
    shape: list[int]
    activation: str
    gpu: str
    plan: int
    second: torch.Tensor | None = None

    @property
    def a_tiles(self) -> TileMap:
        """Tile map of A."""
        return known_layer(self.plan, self.tiles, self.planes.dtype, self.gpu).tiles


def fake_conv(*given: Any) -> torch.Tensor:
    """Return uninitialised output planes."""
    own = _ConvOperands(*given)
    call = ConvCall(*own.shape)
    return own.planes.new_empty((call.grid.output(own.a_tiles.m).pixels, call.batch))


def conv_on_cpu(*given: Any) -> torch.Tensor:
    """Return the output planes, computed by torch in fp32."""
    own = _ConvOperands(*given)
    call = ConvCall(*own.shape)
    weights, grid = unpack(own.images[0], own.a_tiles).float(), call.grid
    filters = weights[:, : grid.conv.k].reshape(-1, call.channels, call.size, call.size)
    x = images_in(own.planes, grid.source, call.batch).float()
    sums = torch.nn.functional.conv2d(x, filters, own.bias, stride=call.stride, padding=call.size // 2)
    if own.second is not None:
        added = images_in(own.second, grid.output(call.second), call.batch).float()
        sums += torch.nn.functional.conv2d(added, weights[:, grid.conv.k :, None, None])
    y = activated(sums, Epilogue(own.activation)).to(own.planes.dtype)
    return planes_of(y, call.batch, call.border_out)


def conv_on_cuda(*given: Any) -> torch.Tensor:
    """Return the output planes, written by the kernel."""
    from prunecast.torch.cuda.launches import LayerTensors
    from prunecast.torch.cuda.planes import ConvLaunch

    own = _ConvOperands(*given)
    tensors = LayerTensors(own.images, own.tiles, own.bias, own.gpu)
    launch = ConvLaunch.of(ConvCall(*own.shape).grid, own.plan, tensors, own.activation, own.planes)
    return launch(own.planes, own.second)
