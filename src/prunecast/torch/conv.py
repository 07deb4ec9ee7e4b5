"""`TileSparseConv2d`: `torch.nn.Conv2d` with pruned filters, for inference.

The kernel reads and writes planes of pixels with the batch innermost and zeros around the images
(`prunecast.plan.conv_grid`). The module moves data in these cases:

* The input (batch, channels, height, width) may have any layout. One copy brings it into planes.
* The output is a view of planes as (batch, filters, height, width), without a copy. The next module of this
  class reads it in place, also after an in-place change such as `relu_` or `+=`. An operation that returns
  a new tensor makes a copy necessary.

Batches are padded to a multiple of 8.
"""

import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import ConvGrid, ConvShape, KernelPlan, implicit_plan, plan_dense
from prunecast.kernels.device.conv_input import CHUNK, ConvOperator
from prunecast.models import estimate
from prunecast.patterns import TileMap
from prunecast.plan.conv_grid import PlaneLayout
from prunecast.torch.find import GRID_FILTERS, is_convolution, runs_on_grid
from prunecast.torch.images import covering
from prunecast.torch.kept import Floats, tiles_of
from prunecast.torch.ops import columns
from prunecast.torch.tile_module import DTYPES, TileModule, check_dtype

__all__ = ["TileSparseConv2d", "images_in", "in_planes", "planes_of", "seen_in", "whole_batch"]

_PLANES = "_prunecast_planes"
"""Attribute of images that are a view of planes: the planes (pixels, batch), contiguous."""


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
    """Return images (batch, channels, height, width) in the layout of `TileSparseConv2d`.

    This needs one copy, which several modules can share, or none if one of these modules wrote the images.
    """
    count, channels, height, width = x.shape
    layout, batch = PlaneLayout(channels, height, width, border), whole_batch(count)
    planes = getattr(x, _PLANES, None)
    if planes is not None and _is_view(x, planes, layout, batch):
        return x
    return seen_in(planes_of(x, batch, border), layout, count)


def seen_in(planes: torch.Tensor, layout: PlaneLayout, count: int) -> torch.Tensor:
    """Return a view of planes as images, which `TileSparseConv2d` reads without a copy."""
    images = images_in(planes, layout, count)
    setattr(images, _PLANES, planes)
    return images


