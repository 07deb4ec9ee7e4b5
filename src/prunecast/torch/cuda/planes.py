"""Launch kernels on images in planes: convolutions, and copies, pooling and upsampling of images."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from prunecast.errors import BadInput
from prunecast.kernels.device.launch import PreparedLaunch
from prunecast.kernels.device.operator import Call, Operator
from prunecast.kernels.device.planes.planes import (
    Images,
    Window,
    are_channels,
    between_planes_args,
    into_planes_args,
    planes_defines,
    planes_launch,
)
from prunecast.plan.conv_grid import ConvGrid, PlaneLayout
from prunecast.torch.cuda.launches import LayerTensors, prepared_launch, stream_of
from prunecast.torch.epilogue import Epilogue


class ConvLaunch(NamedTuple):
    """Launch of a convolution that lacks only the addresses of planes and the stream."""

    operator: Operator
    call: Call
    read: int
    """Pixels of the input."""
    added: int
    """Pixels of the second input; 0 for none."""
    written: int
    """Pixels of the output."""
    first: int
    """Bytes before the first pixel of the first plane of the output."""

    @classmethod
    def of(
        cls, grid: ConvGrid, plan: int, layer: LayerTensors, activation: str, planes: torch.Tensor
    ) -> "ConvLaunch":
        """Return the launch of a layer for planes of the sizes in `grid`.

        Raise BadInput in the same cases as `prepared_launch`.
        """
        prepared = prepared_launch(plan, grid, Epilogue(activation), planes, layer)
        output = grid.output(prepared.operator.plan.m)
        pixel = grid.conv.batch * planes.element_size()
        call = Call(
            layer.images[prepared.image].data_ptr(),
            0 if layer.bias is None else layer.bias.data_ptr(),
            b_row_bytes=pixel,
            c_row_bytes=output.plane * pixel,
            tokens=grid.n,
        )
        added = grid.output(grid.second).pixels if grid.second else 0
        return cls(prepared.operator, call, grid.source.pixels, added, output.pixels, output.first * pixel)

    def __call__(self, planes: torch.Tensor, second: torch.Tensor | None = None) -> torch.Tensor:
        """Enqueue the launch and return the output planes.

        Raise BadInput if the planes have other sizes than those of the launch, or are not contiguous.
        """
        pixels, batch = planes.shape
        added = 0 if second is None else second.shape[0]
        if (pixels, added) != (self.read, self.added) or not planes.is_contiguous():
            wanted = f"{self.read} and {self.added} pixels"
            raise BadInput(f"wanted contiguous planes of {wanted}, got {pixels} and {added}")
        device = planes.get_device()
        if torch._C._cuda_getDevice() != device:
            with torch.cuda.device(device):
                return self(planes, second)
        out = planes.new_empty((self.written, batch))
        more = 0 if second is None else second.data_ptr()
        self.operator.at(self.call, planes.data_ptr(), out.data_ptr() + self.first, stream_of(device), more)
        return out


def into_planes(
    x: torch.Tensor, out: torch.Tensor, layout: PlaneLayout, window: Window, *, relu: bool
) -> None:
    """Copy images (N, channels, height, width) with any strides into planes, with max pooling over each
    window.

    With `relu`, negative pixels become zero.
    """
    given = Images(x.data_ptr(), tuple(x.shape), x.stride())
    args, blocks = into_planes_args(given, layout, out.shape[1], out.data_ptr())
    defines = _defines(window, x.dtype, channels=are_channels(given), relu=relu)
    _launch("into_planes", args, blocks, defines, x.get_device())


def between_planes(
    x: torch.Tensor, source: PlaneLayout, out: torch.Tensor, layout: PlaneLayout, window: Window
) -> None:
    """Pool or upsample the images in the planes `x`, and write the result to the planes `out`."""
    args, blocks = between_planes_args(x.data_ptr(), source, layout, x.shape[1], out.data_ptr())
    _launch("between_planes", args, blocks, _defines(window, x.dtype), x.get_device())


@lru_cache(maxsize=256)
def _defines(window: Window, dtype: torch.dtype, **options: bool) -> tuple[tuple[str, int], ...]:
    return planes_defines(window, bf16=dtype == torch.bfloat16, **options)


def _launch(
    entry: str, args: np.ndarray[Any, Any], blocks: int, defines: tuple[tuple[str, int], ...], device: int
) -> None:
    with torch.cuda.device(device):
        launch: PreparedLaunch = planes_launch(entry, args, blocks, defines, device)
        launch(stream_of(device))
