"""`SparseConv2d`: `torch.nn.Conv2d` with pruned filters, for inference.

The kernel reads and writes planes, where each pixel is a row with the images of the batch (`planes.py`). In a
network that `network.py` has rewritten, modules pass `Planes` to each other. In other networks, modules get
and return tensors of images:

* The input (batch, channels, height, width) may have any layout. One copy converts it to planes.
* The output is a view of planes as (batch, filters, height, width), without a copy. The next module of this
  class reads it in place, also after an in-place change such as `relu_` or `+=`. After an operation that
  returns a new tensor, the next module has to copy.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from prunecast.choice import fastest_plan, kept_estimate
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan, implicit_plan, plan_dense
from prunecast.models import estimate
from prunecast.patterns import TileMap
from prunecast.torch.cuda.conv import ConvLaunch
from prunecast.torch.epilogue import Epilogue
from prunecast.torch.find import GRID_FILTERS, runs_on_grid
from prunecast.torch.layer_plans import layout_of_plan, layouts_for
from prunecast.torch.layer_table import DTYPES
from prunecast.torch.packed import PackedProduct, ProductRows
from prunecast.torch.planes import (
    ConvCall,
    Planes,
    convolve,
    in_planes,
    planes_behind,
    planes_of,
    seen_in,
    whole_batch,
)
from prunecast.torch.sparse_linear import SparseLayer, tiles_of_weight
from prunecast.torch.weight_layouts import covering, layout_of
from prunecast.workload.graph import Operation

_USUAL_PIXELS = 32 * 28 * 28
"""Number of output pixels (all images together) for which filters are packed at first. Kind: choice; filters
are packed again for image sizes where another block height is faster.
"""


MOST_SIZES = 8
"""Number of image sizes for which a module caches launches. Kind: choice; a captured graph keeps its launches
alive.
"""


class Ends(NamedTuple):
    """Operations that a convolution's kernel computes after the matrix product."""

    activation: str = "none"
    """Name of the activation, which is computed after bias and residual sum."""
    adds: bool = False
    """Whether the kernel adds a second input, of the size of the output, before the activation."""
    bias: torch.Tensor | None = None
    """(filters,) bias in place of the module's own bias: the shift of a folded norm. None for the module's
    own bias.
    """


class _Planned(NamedTuple):
    """Launch of a convolution for one size of images."""

    launch: ConvLaunch | None
    """Prepared launch; None on a CPU."""
    seconds: float
    """Predicted time of the launch in seconds."""


