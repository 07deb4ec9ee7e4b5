"""`SparseExperts`: in place of a module whose experts are three-dimensional parameters, as transformers has
them.

`gate_up_proj` (experts, 2 I, H) and `down_proj` (experts, H, I) are packed as matrices of all experts below
each other, the form of a grouped launch (`plan/expert_items.py`). Tokens are sorted by expert without
waiting for the GPU. `sparsify` converts experts on a CPU only: there is no kernel yet, so that a GPU would
multiply unpacked weights, one expert after the other.

    grouped_linear(x, ends, image, tiles, rows, gpu, plan) -> y

`x` (places, K) is sorted by expert, `ends` (experts,) has the place after the last one of each expert, and y
(places, rows) is 0 for places after the last end.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from prunecast.patterns import TileMap
from prunecast.torch.find import Found
from prunecast.torch.layer_table import known_layer
from prunecast.torch.packed import PackedProduct, ProductRows
from prunecast.torch.sparse_linear import SparseLayer
from prunecast.torch.weight_layouts import unpack

PARTS = ("gate_up_proj", "down_proj")
_ROWS = 8
_LIBRARY = torch.library.Library("prunecast", "FRAGMENT")
_LIBRARY.define(
    "grouped_linear(Tensor x, Tensor ends, Tensor image, Tensor tiles, int rows, str gpu, int plan) -> Tensor"
)


class ExpertStack(NamedTuple):
    """A module of experts that can become sparse."""

    name: str
    module: nn.Module

    @property
    def layers(self) -> list[Found]:
        """Return its two parameters as layers, each a matrix of all experts below each other."""
        return [Found(f"{self.name}.{part}", _Matrix(getattr(self.module, part))) for part in PARTS]


class _Matrix(nn.Module):  # type: ignore[misc]
    """A three-dimensional parameter as the weight (experts * M, K) of a layer."""

    def __init__(self, stack: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.bias = stack.detach().flatten(0, 1), None


def find_experts(model: nn.Module) -> list[ExpertStack]:
    """Return the modules on a CPU that compute gated experts without biases, in the order of the model."""
    return [ExpertStack(name, each) for name, each in model.named_modules() if _computes_experts(each)]


def _computes_experts(module: nn.Module) -> bool:
    """Return whether a module computes what `SparseExperts` does, tried with random tokens."""
    stacks = [module._parameters.get(part) for part in PARTS]
    if any(stack is None or stack.dim() != 3 or stack.device.type != "cpu" for stack in stacks):
        return False
    wide, down = (stack.detach() for stack in stacks if stack is not None)
    (experts, rows, hidden), others = wide.shape, set(module._parameters) - set(PARTS)
    if others or down.shape != (experts, hidden, rows // 2) or rows % (2 * _ROWS) or hidden % _ROWS:
        return False
    own = torch.Generator().manual_seed(0)  # do not change the user's random state
    x = torch.randn(3, hidden, generator=own).to(wide.dtype)
    chosen = torch.stack([torch.randperm(experts, generator=own)[:2] for _ in range(3)])
    share = torch.rand(chosen.shape, generator=own).to(wide.dtype)
    try:
        with torch.no_grad():
            y = module(x, chosen, share).float()
            gate, up = torch.einsum("th,tkrh->tkr", x.float(), wide[chosen].float()).chunk(2, -1)
            parts = torch.einsum("tkr,tkhr->tkh", module.act_fn(gate) * up, down[chosen].float())
            wanted = (parts * share.float()[..., None]).sum(1)
    except Exception:  # with other arguments, or another activation
        return False
    return bool(y.shape == wanted.shape and (y - wanted).norm() <= 1e-2 * wanted.norm())


def crosses_experts(tiles: TileMap, experts: int) -> bool:
    """Return whether a tile has rows of two experts."""
    of_row = tiles.row_index // (tiles.m // experts)
    first = np.repeat(of_row[tiles.row_start[:-1].clip(max=of_row.size - 1)], tiles.rows_per_tile)
    return bool(np.any(of_row != first))


class ExpertMatrix(SparseLayer):
    """One parameter of all experts, packed; its state is the dense parameter with zeros."""

    def __init__(self, product: PackedProduct, pattern: str, shape: tuple[int, ...]) -> None:
        super().__init__(product, ProductRows(0, shape[0] * shape[1]), pattern, shape, has_bias=False)

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Return y (places, M) of x (places, K), sorted by expert, see the module's head."""
        product = self.product
        image, rows = product.images[0], self.weight_shape[1]
        y: torch.Tensor = torch.ops.prunecast.grouped_linear.default(
            x.to(image.dtype), ends, image, product.tiles, rows, product.gpu.name, product.plan
        )
        return y

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[prefix.removesuffix(".")] = self.dense_weight().detach()

    def load(self, weight: torch.Tensor) -> None:
        """Replace the values by those of a dense parameter. BadInput : values outside of the tiles."""
        self.product.set_weight(weight.detach().flatten(0, 1), self.rows)

    def _load_from_state_dict(self, *_: Any) -> None:
        """Load nothing: torch gives a module no tensor that has the module's own name."""


