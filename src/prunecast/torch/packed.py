"""`PackedProduct`: the pruned weights of one launch, on a device.

Linear layers that read the same x share one product. Their rows are stacked in one tile map, or interleaved
for a gated unit. The first of these layers that is called computes the product for all of them. The layers
are in `sparse_linear.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.patterns import TileMap
from prunecast.torch.cuda.launches import prepared_launch
from prunecast.torch.epilogue import GATED_ROWS, PLAIN, Epilogue, PackedLayer
from prunecast.torch.layer_table import dtype_name, register_layer
from prunecast.torch.ops import columns_of, dense_weight, linear
from prunecast.torch.weight_layouts import Layout, covering, layout_of, pack, tiles_to_tensor, unpack


class _Held(NamedTuple):
    """Result of a product for the input x, held for the other layers that share the product.

    `version` is torch's count of in-place changes of x.
    """

    x: torch.Tensor
    version: int
    y: torch.Tensor
    parts: Any
    """Shapes and strides of parts of y (`DirectCalls.parts`); None if an operator computed y."""


class PackedProduct(torch.nn.Module):  # type: ignore[misc]
    """Product y (..., M) = x (..., K) A^T + bias with A in tiles, followed by an epilogue.

    Parameters
    ----------
    weight : (M, K) fp16, bf16 or fp32, on the device that runs the product; elements outside of the tiles are
        not read
    tiles : tile map of A
    bias : (M,) or None
    gpu : the GPU to plan for
    max_tokens : largest number of tokens of a call
    layouts : layouts of the packed weights, see `weight_layouts.py`. The weights are packed once for each;
        `dense_weight` unpacks the first one
    epilogue : operations after the bias; with a gated unit y has M / 2 features
    """

    fp32_bias: Any
    """(M,) fp32 bias, or None."""
    number_format = ""
    """Number format of the packed weights, such as `fp8`; empty if it is the dtype of x."""

    def __init__(
        self,
        weight: torch.Tensor,
        tiles: TileMap,
        bias: torch.Tensor | None,
        *,
        gpu: GpuSpec,
        max_tokens: int,
        layouts: Sequence[Layout],
        epilogue: Epilogue = PLAIN,
    ) -> None:
        super().__init__()
        self.tile_map, self.epilogue = covering(tiles), epilogue
        self.gpu, self.max_tokens = gpu, max_tokens
        self.rows, self.features = tiles.m // 2 if epilogue.glu else tiles.m, tiles.k
        self.image_names = tuple(f"image_{number}" for number in range(len(layouts)))
        for name, tensor in self._packed(weight, layouts).items():
            self.register_buffer(name, tensor, persistent=False)
        self.register_buffer("tiles", tiles_to_tensor(self.tile_map).to(weight.device), persistent=False)
        fp32 = None if bias is None else bias.detach().to(weight.device, torch.float32)
        self.register_buffer("fp32_bias", fp32, persistent=False)
        self._register(weight.dtype)
        self._held: _Held | None = None
        self._eager: Any = None
        """`DirectCalls`, created at the first x on a GPU."""

    def _packed(self, weight: torch.Tensor, layouts: Sequence[Layout]) -> dict[str, torch.Tensor]:
        """Return name -> tensor for the tensors of this module in which A (M, K) is stored."""
        images = [pack(weight, self.tile_map, layout) for layout in layouts]
        return dict(zip(self.image_names, images, strict=True))

    def _register(self, dtype: torch.dtype) -> None:
        """Add the product to the table of layers if it is missing, and set `plan` to its key."""
        self.plan = register_layer(self.tile_map, self.number_format or dtype_name(dtype), self.gpu).key

    @property
    def images(self) -> list[torch.Tensor]:
        """Packed weights, one tensor for each layout."""
        return [getattr(self, name) for name in self.image_names]

    @property
    def layer(self) -> PackedLayer:
        """Tensors and numbers of the product that its launches need."""
        own = (self.images, self.tiles, self.fp32_bias, self.gpu.name, self.plan, self.epilogue)
        return PackedLayer(*own)

    @property
    def like(self) -> torch.Tensor:
        """A tensor with the dtype of x and y, on the device of the product."""
        first: torch.Tensor = getattr(self, self.image_names[0])
        return first

    @property
    def is_two_of_four(self) -> bool:
        """True if the weights in the tiles are 2:4."""
        return layout_of(getattr(self, self.image_names[0])).is_two_of_four

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (..., rows) of x (..., features).

        y is contiguous, or a transposed view if the epilogue writes features first. Under autocast x is cast
        to the dtype of the weights.

        Raises
        ------
        BadInput : x has another number of features, dtype or device, no tokens, or more tokens than
            `max_tokens`
        """
        y = self._directly(x)
        if y is not None:
            return y
        dtype = self.like.dtype
        if x.dtype != dtype and torch.is_autocast_enabled(x.device.type):
            return self.forward(x.to(dtype))
        self._check(x)
        return self._multiplied(x)

    def _multiplied(self, x: torch.Tensor) -> torch.Tensor:
        """Return y, computed by the torch operators of `ops.py`. `_check(x)` must have passed."""
        flat = x.reshape(-1, self.features)
        tokens = flat.shape[0]
        epilogue, gpu, plan = self.epilogue, self.gpu.name, self.plan
        y = linear(
            columns_of(flat), self.images, self.tiles, self.fp32_bias, tokens, self.rows, *epilogue, gpu, plan
        )
        if self.epilogue.features_first:
            return y.t()[:tokens].unflatten(0, x.shape[:-1]) if x.dim() > 1 else y[:, 0]
        return y.view(*x.shape[:-1], self.rows)

    def _directly(self, x: torch.Tensor) -> torch.Tensor | None:
        """Return y without calling torch operators; None if they are needed (tracing, gradients, fp8)."""
        if self.number_format or torch.compiler.is_dynamo_compiling():
            return None
        own = self._eager
        y: torch.Tensor | None = None if own is None else own(x)
        return self._directly_first(x) if y is None and x.is_cuda else y

    def _directly_first(self, x: torch.Tensor) -> torch.Tensor | None:
        if self._eager is None:
            from prunecast.torch.cuda.direct import DirectCalls

            self._eager = DirectCalls(self.layer, self.features, self.rows)
        own = self._eager
        if not own.may_call(x) or x.dtype != own.layer.images[0].dtype:
            return None
        self._check(x)
        return own.first(x)

    def prepare(self, tokens: int) -> None:
        """Plan, compile and copy everything that a call with `tokens` tokens launches; do
        nothing on a CPU.
        """
        if self.tiles.is_cuda:
            prepared_launch(self.layer, tokens, self.like)

    def part(self, x: torch.Tensor, first: int, size: int) -> torch.Tensor:
        """Return features `first` to `first + size` of y.

        The product is computed once for all parts if they are requested in order with the same x.
        """
        held = self._held
        if held is None or held.x is not x or held.version != _version(x):
            y = self._directly(x)
            parts = None if y is None else self._eager.parts
            held = _Held(x, _version(x), self.forward(x) if y is None else y, parts)
            self._hold(held)
        if first + size == self.rows:
            self._hold(None)
        if held.parts is None:
            return held.y.narrow(-1, first, size)
        return self._eager.part_of(held.y, first, size, held.parts)

    def _hold(self, held: _Held | None) -> None:
        if torch.compiler.is_dynamo_compiling():
            self._held = held
        else:
            object.__setattr__(self, "_held", held)  # Module.__setattr__ is slower than slicing y

    def dense_weight(self) -> torch.Tensor:
        """Return A (M, K) as a new tensor, with zeros where pruned."""
        return unpack(getattr(self, self.image_names[0]), self.tile_map)

    def traced_weight(self) -> torch.Tensor:
        """Return A (M, K), computed by the operator `dense_weight`, which traced graphs may contain."""
        return dense_weight(self.like, self.tiles, self.gpu.name, self.plan)

    def add_image(self, layout: Layout) -> None:
        """Pack the weights in one more layout, in addition to the present ones."""
        name = f"image_{len(self.image_names)}"
        with torch.no_grad():
            self.register_buffer(name, pack(self.dense_weight(), self.tile_map, layout), persistent=False)
        self.image_names = (*self.image_names, name)
        self._eager = None

    def set_weight(self, weight: torch.Tensor, rows: "ProductRows") -> None:
        """Replace the weights of some rows, or their first columns if `weight` has fewer columns than A.

        Raises
        ------
        BadInput : a weight that the tiles do not keep is not zero
        """
        whole = self.dense_weight()
        own = rows.of(whole)
        own[..., : weight.shape[-1]].copy_(weight.reshape(*own.shape[:-1], -1))
        packed = self._packed(whole, [layout_of(image) for image in self.images])
        lost = int(torch.count_nonzero(whole)) - int(torch.count_nonzero(self._kept(whole)))
        if lost:
            raise BadInput(
                f"the weights to load have {lost} values outside of the tiles that this layer keeps"
            )
        for name, tensor in packed.items():
            getattr(self, name).data.copy_(tensor)

    def _kept(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the weights (M, K) with zeros outside of the tiles."""
        return weight.masked_fill(~torch.from_numpy(self.tile_map.mask()).to(weight.device), 0.0)

    @property
    def packed_bytes(self) -> int:
        """Bytes of all tensors on the device."""
        tensors = (*self.parameters(), *self.buffers())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def _check(self, x: torch.Tensor) -> None:
        like = self.like
        if x.dim() == 0 or x.shape[-1] != self.features:
            raise BadInput(f"x must have {self.features} features, got {tuple(x.shape)}")
        if x.dtype != like.dtype:
            raise BadInput(f"x must be {like.dtype} like the weights, got {x.dtype}")
        if x.device != like.device:
            raise BadInput(f"x must be on {like.device} like the weights, got {x.device}")
        if x.numel() > self.max_tokens * self.features:
            tokens = x.numel() // self.features
            raise BadInput(f"planned for at most {self.max_tokens} tokens, got {tokens}: sparsify with more")
        if x.numel() == 0:
            raise BadInput("x has no tokens")

    def _apply(self, fn: Any, recurse: bool = True) -> "PackedProduct":
        """Move or cast the tensors. Biases stay fp32 and tiles int32; casts between fp32 and 16 bits raise
        BadInput.
        """
        packed = getattr(self, self.image_names[0])
        before, bias = packed.dtype, self.fp32_bias
        self._check_cast(self.like.dtype, fn(self.like.new_empty(0)).dtype)
        super()._apply(fn, recurse)
        image = getattr(self, self.image_names[0])
        if image.dtype != before and self.is_two_of_four:  # metadata bits must not be cast
            dense = unpack(packed, self.tile_map).to(image.device, image.dtype)
            setattr(self, self.image_names[0], pack(dense, self.tile_map, layout_of(image)))
        if bias is not None and self.fp32_bias.dtype != torch.float32:
            self.fp32_bias = bias.to(self.fp32_bias.device)
        if image.dtype != before:
            self._register(image.dtype)
        self._held = self._eager = None
        return self

    def _check_cast(self, before: torch.dtype, after: torch.dtype) -> None:
        if before != after and "fp32" in (dtype_name(before), dtype_name(after)):
            raise BadInput(f"weights packed as {before} cannot become {after}: cast the model, then sparsify")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None, "_eager": None}

    def _save_to_state_dict(self, *_: Any) -> None:
        """Save nothing: the layers that use the product save and load its weights as dense tensors."""

    def _load_from_state_dict(self, *_: Any) -> None: ...

    def make_trainable(self) -> None:
        """Turn the packed weights into parameters. Raise BadInput for 2:4 and fp8 weights."""
        if self.is_two_of_four or self.number_format:
            what = self.number_format or "2:4"
            raise BadInput(f"{what} weights are not trained in place: train with `Pruner`, then sparsify")
        for name in self.image_names:
            image = getattr(self, name)
            if not isinstance(image, torch.nn.Parameter):
                delattr(self, name)
                self.register_parameter(name, torch.nn.Parameter(image))
        self._eager = None

    def extra_repr(self) -> str:
        """Return the text that `print(model)` shows for the module."""
        sizes = f"{self.features} -> {self.rows}, {self.tile_map.pattern}"
        return f"{sizes}, density={self.tile_map.density:.3f}, {self.number_format}".removesuffix(", ")


class ProductRows(NamedTuple):
    """Rows of a product that belong to one layer."""

    first: int
    """First row of the layer; if the rows are interleaved, 0 for the gate and 1 for up."""
    size: int
    interleaved: bool = False

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        """Return the layer's rows of (M, ...) as a view; (groups, 8, ...) if they are interleaved."""
        if self.interleaved:
            return whole.unflatten(0, (-1, 2, GATED_ROWS))[:, self.first]
        return whole[self.first : self.first + self.size]


def interleaved_tiles(half: TileMap, pattern: str) -> TileMap:
    """Return the tile map of a product of gate and up whose rows are interleaved by 8.

    `half` is the tile map that gate and up have in common.
    """
    place = half.row_index.reshape(-1, GATED_ROWS)
    gate = place // GATED_ROWS * 2 * GATED_ROWS + place % GATED_ROWS
    rows = np.stack((gate, gate + GATED_ROWS), 1).ravel()
    return replace(half, m=2 * half.m, row_start=2 * half.row_start, row_index=rows, pattern=pattern)


def _version(x: torch.Tensor) -> int:
    """Return torch's count of in-place changes of x; 0 in traced graphs and for inference tensors."""
    if torch.compiler.is_dynamo_compiling() or x.is_inference():
        return 0
    return int(x._version)
