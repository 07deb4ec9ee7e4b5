"""`SparseExperts`: replaces a module of transformers whose experts are three-dimensional parameters.

`gate_up_proj` (experts, 2 I, H) and `down_proj` (experts, H, I) are each packed as one matrix, in which the
matrices of all experts are stacked along M, for a grouped launch (`plan/expert_items.py`). On Hopper each
product is one launch (`cuda/experts.py`). The GPU lists its work items from the choices of the router. Calls
therefore do not wait for the GPU, and all of them are legal in CUDA graphs.

    experts(x, chosen, shares, gate_up, gate_up_tiles, down, down_tiles, activation, gpu, plans) -> y

`x` and y are (tokens, H). `chosen` (tokens, experts per token) contains indices of experts, and `shares`, of
the same shape, the router weights. An index that is not below the number of experts adds nothing. On a CPU
the operator unpacks the weights and multiplies one expert after the other.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from prunecast.patterns import TileMap
from prunecast.torch.cuda.experts import prepared_experts, run_experts
from prunecast.torch.epilogue import ACTIVATIONS, ExpertsCall, activation_of
from prunecast.torch.find import Found, random_like
from prunecast.torch.layer_table import known_layer
from prunecast.torch.operators import register
from prunecast.torch.packed import PackedProduct, ProductRows
from prunecast.torch.sparse_linear import DenseTensor, SparseLayer, load_tensors
from prunecast.torch.weight_layouts import unpack

PARTS = ("gate_up_proj", "down_proj")
_ROWS, _HOPPER = 8, 9


class ExpertStack(NamedTuple):
    """A module whose experts can become sparse."""

    name: str
    module: nn.Module

    @property
    def layers(self) -> list[Found]:
        """Gate-up and down parameters as layers, each a matrix in which the experts are stacked along M."""
        return [Found(f"{self.name}.{part}", _Matrix(getattr(self.module, part))) for part in PARTS]


class _Matrix(nn.Module):  # type: ignore[misc]
    """A layer whose weight (experts * M, K) is a view of a three-dimensional parameter (experts, M, K)."""

    def __init__(self, stack: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.bias = stack.detach().flatten(0, 1), None


def find_experts(model: nn.Module) -> list[ExpertStack]:
    """Return the modules that compute gated experts without biases, in the order of the model.

    Modules on a GPU are returned only on Hopper and in 16 bits, since other GPUs have no grouped launch.
    """
    return [ExpertStack(name, each) for name, each in model.named_modules() if _computes_experts(each)]


def _computes_experts(module: nn.Module) -> bool:
    """Return whether a module computes gated experts as `SparseExperts` does, tested with random tokens."""
    stacks = [module._parameters.get(part) for part in PARTS]
    if any(stack is None or stack.dim() != 3 for stack in stacks):
        return False
    wide, down = (stack.detach() for stack in stacks if stack is not None)
    if wide.is_cuda and (
        wide.dtype is torch.float32 or torch.cuda.get_device_capability(wide.device)[0] != _HOPPER
    ):
        return False
    if activation_of(getattr(module, "act_fn", None)) is None:
        return False
    (experts, rows, hidden), others = wide.shape, set(module._parameters) - set(PARTS)
    if others or down.shape != (experts, hidden, rows // 2) or rows % (2 * _ROWS) or hidden % _ROWS:
        return False
    x, share = random_like((3, hidden), wide), random_like((3, 2), wide, 1).abs()
    order = random_like((3, experts), torch.empty(0, device=wide.device), 2)  # fp8 cannot be sorted
    chosen = order.argsort()[:, :2]
    try:
        with torch.no_grad():
            y = module(x, chosen, share).float()
            gate, up = torch.einsum("th,tkrh->tkr", x.float(), wide[chosen].float()).chunk(2, -1)
            parts = torch.einsum("tkr,tkhr->tkh", module.act_fn(gate) * up, down[chosen].float())
            wanted = (parts * share.float()[..., None]).sum(1)
    except Exception:  # the module needs other arguments
        return False
    return bool(y.shape == wanted.shape and (y - wanted).norm() <= 1e-2 * wanted.norm())


def per_token(module: nn.Module, experts: int) -> int:
    """Return the number of experts per token that the module's configuration states, or 2 if it states none.

    Launches are prepared for this number.
    """
    stated = getattr(getattr(module, "config", None), "num_experts_per_tok", None)
    return min(stated if isinstance(stated, int) else 2, experts)


def are_of_experts(tiles: TileMap, experts: int) -> bool:
    """Return whether each tile has rows of one expert only, and the tiles of expert i precede those of i + 1.

    Every row must be in a tile.
    """
    of_row = tiles.row_index // (tiles.m // experts)
    first = np.repeat(of_row[tiles.row_start[:-1].clip(max=of_row.size - 1)], tiles.rows_per_tile)
    return bool(of_row.size == tiles.m and np.all(of_row == first) and np.all(np.diff(of_row) >= 0))


class ExpertMatrix(SparseLayer):
    """Packed weights of a parameter (experts, M, K) that contains one matrix of each expert.

    The state dict contains the dense parameter, in which pruned weights are zero.
    """

    def __init__(self, product: PackedProduct, pattern: str, shape: tuple[int, ...]) -> None:
        super().__init__(product, ProductRows(0, shape[0] * shape[1]), pattern, shape, has_bias=False)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[prefix.removesuffix(".")] = self.dense_weight().detach()

    def load(self, weight: torch.Tensor) -> None:
        """Replace the weights by those of a dense parameter (experts, M, K).

        Raises BadInput if a weight outside of the tiles is not zero.
        """
        self.product.set_weight(weight.flatten(0, 1), self.rows)

    def _load_from_state_dict(self, *_: Any) -> None:
        """Do nothing: `SparseExperts` loads the parameter, because torch loads no tensor with a module's own
        name.
        """


class SparseExperts(nn.Module):  # type: ignore[misc]
    """Gated experts with packed weights; replaces a module of transformers that has the same arguments."""

    def __init__(self, experts: nn.Module, gate_up: ExpertMatrix, down: ExpertMatrix) -> None:
        super().__init__()
        self.num_experts, self.activation = gate_up.weight_shape[0], activation_of(experts.act_fn) or ""
        self.gate_up_proj, self.down_proj = gate_up, down
        self.train(experts.training)

    def prepare(self, tokens: int, per_token: int) -> None:
        """Plan, compile and copy everything that a call with `tokens` tokens launches; do nothing on a
        CPU.
        """
        image = self.gate_up_proj.product.images[0]
        if image.is_cuda:  # only the shapes of x and chosen are read, so that no memory is needed
            x = image.new_empty((1, self.down_proj.weight_shape[1])).expand(tokens, -1)
            chosen = image.new_empty((1, per_token), dtype=torch.int64).expand(tokens, -1)
            prepared_experts(self._call(x, chosen, chosen))

    def _call(self, x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> ExpertsCall:
        gate_up, down = self.gate_up_proj.product, self.down_proj.product
        layers = (gate_up.images, gate_up.tiles, down.images, down.tiles)
        plans = [gate_up.plan, down.plan]
        return ExpertsCall(x, chosen, shares, *layers, self.activation, gate_up.gpu.name, plans)

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the sum over each token's experts of router weight times output, (tokens, H).

        Parameters
        ----------
        hidden_states : (tokens, H)
        top_k_index : (tokens, experts per token) indices of experts; an index that is not below the
            number of experts adds nothing
        top_k_weights : (tokens, experts per token) router weights
        """
        x = hidden_states.to(self.gate_up_proj.product.images[0].dtype)
        y: torch.Tensor = _experts(*self._call(x, top_k_index, top_k_weights))
        return y.to(hidden_states.dtype)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *given: Any) -> None:
        parts: list[ExpertMatrix] = [getattr(self, name) for name in PARTS]
        tensors = {n: DenseTensor(own.weight_shape, own.load) for n, own in zip(PARTS, parts, strict=True)}
        load_tensors(tensors, state_dict, prefix, *given)