class SparseExperts(nn.Module):  # type: ignore[misc]
    """Gated experts with packed weights, in place of a module of transformers with the same arguments."""

    def __init__(self, experts: nn.Module, gate_up: ExpertMatrix, down: ExpertMatrix) -> None:
        super().__init__()
        self.num_experts, self.act_fn = gate_up.weight_shape[0], experts.act_fn
        self.gate_up_proj, self.down_proj = gate_up, down
        self.train(experts.training)

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the sum of the outputs of each token's experts, (tokens, H).

        Parameters
        ----------
        hidden_states : (tokens, H)
        top_k_index, top_k_weights : (tokens, experts per token); an index beyond the experts adds nothing
        """
        each = top_k_index.shape[-1]
        chosen, order = top_k_index.flatten().sort(stable=True)
        last = torch.arange(self.num_experts, device=chosen.device, dtype=chosen.dtype)
        ends = torch.searchsorted(chosen, last, right=True)
        gate, up = self.gate_up_proj(hidden_states[order // each], ends).chunk(2, -1)
        y = self.down_proj(self.act_fn(gate) * up, ends)
        y = y[order.argsort()].unflatten(0, (-1, each)) * top_k_weights[..., None]
        return y.sum(1).to(hidden_states.dtype)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for name in PARTS:
            part: ExpertMatrix = getattr(self, name)
            weight = state_dict.get(prefix + name)
            if weight is None:
                missing_keys.append(prefix + name)
            elif tuple(weight.shape) != part.weight_shape:
                sizes = f"{tuple(weight.shape)}, wanted {part.weight_shape}"
                error_msgs.append(f"size mismatch for {prefix}{name}: {sizes}")
            else:
                part.load(weight)
        wanted = {prefix + name for name in PARTS}
        unexpected_keys += [
            key for key in state_dict if key.startswith(prefix) and key not in wanted
        ] * strict


def _grouped_linear(
    x: torch.Tensor,
    ends: torch.Tensor,
    image: torch.Tensor,
    tiles: torch.Tensor,
    rows: int,
    gpu: str,
    plan: int,
) -> torch.Tensor:
    weights = unpack(image, known_layer(plan, tiles, x.dtype, gpu).tiles).unflatten(0, (-1, rows))
    y, first = x.new_zeros((x.shape[0], rows)), 0
    for weight, stop in zip(weights, ends.tolist(), strict=True):
        y[first:stop] = (x[first:stop].float() @ weight.float().t()).to(x.dtype)
        first = stop
    return y


def _fake_grouped_linear(x: torch.Tensor, *given: Any) -> torch.Tensor:
    return x.new_empty((x.shape[0], given[3]))


_LIBRARY.impl("grouped_linear", _grouped_linear, "CPU")
_LIBRARY.impl("grouped_linear", _grouped_linear, "CUDA")
torch.library.register_fake("prunecast::grouped_linear", _fake_grouped_linear, lib=_LIBRARY)
