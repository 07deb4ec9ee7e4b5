"""`SparseLinear`: replaces an `nn.Linear` by some rows of a product that several layers may share.

The state dict contains dense tensors with zeros under the names of `nn.Linear`, so that a checkpoint can be
loaded with and without this package. `fuse_dense` joins layers that stay dense in the same way.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import nn

from prunecast.arguments import checked
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.patterns import TileMap
from prunecast.torch.epilogue import Epilogue
from prunecast.torch.find import biases_of, find_layers, is_transposed, matrix_of, sibling_groups
from prunecast.torch.kept import tiles_of
from prunecast.torch.layer_plans import layouts_for
from prunecast.torch.layer_table import dtype_name
from prunecast.torch.packed import PackedProduct, ProductRows
from prunecast.torch.unpacked import UnpackedWeight
from prunecast.torch.weight_layouts import covering

LAYOUTS = ("tokens_first", "features_first")
MOST_DENSE = 0.999
"""Largest share of nonzero weights with which a layer counts as pruned. Kind: choice."""


class SparseLayer(torch.nn.Module):  # type: ignore[misc]
    """Replacement of one layer of a model; its output are the layer's rows of a sparse product.

    Its state dict has the names and shapes of the original layer.

    Parameters
    ----------
    product : product with the packed weights; other layers may share it
    rows : rows of the product that belong to the layer
    pattern : pattern of the layer's zeros
    shape : shape of the original weights; None for those of a linear layer
    has_bias : whether the original layer has a bias
    transposed : whether the original weights are (K, M)
    """

    def __init__(
        self,
        product: PackedProduct,
        rows: ProductRows,
        pattern: str,
        shape: tuple[int, ...] | None = None,
        *,
        has_bias: bool,
        transposed: bool = False,
    ) -> None:
        super().__init__()
        self.product, self.rows, self.has_bias, self.transposed = product, rows, has_bias, transposed
        matrix = (product.features, rows.size) if transposed else (rows.size, product.features)
        self.pattern, self.weight_shape = pattern, shape or matrix
        """Pattern of the layer's zeros, and shape of the original weights."""

    @property
    def weight(self) -> torch.Tensor:
        """Dense weights with zeros, in the layout of the original layer.

        They are unpacked only when their values are read, not for dtype, device or shape.
        """
        product = self.product
        if torch.compiler.is_compiling():
            return self._of_product(product.traced_weight())
        return UnpackedWeight(self.dense_weight, self.weight_shape, product.like)

    def dense_weight(self) -> torch.Tensor:
        """Return the dense weights with zeros as a new tensor in the layout of the original layer."""
        return self._of_product(self.product.dense_weight())

    def _of_product(self, whole: torch.Tensor) -> torch.Tensor:
        own = self.rows.of(whole).reshape(self.rows.size, -1)
        # Leave out the columns for a second input
        own = own[:, : math.prod(self.weight_shape) // self.rows.size]
        own = own.t() if self.transposed else own.reshape(self.weight_shape)
        return own.clone(memory_format=torch.contiguous_format)

    @property
    def bias(self) -> torch.Tensor | None:
        """(M,) bias in the dtype of the weights; None if the layer has no bias."""
        if not self.has_bias:
            return None
        return self.rows.of(self.product.fp32_bias).flatten().to(self.product.like.dtype)

    @property
    def density(self) -> float:
        """Share of the weights that the layer's tiles keep; half of that for 2:4."""
        tiles = self.product.tile_map
        mine = np.zeros(tiles.m, bool)
        self.rows.of(torch.from_numpy(mine))[...] = True
        weights = math.prod(self.weight_shape)
        is_own = tiles.column_index < weights // self.rows.size  # others belong to a second input
        kept_of_tile = np.diff(np.append(0, np.cumsum(is_own))[tiles.column_start])
        kept = int(np.repeat(kept_of_tile, tiles.rows_per_tile)[mine[tiles.row_index]].sum(dtype=np.int64))
        return kept / weights / (2.0 if self.product.is_two_of_four else 1.0)

    def trainable(self) -> Self:
        """Turn the kept weights into parameters with gradients; everything else stays zero.

        Raise BadInput for 2:4 weights, and for weights that are packed in two layouts.
        """
        product = self.product
        if len(product.image_names) > 1:
            raise BadInput("weights that are packed twice cannot be trained: give sparsify few_tokens=False")
        product.make_trainable()
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"] = self.dense_weight().detach()
        if self.has_bias:
            destination[prefix + "bias"] = self.bias

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *given: Any) -> None:
        def load_weight(weight: torch.Tensor) -> None:
            self.product.set_weight(weight.t() if self.transposed else weight.flatten(1), self.rows)

        def load_bias(bias: torch.Tensor) -> None:
            own = self.rows.of(self.product.fp32_bias)
            own.copy_(bias.reshape(own.shape))

        tensors = {"weight": DenseTensor(self.weight_shape, load_weight)}
        if self.has_bias:
            tensors["bias"] = DenseTensor((self.rows.size,), load_bias)
        load_tensors(tensors, state_dict, prefix, *given)


