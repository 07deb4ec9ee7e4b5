"""Images in planes, the layout that the convolution kernels read and write, and operators on such images.

    conv(planes, images, tiles, bias, shape, activation, gpu, plan, second) -> planes
    into_planes(x, batch, border, relu, window) -> planes
    between_planes(planes, layout, mode, window) -> planes

Planes are a tensor (pixels, batch). Each row contains one pixel of one channel for all images of the batch,
and rows of zeros surround every image (`prunecast.plan.conv_grid`). The batch is padded to a multiple of 8.
`conv` has the arguments `images` (packed weights), `tiles`, `bias`, `gpu` and `plan` of `prunecast::linear`.
`shape` are the fields of `ConvCall`. `second` are the planes of an optional second input. A then has one more
column for each channel of this input, after the columns of the filters. `x` are images (N, channels, height,
width). `layout` are the fields of `PlaneLayout`, and `window` is (size, stride, padding), the last three
fields of `Window`. On a CPU the operators compute in fp32.
"""

from typing import Any, NamedTuple

import torch

from prunecast.kernels import ConvGrid, ConvShape
from prunecast.kernels.device.conv_input import CHUNK
from prunecast.kernels.device.planes.planes import (
    Images,
    Window,
    between_planes_launch,
    into_planes_launch,
)
from prunecast.patterns import TileMap
from prunecast.plan.conv_grid import PlaneLayout
from prunecast.torch.cuda.conv import ConvLaunch
from prunecast.torch.cuda.stream import enqueue
from prunecast.torch.epilogue import Epilogue, PackedLayer, activated
from prunecast.torch.layer_table import known_layer
from prunecast.torch.operators import register
from prunecast.torch.weight_layouts import unpack

_PLANES = "_prunecast_planes"
"""Attribute of image tensors that are a view of planes: the planes, a contiguous tensor (pixels, batch)."""


class ConvCall(NamedTuple):
    """Sizes of a convolution with square filters; heights, widths and borders are in pixels."""

    channels: int
    height: int
    width: int
    size: int
    stride: int
    batch: int
    """Number of images, padded to a multiple of 8."""
    border: int
    """Width in pixels of the zeros around each image in memory."""
    second: int
    """Channels of the second input, a residual that the kernel adds; 0 if there is none."""
    border_out: int
    """Width in pixels of the zeros around each image of the output in memory."""

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
    """Batch of images in planes, as the modules of a rewritten network pass it to each other.

    Each row of `data` contains one pixel of one channel for all images.
    """

    data: torch.Tensor
    """Tensor (pixels, batch): the pixels of all channels and their borders."""
    channels: int
    height: int
    width: int
    border: int
    n_images: int
    """Number of images; `data` has up to 7 more columns, which are padding."""

    @property
    def layout(self) -> PlaneLayout:
        """Memory layout of the images."""
        return PlaneLayout(*self[1:5])

    @property
    def shape(self) -> torch.Size:
        """(n_images, channels, height, width)."""
        return torch.Size((self.n_images, *self[1:4]))

    def size(self, dim: int | None = None) -> Any:
        """Return `shape`, or one of its entries, as tensors do."""
        return self.shape if dim is None else self.shape[dim]

    def after(self, data: torch.Tensor, layout: PlaneLayout) -> "Planes":
        """Return `Planes` of the tensor `data` with sizes `layout`, and with this object's `n_images`."""
        return Planes(data, *layout, self.n_images)

    def images(self) -> torch.Tensor:
        """Return a view of the images, (n_images, channels, height, width)."""
        return images_in(self.data, self.layout, self.n_images)


