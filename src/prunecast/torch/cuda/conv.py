"""Launch convolutions of images in planes."""

from typing import NamedTuple

import torch

from prunecast.errors import BadInput
from prunecast.kernels.device.operator import Call, KernelOperator
from prunecast.plan.conv_grid import ConvGrid, PlaneLayout
from prunecast.torch.cuda.launches import prepared_launch
from prunecast.torch.cuda.stream import stream_of
from prunecast.torch.epilogue import PackedLayer


class ConvLaunch(NamedTuple):
    """Prepared launch of a convolution; each call adds the addresses of planes and the stream."""

    operator: KernelOperator
    call: Call
    read: int
    """Rows of the input planes (pixels, batch)."""
    added: int
    """Rows of the second input's planes; 0 if there is no second input."""
    output: PlaneLayout
    first: int
    """Bytes before the first pixel of the first plane of the output."""

    @classmethod
    def of(cls, grid: ConvGrid, layer: PackedLayer, planes: torch.Tensor) -> "ConvLaunch":
        """Return the launch of a layer for planes of the sizes in `grid`.

        Raise BadInput in the same cases as `prepared_launch`.
        """
        prepared = prepared_launch(layer, grid, planes)
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
        return cls(prepared.operator, call, grid.source.pixels, added, output, output.first * pixel)

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
        out = planes.new_empty((self.output.pixels, batch))
        more = 0 if second is None else second.data_ptr()
        self.operator.at(self.call, planes.data_ptr(), out.data_ptr() + self.first, stream_of(device), more)
        return out