class DenseTensor(NamedTuple):
    """Entry of a state dict whose values a module stores in another form, e.g. packed."""

    shape: tuple[int, ...]
    load: Callable[[torch.Tensor], object]
    """Function that replaces the module's values by those of the given tensor."""


def load_tensors(
    tensors: Mapping[str, DenseTensor],
    state_dict: Mapping[str, torch.Tensor],
    prefix: str,
    metadata: Mapping[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Load tensors of a state dict that a module stores in another form.

    This replaces `torch.nn.Module._load_from_state_dict` and has its arguments.

    Parameters
    ----------
    tensors : name in the module -> tensor to load
    """
    for name, (shape, load) in tensors.items():
        new = state_dict.get(prefix + name)
        if new is None:
            missing.append(prefix + name)
        elif tuple(new.shape) != shape:
            errors.append(f"size mismatch for {prefix}{name}: {tuple(new.shape)}, wanted {shape}")
        else:
            load(new.detach())
    others = (key for key in state_dict if key.startswith(prefix) and key.removeprefix(prefix) not in tensors)
    unexpected += [*others] * strict


def tiles_of_weight(
    weight: torch.Tensor, kept: TileMap | torch.Tensor | np.ndarray[Any, Any] | None, pattern: str | None
) -> TileMap:
    """Return the tiles of a single layer, as `tiles_of` does.

    A mask may also be a tensor with the shape of the weight.

    Raises
    ------
    BadInput : in the same cases as `tiles_of`; or `kept` is None and less than 0.1 % of the weights is zero
    """
    weights = weight.detach().flatten(1).float().cpu().numpy()
    share = np.count_nonzero(weights) / weights.size
    if kept is None and share > MOST_DENSE:
        raise BadInput(f"wanted a pruned layer, or what to keep of it; {share:.2%} of its weights stay")
    if isinstance(kept, torch.Tensor):
        kept = kept.detach().flatten(1).cpu().numpy()
    return tiles_of(weights, kept, pattern)


class SparseLinear(SparseLayer):
    """Sparse replacement of one `nn.Linear`.

    Several layers may share one product, in which each has its own rows.

    Gradients flow to x. The weights have gradients only after `trainable()` was called on this layer or on
    one that shares the product.
    """

    features_first = False
    """Whether x is (in_features, tokens), and y (out_features, tokens)."""

    @property
    def in_features(self) -> int:
        """Number of features of x."""
        return self.product.features

    @property
    def out_features(self) -> int:
        """Number of features of y."""
        return self.rows.size

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        kept: "TileMap | torch.Tensor | np.ndarray[Any, Any] | None" = None,
        *,
        pattern: str | None = None,
        gpu: str | GpuSpec,
        max_tokens: int,
        layout: str = "tokens_first",
    ) -> "SparseLinear":
        """Return a sparse layer with the kept weights of `linear`, in its dtype and on its device.

        Parameters
        ----------
        linear : layer in fp16, bf16 or fp32
        kept : `TileMap`; or a mask (out_features, in_features) that follows `pattern`; None to keep the
            weights that are not zero
        pattern : pattern string, e.g. `tile-wise:128`; not needed with a `TileMap`
        gpu : name of the GPU to plan for, or its spec
        max_tokens : largest number of tokens of a call
        layout : `tokens_first` for x (..., in_features) as in `nn.Linear`; `features_first` for x
            (in_features, tokens) and y (out_features, tokens), which the kernels read and write without a
            transpose

        Raises
        ------
        BadInput : the dtype, layout or GPU is not supported, the shapes differ, the mask does not follow its
            pattern, or `kept` is None and less than 0.1 % of the weights is zero
        """
        check_choice("layout", layout, LAYOUTS)
        if max_tokens < 1:
            raise BadInput(f"max_tokens must be at least 1, got {max_tokens}")
        dtype, spec = dtype_name(linear.weight.dtype), load_gpu(gpu) if isinstance(gpu, str) else gpu
        tiles = tiles_of_weight(linear.weight, kept, pattern)
        first = layout == "features_first"
        product = PackedProduct(
            linear.weight.detach(),
            tiles,
            linear.bias,
            gpu=spec,
            max_tokens=max_tokens,
            layouts=layouts_for(covering(tiles), dtype, spec, max_tokens, few_tokens=True),
            epilogue=Epilogue("none", features_first=first),
        )
        own = cls(product, ProductRows(0, tiles.m), tiles.pattern, has_bias=linear.bias is not None)
        own.features_first = first
        own.train(linear.training)
        return own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (..., out_features) of x (..., in_features).

        y is contiguous if no other layer shares the product.

        With `features_first`, x is (in_features, tokens) and y (out_features, tokens). Gate and up of a gated
        unit multiply dense weights if they are called separately.
        """
        rows, product = self.rows, self._modules["product"]  # attribute access would need 1 us
        if self.features_first:
            if x.dim() != 2:
                raise BadInput(f"x must be (in_features, tokens), got {tuple(x.shape)}")
            return product.forward(x.t()).t()
        if rows.interleaved:
            return torch.nn.functional.linear(x, self.dense_weight(), self.bias)
        if rows.size == product.rows:
            return product.forward(x)
        return product.part(x, rows.first, rows.size)

    def extra_repr(self) -> str:
        """Return the text that `print(model)` shows for the module."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.has_bias}"


TileSparseLinear = SparseLinear
"""Earlier name of `SparseLinear`."""


class DenseProduct(nn.Module):  # type: ignore[misc]
    """One dense product for several layers that read the same x; their weights are stacked along M."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.register_buffer("weight", torch.cat([matrix_of(layer) for layer in layers]), persistent=False)
        biases = biases_of(layers)
        self.register_buffer("bias", None if biases is None else torch.cat(biases), persistent=False)
        self.held: tuple[torch.Tensor, torch.Tensor] | None = None

    def part(self, x: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """Return features `first` to `last` (exclusive) of y.

        The product is computed once if all parts are requested in order with the same x.
        """
        held = self.held
        is_same = held is not None and held[0] is x
        y = held[1] if held is not None and is_same else nn.functional.linear(x, self.weight, self.bias)
        self.held = None if last == self.weight.shape[0] else (x, y)
        return y[..., first:last]


class DensePart(nn.Module):  # type: ignore[misc]
    """Replacement, for inference, of one of several dense layers whose weights are stacked into one product.

    It returns the output features of its own layer from the common `DenseProduct`. Its state dict has the
    names and shapes of the original layer.
    """

    def __init__(self, product: DenseProduct, first: int, last: int, layer: nn.Module) -> None:
        super().__init__()
        self.product, self.first, self.last = product, first, last
        self.has_bias, self.transposed = layer.bias is not None, is_transposed(layer)
        self.in_features, self.out_features = product.weight.shape[1], last - first

    @property
    def weight(self) -> torch.Tensor:
        """View of the layer's rows of the weights, in the layout of the original layer."""
        own = self.product.weight[self.first : self.last]
        return own.t() if self.transposed else own

    @property
    def bias(self) -> torch.Tensor | None:
        """View of the layer's bias; None if the layer has none."""
        return self.product.bias[self.first : self.last] if self.has_bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (..., out_features) of x (..., in_features)."""
        return self.product.part(x, self.first, self.last)

    def _named(self) -> dict[str, torch.Tensor]:
        named = {"weight": self.weight, "bias": self.bias}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination.update({prefix + name: each.contiguous() for name, each in self._named().items()})

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *given: Any) -> None:
        own = {name: DenseTensor(tuple(each.shape), each.copy_) for name, each in self._named().items()}
        load_tensors(own, state_dict, prefix, *given)


@checked
def fuse_dense(model: nn.Module) -> nn.Module:
    """Join dense layers into one product, in place: those for queries, keys and values, and gate and up.

    For inference, after `sparsify` and before `torch.compile`; predictions of `--runtime torch` assume such
    models. Layers keep their names in `state_dict`, but are no longer an `nn.Linear`. Return the model.
    """
    found, _ = find_layers(model)
    for group in (each for each in sibling_groups(found) if len(each) > 1):
        product, first = DenseProduct([layer.module for layer in group]), 0
        for name, module in group:
            last = first + matrix_of(module).shape[0]
            model.set_submodule(name, DensePart(product, first, last, module))
            first = last
    return model
