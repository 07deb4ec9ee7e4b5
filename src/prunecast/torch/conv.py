"""`SparseConv2d`: `torch.nn.Conv2d` with pruned filters, for inference.

The kernel reads and writes planes of pixels (`planes.py`). The module moves data in these cases:

* The input (batch, channels, height, width) may have any layout. One copy brings it into planes.
* The output is a view of planes as (batch, filters, height, width), without a copy. The next module of this
  class reads it in place, also after an in-place change such as `relu_` or `+=`. An operation that returns
  a new tensor makes a copy necessary.
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
from prunecast.kernels import KernelPlan, implicit_plan, plan_dense
from prunecast.models import estimate
from prunecast.patterns import TileMap
from prunecast.torch.epilogue import Epilogue
from prunecast.torch.find import GRID_FILTERS, is_convolution, runs_on_grid
from prunecast.torch.forms import layout_of_plan, layouts_for
from prunecast.torch.images import covering, layout_of
from prunecast.torch.layer_table import DTYPES
from prunecast.torch.ops import conv as convolve
from prunecast.torch.packed import PackedProduct, Rows
from prunecast.torch.planes import (
    ConvCall,
    images_in,
    in_planes,
    planes_behind,
    planes_of,
    seen_in,
    whole_batch,
)
from prunecast.torch.sparse_linear import SparseLayer, tiles_of_weight

__all__ = [
    "SparseConv2d",
    "TileSparseConv2d",
    "images_in",
    "in_planes",
    "planes_behind",
    "planes_of",
    "seen_in",
    "whole_batch",
]

_USUAL_PIXELS = 32 * 28 * 28
"""Output pixels of the call that filters are first packed for. Kind: choice; another size packs them again
where another height of blocks is faster."""


class SparseConv2d(SparseLayer):
    """y = activation(conv(x) + bias) with tile-sparse filters. Made by `from_conv`; no gradients.

    For every shape of input, the first call plans, and warns if the layer is predicted to be slower than a
    dense one.
    """

    def __init__(
        self, product: PackedProduct, conv: torch.nn.Conv2d, pattern: str, *, activation: str, border: int
    ) -> None:
        filters = Rows(0, conv.out_channels)
        super().__init__(product, filters, pattern, tuple(conv.weight.shape), has_bias=conv.bias is not None)
        self.size, self.stride = conv.kernel_size[0], conv.stride[0]
        self.out_channels, self.in_channels = conv.out_channels, conv.in_channels
        self.activation, self.border = activation, border
        self._planned: set[ConvCall] = set()

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
    ) -> "SparseConv2d":
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
        BadInput : another dtype or kind of convolution, or as for `SparseLinear.from_linear`
        """
        dtype = _check(conv, border)
        matrix, spec = conv.weight.detach().flatten(1), load_gpu(gpu) if isinstance(gpu, str) else gpu
        tiles = covering(tiles_of_weight(matrix, kept, pattern))
        product = PackedProduct(
            matrix,
            tiles,
            conv.bias,
            gpu=spec,
            max_tokens=_USUAL_PIXELS,
            layouts=layouts_for(tiles, dtype, spec, _USUAL_PIXELS, few_tokens=False),
            epilogue=Epilogue(activation),
        )
        own = cls(product, conv, tiles.pattern, activation=activation, border=border)
        own.train(conv.training)
        return own

    def call(self, count: int, height: int, width: int) -> ConvCall:
        """Return the sizes of a call with `count` input images."""
        batch = whole_batch(count)
        return ConvCall(self.in_channels, height, width, self.size, self.stride, batch, self.border)

    def plan(self, call: ConvCall) -> KernelPlan:
        """Return the plan that a call runs."""
        product = self.product
        dtype = DTYPES[product.images[0].dtype]
        return fastest_plan("stspmm", product.tile_map, call.grid.n, dtype, product.gpu, source=call.grid)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (batch, filters, height, width) of x (batch, channels, height, width).

        Raises
        ------
        BadInput : gradients are required; another number of channels, dtype or device
        """
        self._check_input(x)
        call, product = self.call(x.shape[0], *x.shape[2:]), self.product
        if torch.compiler.is_compiling():
            planes = planes_of(x, call.batch, self.border)
        else:
            if call not in self._planned:
                self._prepare(call)
            planes = planes_behind(in_planes(x, self.border))
        y = convolve(
            planes,
            product.images,
            product.tiles,
            product.fp32_bias,
            list(call),
            self.activation,
            product.gpu.name,
            product.plan,
        )
        return seen_in(y, call.grid.output(self.out_channels), x.shape[0])

    def _prepare(self, call: ConvCall) -> None:
        """Pack the filters for the plan of a new size of images; warn if cuDNN is predicted to be as fast."""
        if self.product.tiles.is_cuda and torch.cuda.is_current_stream_capturing():
            return  # the operator refuses what was not called before
        plan, conv, gpu = self.plan(call), call.grid.conv, self.product.gpu
        layout = layout_of_plan(plan, gpu)
        if layout not in [layout_of(image) for image in self.product.images]:
            self.product.add_image(layout)
        product = plan_dense(plan.m, conv.k, conv.n, plan.dtype, gpu)
        own, dense = (1e6 * estimate(each, gpu).seconds for each in (plan, implicit_plan(product, conv)))
        if own >= dense:
            sizes = f"{call.batch} images of {call.channels} x {call.height} x {call.width}"
            said = (
                f"{self.density:.0%} kept: predicted {own:.1f} us, dense {dense:.1f}: leave this layer dense"
            )
            warnings.warn(f"SparseConv2d: {sizes}, {said}", stacklevel=3)
        self._planned.add(call)

    def _check_input(self, x: torch.Tensor) -> None:
        if torch.is_grad_enabled() and (self.training or x.requires_grad):
            raise BadInput("SparseConv2d has no gradients: call eval() and use torch.no_grad()")
        if x.dim() != 4 or x.shape[1] != self.in_channels or not x.numel():
            raise BadInput(
                f"x must be (batch, {self.in_channels} channels, height, width), got {tuple(x.shape)}"
            )
        own = self.product.images[0]
        if x.dtype != own.dtype or x.device != own.device:
            wanted = f"{own.dtype} on {own.device} like the weights"
            raise BadInput(f"x must be {wanted}, got {x.dtype} on {x.device}")

    def _apply(self, fn: Any, recurse: bool = True) -> "SparseConv2d":
        self._planned = set()
        found: SparseConv2d = super()._apply(fn, recurse)
        return found

    def extra_repr(self) -> str:
        """Return the text that `print(model)` shows for the module."""
        shape = f"{self.in_channels}, {self.out_channels}, {self.size}x{self.size}, stride={self.stride}"
        return f"{shape}, {self.activation}, pattern={self.pattern}, density={self.density:.3f}"


TileSparseConv2d = SparseConv2d
"""The earlier name."""


def _check(conv: torch.nn.Conv2d, border: int) -> str:
    """Return the dtype of a convolution that the kernels run."""
    if type(conv) is not torch.nn.Conv2d:
        raise BadInput(f"wanted a Conv2d, got {type(conv).__name__}")
    dtype = DTYPES.get(conv.weight.dtype)
    if dtype not in ("fp16", "bf16"):
        raise BadInput(f"SparseConv2d runs fp16 and bf16 weights, got {conv.weight.dtype}: cast the layer")
    if not runs_on_grid(conv):
        raise BadInput(f"wanted {GRID_FILTERS}; got {conv}")
    if border < conv.padding[0]:
        raise BadInput(
            f"filters of {conv.kernel_size[0]}x{conv.kernel_size[1]} reach across a border of {border}"
        )
    return dtype


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
        sparse = SparseConv2d.from_conv(conv, kept[name], gpu=gpu, activation=activation, border=border)
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
