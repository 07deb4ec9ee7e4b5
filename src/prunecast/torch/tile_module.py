"""`TileModule`: common base of the layers on the project's operators: values, tiles and cached plans."""

from typing import Any, Self

import numpy as np
import torch

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KernelPlan, compile
from prunecast.patterns import TileMap
from prunecast.torch.kept import TILE_COLUMNS, Floats, place_values, take_values

MOST_PLANS = 16
"""Most plans that a module keeps on the device, each with its own packed weights."""
DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


class TileModule(torch.nn.Module):  # type: ignore[misc]
    """Weights (M, K) in tiles, stored in the state, and packed once for each plan that is in use.

    Loading a state also replaces the tiles of the module.
    """

    activation = "none"
    """Name of the activation after the bias."""
    max_plans = MOST_PLANS

    def __init__(self, tiles: TileMap, weights: Floats, like: torch.nn.Module, gpu: GpuSpec) -> None:
        """Store the elements of weights (M, K) inside the tiles, with dtype, device and bias of `like`."""
        super().__init__()
        self.pattern, self.gpu, self._sizes = tiles.pattern, gpu, (tiles.m, tiles.k)
        self.register_buffer("values", torch.from_numpy(take_values(tiles, weights)).to(like.weight))
        self.register_buffer("bias", None if like.bias is None else like.bias.detach().clone())
        for name in TILE_COLUMNS:
            self.register_buffer(f"tile_{name}", torch.from_numpy(getattr(tiles, name).copy()))
        self.train(like.training)
        self._forget()

    def tiles(self) -> TileMap:
        """Return the tile map of the state."""
        columns = {name: getattr(self, f"tile_{name}").cpu().numpy() for name in TILE_COLUMNS}
        return TileMap(m=self._sizes[0], k=self._sizes[1], pattern=self.pattern, **columns)

    def dense_weight(self) -> torch.Tensor:
        """Return A (M, K) with zeros where pruned, a new tensor of the module's dtype."""
        weights = place_values(self.tiles(), self.values.float().cpu().numpy())
        return torch.from_numpy(weights).to(self.values)

    def _planned(self, key: Any) -> KernelPlan:
        """Return the plan of a kind of call."""
        raise NotImplementedError

    def _operator(self, key: Any) -> Any:
        """Return the operator of a kind of call from an LRU cache: the first entry is evicted when it is
        full.
        """
        found = self._operators.pop(key, None)
        if found is None:
            if len(self._operators) >= self.max_plans:
                if self.values.is_cuda:  # the evicted operator may still run; its memory is reused
                    torch.cuda.synchronize(self.values.device)
                del self._operators[next(iter(self._operators))]
            found = self._compile(key)
        self._operators[key] = found
        return found

    def _compile(self, key: Any) -> Any:
        bias = None if self.bias is None else self.bias.float().cpu().numpy()
        weights = self.dense_weight().flatten(1).float().cpu().numpy()
        with torch.cuda.device(self.values.device):
            return compile(self._planned(key), weights, bias=bias, activation=self.activation)

    def _check_gradients(self, x: torch.Tensor) -> None:
        if torch.is_grad_enabled() and (self.training or x.requires_grad):
            raise BadInput(f"{type(self).__name__} has no gradients: call eval() and use torch.no_grad()")

    def _forget(self) -> None:
        """Drop the operators and packed weights on the device."""
        self._operators: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy without kernels and device memory; the copy packs its weights again."""
        return {**self.__dict__, "_operators": {}}

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Move or cast the tensors, and drop packed weights only if this changed the values.

        Otherwise the packed weights stay, because captured CUDA graphs may still read them.
        """
        before = self.values
        super()._apply(fn, recurse)
        if self.values.data_ptr() != before.data_ptr() or self.values.dtype != before.dtype:
            self._forget()
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load a state whose tiles may have other sizes: resize the buffers, because torch
        compares shapes.
        """
        self._forget()
        for name in ("values", *(f"tile_{column}" for column in TILE_COLUMNS)):
            if (loaded := state_dict.get(prefix + name)) is not None:
                own = getattr(self, name)
                setattr(self, name, own.new_empty(loaded.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @property
    def _density(self) -> float:
        return float(self.values.numel() / np.prod(self._sizes))


def check_dtype(name: str, weight: torch.Tensor) -> None:
    """Raise BadInput for weights of a dtype that no kernel supports."""
    if weight.dtype not in DTYPES:
        raise BadInput(f"{name} takes fp16 or bf16 weights, got {weight.dtype}: cast the layer first")