def whole_batch(count: int) -> int:
    """Return the batch size of planes for `count` images: the next multiple of 8."""
    return -(-count // CHUNK) * CHUNK


def planes_of(
    x: torch.Tensor, batch: int, border: int, window: Window | None = None, *, relu: bool = False
) -> torch.Tensor:
    """Copy images (N, channels, height, width), with N at most `batch`, into planes (pixels, batch).

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

    Images that already are such a view, as the output of a `SparseConv2d` with this border, are returned
    unchanged. Other images are copied; several modules can read the copy.
    """
    count, channels, height, width = x.shape
    layout, batch = PlaneLayout(channels, height, width, border), whole_batch(count)
    planes = getattr(x, _PLANES, None)
    if planes is not None and _is_view(x, planes, layout, batch):
        return x
    return seen_in(planes_of(x, batch, border), layout, count)


def seen_in(planes: torch.Tensor, layout: PlaneLayout, count: int) -> torch.Tensor:
    """Return images (count, channels, height, width) as a view of planes, and attach the planes to it.

    The attribute lets `SparseConv2d` read the planes without a copy. It is not set under torch.compile.
    """
    images = images_in(planes, layout, count)
    if not torch.compiler.is_compiling():
        setattr(images, _PLANES, planes)
    return images


def planes_behind(x: torch.Tensor) -> torch.Tensor | None:
    """Return the planes of which the images x are a view; None for other images.

    Elementwise kernels read the planes at full bandwidth. For the view of images, torch.compile makes the
    columns of an image the innermost loop. Their pixels are a whole batch apart in memory, so that the
    kernels are five times slower.
    """
    return getattr(x, _PLANES, None)


def _is_view(x: torch.Tensor, planes: torch.Tensor, layout: PlaneLayout, batch: int) -> bool:
    """Return whether the images x are the view of all images in `planes` with this layout and batch size."""
    if planes.shape != (layout.pixels, batch):
        return False
    made = images_in(planes, layout, x.shape[0])
    return bool(x.data_ptr() == made.data_ptr() and x.stride() == made.stride())


class _IntoPlanes(NamedTuple):
    """Arguments of `prunecast::into_planes`."""

    x: torch.Tensor
    batch: int
    border: int
    relu: bool
    window: list[int]

    @property
    def layout(self) -> PlaneLayout:
        """Layout of the planes."""
        channels, *sides = self.x.shape[1:]
        return PlaneLayout(channels, *Window("max", *self.window).sides(*sides), self.border)

    def new_y(self) -> torch.Tensor:
        """Allocate planes without initialising them."""
        return self.x.new_empty((self.layout.pixels, self.batch))

    def on_cpu(self) -> torch.Tensor:
        """Convert the images to planes, with torch's operators."""
        x = self.x
        if self.window != [1, 1, 0]:
            x = torch.nn.functional.max_pool2d(x.float(), *self.window).to(x.dtype)
        found = torch.zeros_like(self.new_y())
        images_in(found, self.layout, x.shape[0]).copy_(torch.relu(x) if self.relu else x)
        return found

    def on_cuda(self) -> torch.Tensor:
        """Convert the images to planes, with one kernel launch."""
        x, found, window = self.x, self.new_y(), Window("max", *self.window)
        images = Images(x.data_ptr(), tuple(x.shape), x.stride())
        ends = {"relu": self.relu, "bf16": x.dtype == torch.bfloat16}
        to = (self.layout, self.batch, found.data_ptr())
        enqueue(into_planes_launch(images, *to, window, **ends), x.get_device())
        return found


def between_planes(planes: torch.Tensor, layout: PlaneLayout, window: Window) -> torch.Tensor:
    """Call `prunecast::between_planes`: pool or upsample images in planes."""
    arguments = (list(layout), window.mode, list(window[1:]))
    found: torch.Tensor = torch.ops.prunecast.between_planes.default(planes, *arguments)
    return found


class _BetweenPlanes(NamedTuple):
    """Arguments of `prunecast::between_planes`."""

    planes: torch.Tensor
    layout: list[int]
    mode: str
    window: list[int]

    @property
    def layout_after(self) -> PlaneLayout:
        """Layout of the result."""
        channels, height, width, border = self.layout
        return PlaneLayout(channels, *Window(self.mode, *self.window).sides(height, width), border)

    def new_y(self) -> torch.Tensor:
        """Allocate planes without initialising them."""
        return self.planes.new_empty((self.layout_after.pixels, self.planes.shape[1]))

    def on_cpu(self) -> torch.Tensor:
        """Pool or upsample the images, with torch's operators."""
        batch = self.planes.shape[1]
        x = images_in(self.planes, PlaneLayout(*self.layout), batch).float()
        size, stride, padding = self.window
        if self.mode == "nearest":
            y = torch.nn.functional.interpolate(x, scale_factor=size, mode="nearest")
        else:
            pool = torch.nn.functional.max_pool2d if self.mode == "max" else torch.nn.functional.avg_pool2d
            y = pool(x, size, stride, padding)
        return _IntoPlanes(y.to(self.planes.dtype), batch, self.layout[3], False, [1, 1, 0]).on_cpu()

    def on_cuda(self) -> torch.Tensor:
        """Pool or upsample the images, with one kernel launch."""
        x, found, window = self.planes, self.new_y(), Window(self.mode, *self.window)
        layouts = (PlaneLayout(*self.layout), self.layout_after, x.shape[1])
        launch = between_planes_launch(
            x.data_ptr(), *layouts, found.data_ptr(), window, bf16=x.dtype == torch.bfloat16
        )
        enqueue(launch, x.get_device())
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

    def new_y(self) -> torch.Tensor:
        """Allocate output planes without initialising them."""
        call = ConvCall(*self.shape)
        return self.planes.new_empty((call.grid.output(self.a_tiles.m).pixels, call.batch))

    def on_cpu(self) -> torch.Tensor:
        """Return the output planes, computed by torch in fp32."""
        call = ConvCall(*self.shape)
        weights, grid = unpack(self.images[0], self.a_tiles).float(), call.grid
        filters = weights[:, : grid.conv.k].reshape(-1, call.channels, call.size, call.size)
        x = images_in(self.planes, grid.source, call.batch).float()
        sums = torch.nn.functional.conv2d(x, filters, self.bias, stride=call.stride, padding=call.size // 2)
        if self.second is not None:
            added = images_in(self.second, grid.output(call.second), call.batch).float()
            sums += torch.nn.functional.conv2d(added, weights[:, grid.conv.k :, None, None])
        y = activated(sums, Epilogue(self.activation)).to(self.planes.dtype)
        return planes_of(y, call.batch, call.border_out)

    def on_cuda(self) -> torch.Tensor:
        """Return the output planes, written by the kernel."""
        own = (self.images, self.tiles, self.bias, self.gpu, self.plan, Epilogue(self.activation))
        launch = ConvLaunch.of(ConvCall(*self.shape).grid, PackedLayer(*own), self.planes)
        return launch(self.planes, self.second)


*_, convolve = (
    register(f"{schema} -> Tensor", kind.on_cpu, kind.on_cuda, record=kind)
    for schema, kind in (
        ("into_planes(Tensor x, int batch, int border, bool relu, int[] window)", _IntoPlanes),
        ("between_planes(Tensor planes, int[] layout, str mode, int[] window)", _BetweenPlanes),
        (
            "conv(Tensor planes, Tensor[] images, Tensor tiles, Tensor? bias, int[] shape, str activation, "
            "str gpu, int plan, Tensor? second)",
            _ConvOperands,
        ),
    )
)
