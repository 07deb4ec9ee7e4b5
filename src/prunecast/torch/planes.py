"""Images as the convolution kernels read and write them, and `prunecast::conv` on such images.

    conv(planes, images, tiles, bias, shape, activation, gpu, plan) -> planes

Planes (pixels, batch) have the batch innermost and zeros around every image (`prunecast.plan.conv_grid`).
`shape` are the fields of `ConvCall`; the other arguments are those of `prunecast::linear`. A batch is padded
to a multiple of 8. On a CPU the operator unpacks the weights and convolves in fp32.
"""

from typing import NamedTuple

import torch

from prunecast.errors import BadInput
from prunecast.kernels import ConvGrid, ConvShape
from prunecast.kernels.device.conv_input import CHUNK
from prunecast.plan.conv_grid import PlaneLayout
from prunecast.torch.epilogue import Epilogue, activated
from prunecast.torch.images import unpack
from prunecast.torch.layer_table import known_layer

_PLANES = "_prunecast_planes"
"""Attribute of images that are a view of planes: the planes (pixels, batch), contiguous."""
_WORD_BYTES = 8
"""Bytes of the words with which borders are cleared. Kind: choice, a pixel is whole groups of 8 images."""


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
    """Zeros around images in memory, in pixels; equal for input and output."""

    @property
    def grid(self) -> ConvGrid:
        """The memory layout of the input."""
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
        return ConvGrid(conv=shape, border=self.border)


def whole_batch(count: int) -> int:
    """Return the batch size of planes for `count` images: the next multiple of 8."""
    return -(-count // CHUNK) * CHUNK


def planes_of(x: torch.Tensor, batch: int, border: int) -> torch.Tensor:
    """Copy images (N, channels, height, width) into planes (pixels, batch), with N up to the batch."""
    channels, height, width = x.shape[1:]
    layout = PlaneLayout(channels, height, width, border)
    planes = x.new_zeros((layout.pixels, batch))
    body = planes[layout.first : layout.first + layout.planes * layout.plane]
    lines = body.view(layout.planes, layout.height + border, layout.line, batch)
    lines[:, : layout.height, : layout.width] = _batch_last(x, batch)
    return planes


def _batch_last(x: torch.Tensor, batch: int) -> torch.Tensor:
    """Return images (channels, height, width, batch), with zeros after the last image.

    A dedicated kernel transposes them as a matrix of N rows at memory speed, also in compiled graphs. Torch's
    copies of permuted images, including Inductor's, read one element per L2 line at a time.
    """
    columns = torch.ops.prunecast.columns.default
    if x.is_contiguous(memory_format=torch.channels_last):
        rows = x.permute(0, 2, 3, 1)
        return columns(rows.flatten(1), batch).unflatten(0, rows.shape[1:]).permute(2, 0, 1, 3)
    return columns(x.flatten(1), batch).unflatten(0, x.shape[1:])


def images_in(planes: torch.Tensor, layout: PlaneLayout, count: int) -> torch.Tensor:
    """Return images (count, channels, height, width) as a view of planes (pixels, batch)."""
    batch = planes.shape[1]
    strides = (1, layout.plane * batch, layout.line * batch, batch)
    return planes.as_strided((count, *layout[:3]), strides, layout.first * batch)


def in_planes(x: torch.Tensor, border: int = 1) -> torch.Tensor:
    """Return images (batch, channels, height, width) in the layout of `SparseConv2d`.

    This needs one copy, which several modules can share, or none if one of these modules wrote the images.
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
    """Return the planes that images are a view of, or None.

    Element-wise kernels read planes at full bandwidth. Over the images themselves the compiler puts columns
    innermost, which are a whole batch apart in memory, and is five times slower.
    """
    return getattr(x, _PLANES, None)


def _is_view(x: torch.Tensor, planes: torch.Tensor, layout: PlaneLayout, batch: int) -> bool:
    """Return whether images are still the unchanged view of planes that a module returned, in this layout."""
    if planes.shape != (layout.pixels, batch):
        return False
    made = images_in(planes, layout, x.shape[0])
    return bool(x.data_ptr() == made.data_ptr() and x.stride() == made.stride())


def fake_conv(
    planes: torch.Tensor,
    images: list[torch.Tensor],
    tiles: torch.Tensor,
    bias: torch.Tensor | None,
    shape: list[int],
    activation: str,
    gpu: str,
    plan: int,
) -> torch.Tensor:
    """Return an uninitialised output."""
    call, layer = ConvCall(*shape), known_layer(plan, tiles, planes.dtype, gpu)
    return planes.new_empty((call.grid.output(layer.tiles.m).pixels, call.batch))


def conv_on_cpu(
    planes: torch.Tensor,
    images: list[torch.Tensor],
    tiles: torch.Tensor,
    bias: torch.Tensor | None,
    shape: list[int],
    activation: str,
    gpu: str,
    plan: int,
) -> torch.Tensor:
    """Return the output planes, computed by torch in fp32."""
    call, layer = ConvCall(*shape), known_layer(plan, tiles, planes.dtype, gpu)
    filters = unpack(images[0], layer.tiles).float().view(-1, call.channels, call.size, call.size)
    x = images_in(planes, call.grid.source, call.batch).float()
    sums = torch.nn.functional.conv2d(x, filters, bias, stride=call.stride, padding=call.size // 2)
    return planes_of(activated(sums, Epilogue(activation)).to(planes.dtype), call.batch, call.border)


def conv_on_cuda(
    planes: torch.Tensor,
    images: list[torch.Tensor],
    tiles: torch.Tensor,
    bias: torch.Tensor | None,
    shape: list[int],
    activation: str,
    gpu: str,
    plan: int,
) -> torch.Tensor:
    """Return the output planes, written by the kernel, and zeros between them."""
    from prunecast.kernels.device.operator import Call
    from prunecast.torch.cuda.launches import LayerTensors, prepared_launch, stream_of

    call, tensors = ConvCall(*shape), LayerTensors(images, tiles, bias, gpu)
    if planes.shape != (call.grid.source.pixels, call.batch) or not planes.is_contiguous():
        raise BadInput(f"wanted contiguous planes of {call}, got {tuple(planes.shape)}")
    prepared = prepared_launch(plan, call.grid, Epilogue(activation), planes, tensors)
    filters = prepared.operator.plan.m
    output = call.grid.output(filters)
    out = planes.new_empty((output.pixels, call.batch))
    pixel = call.batch * planes.element_size()
    words = out.view(torch.int64)
    step = (output.plane * pixel // _WORD_BYTES, 1)
    words.as_strided((filters + 1, output.first * pixel // _WORD_BYTES), step).zero_()
    bias_at = 0 if bias is None else bias.data_ptr()
    launch = Call(
        images[prepared.image].data_ptr(),
        bias_at,
        b_row_bytes=pixel,
        c_row_bytes=output.plane * pixel,
        tokens=call.grid.n,
    )
    with torch.cuda.device(planes.device):
        first = out.data_ptr() + output.first * pixel
        prepared.operator.at(launch, planes.data_ptr(), first, stream_of(planes.device.index))
    return out