class SparseConv2d(SparseLayer):
    """Convolution y = activation(conv(x) + bias) with tile-sparse filters, for inference.

    Modules are created by `from_conv`. The first call with each shape of input plans its launch, and warns if
    the dense layer is predicted to be as fast. Modules of a rewritten network (`network.py`) read and write
    `Planes` only, and do not warn.
    """

    in_network = False
    """Whether a rewritten network calls the module, which may then also compute the norm, sum and activation
    after it.
    """

    def __init__(
        self, product: PackedProduct, conv: torch.nn.Conv2d, pattern: str, *, ends: Ends, border: int
    ) -> None:
        filters = ProductRows(0, conv.out_channels)
        super().__init__(product, filters, pattern, tuple(conv.weight.shape), has_bias=conv.bias is not None)
        self.size, self.stride = conv.kernel_size[0], conv.stride[0]
        self.out_channels, self.in_channels = conv.out_channels, conv.in_channels
        self.activation, self.adds, self.border = ends.activation, ends.adds, border
        self._launches: dict[ConvCall, _Planned] = {}
        """The last `MOST_SIZES` sizes of calls -> their launches."""
        self._ready: dict[Any, ConvLaunch] = {}
        """Sizes, dtype and device of planes -> their launch, which eager calls find without any planning."""

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
        ends: Ends | None = None,
    ) -> "SparseConv2d":
        """Return a sparse module with the kept weights of `conv`, in its dtype and on its device.

        Parameters
        ----------
        conv : convolution in fp16 or bf16 with odd square filters, half of their size as padding, and one
            group
        kept : `TileMap`; or a mask (filters, channels * size * size) that follows `pattern`, such as those of
            `Pruner.masks`; None to keep the weights that are not zero
        pattern : pattern string, e.g. `tile-wise:128`; not needed with a `TileMap`
        gpu : name of the GPU to plan for, or its spec
        activation : `none`, `relu` or `gelu`, computed after the bias
        border : width in pixels of the zeros around images in memory. Consecutive layers need equal borders
            to pass planes without a copy
        ends : operations after the matrix product; replaces `activation`

        Raises
        ------
        BadInput : the convolution has another dtype or form, or in the same cases as
            `SparseLinear.from_linear`
        """
        dtype = _check(conv, border)
        matrix, spec = conv.weight.detach().flatten(1), load_gpu(gpu) if isinstance(gpu, str) else gpu
        tiles = covering(tiles_of_weight(matrix, kept, pattern))
        pattern, ends = tiles.pattern, ends or Ends(activation)
        if ends.adds:  # A = [filters, identity] multiplies B = [pixels, second input]
            eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
            matrix, tiles = torch.cat((matrix, eye), 1), _with_identity(tiles)
        product = PackedProduct(
            matrix,
            tiles,
            conv.bias if ends.bias is None else ends.bias,
            gpu=spec,
            max_tokens=_USUAL_PIXELS,
            layouts=layouts_for(tiles, dtype, spec, _USUAL_PIXELS, few_tokens=False),
            epilogue=Epilogue(ends.activation),
        )
        own = cls(product, conv, pattern, ends=ends, border=border)
        own.train(conv.training)
        return own

    def call(self, count: int, height: int, width: int) -> ConvCall:
        """Return the sizes of a call with `count` images of `height` x `width` pixels."""
        batch, second = whole_batch(count), self.out_channels if self.adds else 0
        sizes = (self.in_channels, height, width, self.size, self.stride, batch)
        return ConvCall(*sizes, max(self.border, self.size // 2), second, self.border)

    def plan(self, call: ConvCall) -> KernelPlan:
        """Return the kernel plan for the sizes of a call."""
        product = self.product
        dtype = DTYPES[product.images[0].dtype]
        return fastest_plan("stspmm", product.tile_map, call.grid.n, dtype, product.gpu, source=call.grid)

    def seconds(self, o: Operation) -> float:
        """Return the predicted seconds of a call with the batch and image size of the convolution `o`."""
        assert o.convolution is not None
        call = self.call(o.convolution.batch, o.convolution.height, o.convolution.width)
        known = self._launches.get(call)
        return self._seconds_of(self.plan(call)) if known is None else known.seconds

    def _seconds_of(self, plan: KernelPlan) -> float:
        return kept_estimate(plan, self.product.gpu).seconds

    def forward(self, x: torch.Tensor | Planes, second: Planes | None = None) -> Any:
        """Return y (batch, filters, height, width) of images x (batch, channels, height, width).

        If x is `Planes`, y is `Planes`, too.

        Parameters
        ----------
        x : images, or their planes
        second : planes that are added before the activation, if `adds` is set

        Raises
        ------
        BadInput : gradients are required; x has another number of channels, dtype or device; `second` has
            another size than the output; or x are images and the module is part of a rewritten network
        """
        if isinstance(x, Planes):
            self._check_mode(x.data)
            added = None if second is None else second.data
            key = (x[1:], x.data.dtype, x.data.device, None if second is None else second[1:])
            ready = self._ready.get(key)
            if ready is not None and not torch.compiler.is_compiling():
                return x.after(ready(x.data, added), ready.output)
            own = self.product.images[0]
            if (x.channels, x.data.dtype, x.data.device) != (self.in_channels, own.dtype, own.device):
                raise BadInput(
                    f"the images of a network must have {self.in_channels} channels of {own.dtype} on "
                    f"{own.device} like its weights, got {x.channels} channels of {x.data.dtype} on "
                    f"{x.data.device}"
                )
            call = self.call(x.n_images, x.height, x.width)._replace(border=x.border)
            output = call.grid.output(self.out_channels)
            if second is not None:
                got = (second.channels, second.height, second.width)
                if got != output[:3]:
                    raise BadInput(
                        f"a sum after a convolution: wanted a second input of {output[:3]}, got {got}"
                    )
            made = x.after(self._convolved(x.data, call, added), output)
            if not torch.compiler.is_compiling() and (launch := self._launches[call].launch) is not None:
                self._ready[key] = launch
            return made
        if self.in_network:
            raise BadInput("this convolution is part of a rewritten network: call the whole model")
        self._check_input(x)
        call = self.call(x.shape[0], *x.shape[2:])
        if torch.compiler.is_compiling():
            planes = planes_of(x, call.batch, call.border)
        else:
            planes = planes_behind(in_planes(x, call.border))
        return seen_in(self._convolved(planes, call), call.grid.output(self.out_channels), x.shape[0])

    def _convolved(
        self, planes: torch.Tensor, call: ConvCall, second: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the output planes.

        A cached launch computes them; in traced graphs and on a CPU, the operator `prunecast::conv` does.
        """
        product = self.product
        if not torch.compiler.is_compiling():
            launch = (self._launches.get(call) or self._prepare(call, planes)).launch
            if launch is not None:
                return launch(planes, second)
        tensors = (product.images, product.tiles, product.fp32_bias)
        names = (product.gpu.name, product.plan)
        return convolve(planes, *tensors, list(call), self.activation, *names, second)

    def _prepare(self, call: ConvCall, planes: torch.Tensor) -> _Planned:
        """Plan a new size of images, pack the filters for it if needed, and return its launch.

        Outside of a rewritten network this warns if cuDNN is predicted to be as fast.
        """
        product = self.product
        if planes.is_cuda and torch.cuda.is_current_stream_capturing():
            raise BadInput(f"nothing is prepared for {call}: call the model once before it is captured")
        plan, conv, gpu = self.plan(call), call.grid.conv, product.gpu
        layout = layout_of_plan(plan, gpu)
        if layout not in [layout_of(image) for image in product.images]:
            product.add_image(layout)
        if not self.in_network:
            dense_product = plan_dense(plan.m, conv.k, conv.n, plan.dtype, gpu)
            plans = (plan, implicit_plan(dense_product, conv))
            own, dense = (1e6 * estimate(each, gpu).seconds for each in plans)
            if own >= dense:
                sizes = f"{call.batch} images of {call.channels} x {call.height} x {call.width}"
                said = f"predicted {own:.1f} us, dense {dense:.1f}: leave this layer dense"
                warnings.warn(f"SparseConv2d: {sizes}, {self.density:.0%} kept: {said}", stacklevel=4)
        launch = None
        if planes.is_cuda:
            launch = ConvLaunch.of(call.grid, product.layer, planes)
        while len(self._launches) >= MOST_SIZES:
            del self._launches[next(iter(self._launches))]
            self._ready = {}
        found = self._launches[call] = _Planned(launch, self._seconds_of(plan))
        return found

    def _check_mode(self, x: torch.Tensor) -> None:
        if torch.is_grad_enabled() and (self.training or x.requires_grad):
            raise BadInput("SparseConv2d has no gradients: call eval() and use torch.no_grad()")

    def _check_input(self, x: torch.Tensor) -> None:
        self._check_mode(x)
        if x.dim() != 4 or x.shape[1] != self.in_channels or not x.numel():
            raise BadInput(
                f"x must be (batch, {self.in_channels} channels, height, width), got {tuple(x.shape)}"
            )
        own = self.product.images[0]
        if x.dtype != own.dtype or x.device != own.device:
            wanted = f"{own.dtype} on {own.device} like the weights"
            raise BadInput(f"x must be {wanted}, got {x.dtype} on {x.device}")

    def _apply(self, fn: Any, recurse: bool = True) -> "SparseConv2d":
        self._launches, self._ready = {}, {}
        found: SparseConv2d = super()._apply(fn, recurse)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_launches": {}, "_ready": {}}

    def extra_repr(self) -> str:
        """Return the text that `print(model)` shows for the module."""
        shape = f"{self.in_channels}, {self.out_channels}, {self.size}x{self.size}, stride={self.stride}"
        return f"{shape}, {self.activation}, pattern={self.pattern}, density={self.density:.3f}"


TileSparseConv2d = SparseConv2d
"""Earlier name of `SparseConv2d`."""


def _check(conv: torch.nn.Conv2d, border: int) -> str:
    """Return the dtype of a convolution. Raise BadInput if the kernels do not support the convolution."""
    if type(conv) is not torch.nn.Conv2d:
        raise BadInput(f"wanted a Conv2d, got {type(conv).__name__}")
    dtype = DTYPES.get(conv.weight.dtype)
    if dtype not in ("fp16", "bf16"):
        raise BadInput(f"SparseConv2d runs fp16 and bf16 weights, got {conv.weight.dtype}: cast the layer")
    if not runs_on_grid(conv):
        raise BadInput(f"wanted {GRID_FILTERS}; got {conv}")
    if border < conv.padding[0] and conv.stride[0] == 1:
        raise BadInput(
            f"filters of {conv.kernel_size[0]}x{conv.kernel_size[1]} reach across a border of {border}"
        )
    return dtype


def _with_identity(tiles: TileMap) -> TileMap:
    """Return the tiles of [A, I] with an identity matrix I (M, M), which adds a second input to the product.

    A tile keeps its columns of A, and the column i of I for each of its rows i.
    """
    rows = np.split(tiles.row_index, tiles.row_start[1:-1])
    columns = np.split(tiles.column_index, tiles.column_start[1:-1])
    both = [np.concatenate((kept, np.sort(own) + tiles.k)) for kept, own in zip(columns, rows, strict=True)]
    return replace(
        tiles,
        k=tiles.k + tiles.m,
        column_start=(tiles.column_start + tiles.row_start).astype(np.int32),
        column_index=np.concatenate(both).astype(np.int32),
    )


def sparse_convs(
    model: torch.nn.Module, kept: Mapping[str, TileMap], gpu: GpuSpec, ends: Mapping[str, Ends], border: int
) -> dict[str, SparseConv2d]:
    """Return name -> sparse module for convolutions of a model, which all write images with the same border.

    Parameters
    ----------
    kept : name of a convolution -> its tiles
    ends : name of a convolution -> its operations after the matrix product
    border : width of the border in pixels
    """
    return {
        name: SparseConv2d.from_conv(
            model.get_submodule(name), tiles, gpu=gpu, ends=ends.get(name), border=border
        )
        for name, tiles in kept.items()
    }