class TileSparseConv2d(TileModule):
    """y = activation(conv(x) + bias) with tile-sparse filters. Made by `from_conv`; no gradients.

    The state holds the kept values and the tiles. For every shape of input, the first call plans and packs,
    and warns if the layer is predicted to be slower than a dense one. The module caches `MOST_PLANS` shapes.
    """

    def __init__(
        self,
        tiles: TileMap,
        weights: Floats,
        conv: torch.nn.Conv2d,
        *,
        gpu: GpuSpec,
        activation: str = "none",
        border: int = 1,
    ) -> None:
        super().__init__(tiles, weights, conv, gpu)
        self.size, self.stride = conv.kernel_size[0], conv.stride[0]
        self.out_channels, self.in_channels = tiles.m, tiles.k // self.size**2
        self.activation, self.border = activation, border

    @classmethod
    def from_conv(
        cls,
        conv: torch.nn.Conv2d,
        kept: "TileMap | torch.Tensor | np.ndarray[Any, Any] | None" = None,
        *,
        pattern: str | None = None,
        gpu: str | GpuSpec,
        activation: str = "none",
        border: int = 1,
    ) -> "TileSparseConv2d":
        """Return a sparse module with the kept weights of `conv`, in its dtype and on its device.

        Parameters
        ----------
        conv : fp16 or bf16; odd square filters, half of their size as padding, one group
        kept : `TileMap`; or a mask (filters, channels * size * size) that follows `pattern`, such as those of
            `Pruner.masks`; None for the weights that are not zero
        pattern : pattern string, e.g. `tile-wise:128`; not needed with a `TileMap`
        gpu : name of the GPU to plan for, or its spec
        activation : `none`, `relu` or `gelu`, after the bias
        border : zeros around images in memory, in pixels; equal in consecutive layers

        Raises
        ------
        BadInput : another dtype or kind of convolution, or as for `TileSparseLinear.from_linear`
        """
        _check(conv, border)
        weights = conv.weight.detach().flatten(1).float().cpu().numpy()
        if isinstance(kept, torch.Tensor):
            kept = kept.detach().flatten(1).cpu().numpy()
        tiles = covering(tiles_of(weights, kept, pattern))
        spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
        return cls(tiles, weights, conv, gpu=spec, activation=activation, border=border)

    def dense_weight(self) -> torch.Tensor:
        """Return the filters (out, in, size, size) with zeros where pruned, a new tensor of the module's
        dtype.
        """
        return super().dense_weight().unflatten(1, (self.in_channels, self.size, self.size))

    def grid(self, count: int, height: int, width: int) -> ConvGrid:
        """Return the memory layout of `count` input images."""
        shape = ConvShape(
            channels=self.in_channels,
            height=height,
            width=width,
            kernel_h=self.size,
            kernel_w=self.size,
            stride=self.stride,
            padding=self.size // 2,
            batch=whole_batch(count),
        )
        return ConvGrid(conv=shape, border=self.border)

    def plan(self, grid: ConvGrid) -> KernelPlan:
        """Return the plan that a call with such an input runs."""
        return fastest_plan("stspmm", self.tiles(), grid.n, DTYPES[self.values.dtype], self.gpu, source=grid)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (batch, filters, height, width) of x (batch, channels, height, width).

        Raises
        ------
        BadInput : gradients are required; another number of channels, dtype or device
        """
        self._check_input(x)
        count, _, height, width = x.shape
        operator: ConvOperator = self._operator((whole_batch(count), height, width))
        return seen_in(operator(getattr(in_planes(x, self.border), _PLANES)), operator.output, count)

    def _planned(self, key: tuple[int, int, int]) -> KernelPlan:
        """Return the plan for the padded batch and image size; warn if cuDNN is predicted to be as fast or
        faster.
        """
        grid = self.grid(*key)
        plan, conv = self.plan(grid), grid.conv
        product = plan_dense(plan.m, conv.k, conv.n, plan.dtype, self.gpu)
        own, dense = (1e6 * estimate(each, self.gpu).seconds for each in (plan, implicit_plan(product, conv)))
        if own >= dense:
            sizes = f"{key[0]} images of {self.in_channels} x {key[1]} x {key[2]}, {self._density:.0%} kept"
            said = f"predicted {own:.1f} us, dense {dense:.1f}: leave this layer dense"
            warnings.warn(f"TileSparseConv2d: {sizes}: {said}", stacklevel=2)
        return plan

    def _check_input(self, x: torch.Tensor) -> None:
        self._check_gradients(x)
        if x.dim() != 4 or x.shape[1] != self.in_channels or not x.numel():
            raise BadInput(
                f"x must be (batch, {self.in_channels} channels, height, width), got {tuple(x.shape)}"
            )
        if x.dtype != self.values.dtype or x.device != self.values.device or not x.is_cuda:
            wanted = f"{self.values.dtype} on the GPU of the module"
            raise BadInput(
                f"x must be {wanted}, got {x.dtype} on {x.device}; the module is on {self.values.device}"
            )

    def extra_repr(self) -> str:
        """Return the text that `print(model)` shows for the module."""
        shape = f"{self.in_channels}, {self.out_channels}, {self.size}x{self.size}, stride={self.stride}"
        return f"{shape}, {self.activation}, pattern={self.pattern}, density={self._density:.3f}"


def _is_view(x: torch.Tensor, planes: torch.Tensor, layout: PlaneLayout, batch: int) -> bool:
    """Return whether images are still the unchanged view of planes that a module returned, in this layout."""
    if planes.shape != (layout.pixels, batch):
        return False
    made = images_in(planes, layout, x.shape[0])
    return bool(x.data_ptr() == made.data_ptr() and x.stride() == made.stride())


def _check(conv: torch.nn.Conv2d, border: int) -> None:
    if type(conv) is not torch.nn.Conv2d:
        raise BadInput(f"wanted a Conv2d, got {type(conv).__name__}")
    check_dtype("TileSparseConv2d", conv.weight)
    if not runs_on_grid(conv):
        raise BadInput(f"wanted {GRID_FILTERS}; got {conv}")
    if border < conv.padding[0]:
        raise BadInput(
            f"filters of {conv.kernel_size[0]}x{conv.kernel_size[1]} reach across a border of {border}"
        )


class SparseConv(NamedTuple):
    """A module and its name in the model."""

    name: str
    module: torch.nn.Module


def sparse_convs(
    model: torch.nn.Module, kept: Mapping[str, TileMap], gpu: GpuSpec, *, fuse: bool
) -> list[SparseConv]:
    """Return the sparse modules of convolutions. With `fuse`, a ReLU that follows in a
    `Sequential` is fused.
    """
    convs = {name: model.get_submodule(name) for name in kept}
    border = max([1, *(conv.padding[0] for conv in convs.values())])
    follows = _relus(model) if fuse else {}
    found = []
    for name, conv in convs.items():
        relu = follows.get(name)
        activation = "none" if relu is None else "relu"
        sparse = TileSparseConv2d.from_conv(conv, kept[name], gpu=gpu, activation=activation, border=border)
        found.append(SparseConv(name, sparse))
        if relu is not None:
            found.append(SparseConv(relu, torch.nn.Identity()))
    return found


def _relus(model: torch.nn.Module) -> dict[str, str]:
    """Return name of a convolution -> name of the ReLU after it in a `Sequential`."""
    found = {}
    for name, parent in model.named_modules():
        if type(parent) is not torch.nn.Sequential:
            continue
        for (own, module), (after, behind) in pairwise(parent.named_children()):
            if is_convolution(module) and type(behind) is torch.nn.ReLU:
                found[f"{name}.{own}".lstrip(".")] = f"{name}.{after}".lstrip(".")
    return found