def _experts_on_cpu(call: ExpertsCall) -> torch.Tensor:
    call.check()
    each, rows = call.chosen.shape[1], call.x.shape[1]
    layers = [known_layer(plan, tiles, call.x.dtype, call.gpu) for _, tiles, plan in call.products]
    experts = layers[1].tiles.m // rows
    chosen, order = call.chosen.flatten().sort(stable=True)
    ends = torch.searchsorted(chosen, torch.arange(experts, dtype=chosen.dtype), right=True).tolist()
    x = call.x[order // each]
    for (images, _, _), layer, is_first in zip(call.products, layers, (True, False), strict=True):
        weights = unpack(images[0], layer.tiles).unflatten(0, (experts, -1))
        y, first = x.new_zeros((x.shape[0], weights.shape[1])), 0
        for weight, stop in zip(weights, ends, strict=True):
            y[first:stop] = (x[first:stop].float() @ weight.float().t()).to(x.dtype)
            first = stop
        if is_first:
            gate, up = y.float().chunk(2, -1)
            x = (ACTIVATIONS[call.activation](gate) * up).to(x.dtype)
    parts = y[order.argsort()].unflatten(0, (-1, each)).float() * call.shares[..., None].float()
    return parts.sum(1).to(x.dtype)


_experts = register(
    "experts(Tensor x, Tensor chosen, Tensor shares, Tensor[] gate_up, Tensor gate_up_tiles, Tensor[] down, "
    "Tensor down_tiles, str activation, str gpu, int[] plans) -> Tensor",
    _experts_on_cpu,
    run_experts,
    record=ExpertsCall,
)
