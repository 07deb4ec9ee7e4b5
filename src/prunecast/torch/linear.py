"""`TileSparseLinear`: `torch.nn.Linear` with pruned weights, for inference.

The kernel multiplies B (in_features, tokens), with the tokens of one feature side by side, and gives C
(out_features, tokens). Where the module transposes:

* `layout="tokens_first"`, the default, takes and gives (..., features) like `nn.Linear`. What it gives is C
  seen transposed: nothing is moved. What it takes is transposed by one copy, unless it is such a view itself:
  chains of these layers, with elementwise functions between them, copy once at the start.
* `layout="features_first"` takes (in_features, tokens) and gives (out_features, tokens): no copy at all where
  tokens are a multiple of 8, or rows lie in whole lines already.

A copy has rows of whole lines of L2, 64 tokens, and plans are made for so many: 6304 tokens run as 6336.

What a call finds out from the shape and strides of x is kept for calls like it (`prepared.py`): a fifth of
the host's time is left.

Without a GPU the module multiplies with torch's own product, in fp32: slow, for tests.
"""

from typing import Any

import numpy as np
import torch

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan, Operator, compile
from prunecast.patterns import TileMap
from prunecast.torch.kept import TILE_COLUMNS, Floats, lies_as, place_values, take_values, tiles_of
from prunecast.torch.prepared import (
    LINE_TOKENS,
    PreparedCall,
    in_rows,
    padded_tokens,
    planned_tokens,
    prepared_call,
)

LAYOUTS = ("tokens_first", "features_first")
MOST_DENSE = 0.999
"""Share of weights that are not zero above which a layer is not pruned. Kind: choice."""
MOST_PLANS = 16
"""Most plans that a module keeps on the device, each with packed weights of its own."""
MOST_CALLS = 256
"""Most kinds of input (shape, strides) that a module keeps prepared."""
_DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


class TileSparseLinear(torch.nn.Module):  # type: ignore[misc]
    """y = x A^T + bias with tile-sparse A (out_features, in_features). Made by `from_linear`; no gradients.

    The state holds the kept values and the tiles, and goes through `state_dict`; a module takes the tiles of
    the state that it loads. For every number of tokens that is planned for (see `plan`), the first call packs
    the weights once more, and they stay on the device until the module is moved or loaded, or `max_plans`
    others have been used since. A larger `token_step` makes fewer plans where numbers vary.
    A captured CUDA graph needs its plan to stay: give it a module of its own, or room for all numbers.
    """

    def __init__(
        self,
        tiles: TileMap,
        values: torch.Tensor,
        bias: torch.Tensor | None,
        *,
        gpu: GpuSpec,
        max_tokens: int,
        layout: str,
        token_step: int = LINE_TOKENS,
        max_plans: int = MOST_PLANS,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = tiles.k, tiles.m
        self.token_step, self.max_plans = token_step, max_plans
        self.pattern, self.gpu, self.max_tokens, self.layout = tiles.pattern, gpu, max_tokens, layout
        self.register_buffer("values", values)
        self.register_buffer("bias", bias)
        for name in TILE_COLUMNS:
            self.register_buffer(f"tile_{name}", torch.from_numpy(getattr(tiles, name).copy()))
        self._forget()

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        kept: "TileMap | torch.Tensor | np.ndarray[Any, Any] | None" = None,
        *,
        pattern: str | None = None,
        gpu: str | GpuSpec,
        max_tokens: int,
        layout: str = "tokens_first",
        token_step: int = LINE_TOKENS,
        max_plans: int = MOST_PLANS,
    ) -> "TileSparseLinear":
        """Take over what `linear` keeps, in its dtype and on its device.

        Parameters
        ----------
        linear : fp16 or bf16
        kept : `TileMap`; or a mask (out_features, in_features) that follows `pattern`; None for the weights
            that are not zero
        pattern : pattern string, e.g. `tile-wise:128`; not needed with a `TileMap`
        gpu : name of the GPU to plan for, or its spec
        max_tokens : most tokens of one call
        layout : `tokens_first` or `features_first`
        token_step : more than 64 tokens are padded to a multiple of this; a multiple of 64
        max_plans : kept on the device; the one that was not used for longest makes room for a new one

        Raises
        ------
        BadInput : another dtype, a shape that differs, an unknown layout, step or GPU, or a mask that does
            not bear its pattern out
        """
        _check(linear, layout, max_tokens, token_step, max_plans)
        weights = linear.weight.detach().float().cpu().numpy()
        if isinstance(kept, torch.Tensor):
            kept = kept.detach().cpu().numpy()
        if kept is None:
            _check_is_pruned(weights)
        tiles = tiles_of(weights, kept, pattern)
        values = torch.from_numpy(take_values(tiles, weights)).to(linear.weight)
        bias = None if linear.bias is None else linear.bias.detach().clone()
        spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
        module = cls(
            tiles,
            values,
            bias,
            gpu=spec,
            max_tokens=max_tokens,
            layout=layout,
            token_step=token_step,
            max_plans=max_plans,
        )
        module.train(linear.training)
        return module

    def tiles(self) -> TileMap:
        """The tiles as they stand in the state."""
        columns = {name: getattr(self, f"tile_{name}").cpu().numpy() for name in TILE_COLUMNS}
        return TileMap(m=self.out_features, k=self.in_features, pattern=self.pattern, **columns)

    def dense_weight(self) -> torch.Tensor:
        """A (out_features, in_features), zero where nothing is kept; a new tensor of the module's dtype."""
        weights = place_values(self.tiles(), self.values.float().cpu().numpy())
        return torch.from_numpy(weights).to(self.values)

    def plan(self, tokens: int) -> KernelPlan:
        """The plan that a call with `tokens` tokens runs, of `token_step` or fewer tokens more.

        Where x has its tokens side by side, in rows that begin at multiples of 16 bytes, the plan has just
        its tokens, and x is read as it lies.

        Raises
        ------
        BadInput : more than `max_tokens`, none, or a dtype without a kernel
        """
        if not 1 <= tokens <= self.max_tokens:
            raise BadInput(f"TileSparseLinear takes 1 to {self.max_tokens} tokens, got {tokens}")
        read_in_place = self.layout == "features_first" and tokens % 8 == 0
        return self._plan(tokens if read_in_place else padded_tokens(tokens, self.token_step))

    def _plan(self, tokens: int) -> KernelPlan:
        return fastest_plan("stspmm", self.tiles(), tokens, _dtype(self.values), self.gpu)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Y of x, laid out as `layout` says; see the top of this file for where it copies.

        Raises
        ------
        BadInput : in training or for an x with a gradient while gradients are enabled; another number of
            features, dtype or device; more tokens than `max_tokens`
        """
        self._check_gradients(x)
        # All that decides how a call goes; what has been refused is not among the calls
        key = (x.shape, x.stride(), x.dtype, x.device, self.layout, self.max_tokens, self.token_step)
        call = self._calls.get(key)
        if call is None or not call.takes(x):
            return self._first(x, key)
        return call(x, self._operator(call.planned))

    def _first(self, x: torch.Tensor, key: tuple[Any, ...]) -> torch.Tensor:
        """The first call of its kind, or one that lies as none did; what it found out is kept."""
        self._check_input(x)
        in_order = self.layout == "features_first"
        if not _has_kernels(x):
            return self._on_cpu(x.t()).t() if in_order else self._on_cpu(x)
        b = x if in_order else x.reshape(-1, self.in_features).t()
        c = self._multiply(b)
        y = c if in_order else c.t().reshape(*x.shape[:-1], self.out_features)
        call = prepared_call(x, b, y, planned_tokens(b, self.token_step), self.token_step)
        if call is not None:
            self._keep(key, call)
        return y

    def _on_cpu(self, x: torch.Tensor) -> torch.Tensor:
        """Y (..., out_features) of x (..., in_features)."""
        bias = None if self.bias is None else self.bias.float()
        y: torch.Tensor = torch.nn.functional.linear(x.float(), self.dense_weight().float(), bias)
        return y.to(x.dtype)

    def _keep(self, key: tuple[Any, ...], call: PreparedCall) -> None:
        if len(self._calls) >= MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        self._calls[key] = call

    def _multiply(self, b: torch.Tensor) -> torch.Tensor:
        """C (out_features, tokens) of B (in_features, tokens)."""
        planned = planned_tokens(b, self.token_step)
        c: torch.Tensor = self._operator(planned)(in_rows(b, planned))
        return c[:, : b.shape[1]]

    def _operator(self, tokens: int) -> Operator:
        """The newest in use stands last; the first one leaves where there are too many."""
        found = self._operators.pop(tokens, None)
        if found is None:
            self._make_room()
            found = self._compile(tokens)
        self._operators[tokens] = found
        return found

    def _make_room(self) -> None:
        if len(self._operators) >= self.max_plans:
            if self.values.is_cuda:  # what leaves may still be at work, and its memory is taken at once
                torch.cuda.synchronize(self.values.device)
            del self._operators[next(iter(self._operators))]

    def _compile(self, tokens: int) -> Operator:
        bias = None if self.bias is None else self.bias.float().cpu().numpy()
        weights = self.dense_weight().float().cpu().numpy()
        with torch.cuda.device(self.values.device):
            return compile(self._plan(tokens), weights, bias=bias)

    def _check_gradients(self, x: torch.Tensor) -> None:
        if torch.is_grad_enabled() and (self.training or x.requires_grad):
            raise BadInput("TileSparseLinear has no gradients: call eval() and use torch.no_grad()")

    def _check_input(self, x: torch.Tensor) -> None:
        features_at = 0 if self.layout == "features_first" else -1
        if x.dim() < 1 or x.shape[features_at] != self.in_features or (features_at == 0 and x.dim() != 2):
            wanted = "(in_features, tokens)" if features_at == 0 else "(..., in_features)"
            got = tuple(x.shape)
            raise BadInput(f"x must be {wanted} with {self.in_features} features, got {got}")
        if x.dtype != self.values.dtype or x.device != self.values.device:
            module = f"{self.values.dtype} on {self.values.device}"
            raise BadInput(f"x must be {module} like the module, got {x.dtype} on {x.device}")
        tokens = x.numel() // self.in_features
        if not 1 <= tokens <= self.max_tokens:
            raise BadInput(f"TileSparseLinear takes 1 to {self.max_tokens} tokens, got {tokens}")

    def _forget(self) -> None:
        """What is packed on the device, and how calls went."""
        self._operators: dict[int, Operator] = {}
        self._calls: dict[tuple[Any, ...], PreparedCall] = {}

    def __getstate__(self) -> dict[str, Any]:
        """State of a copy without kernels and device memory: a copy packs anew."""
        return {**self.__dict__, "_operators": {}, "_calls": {}}

    def _apply(self, fn: Any, recurse: bool = True) -> "TileSparseLinear":
        """Moved or cast: what is packed on the device no longer fits; else CUDA graphs may still read it."""
        before = self.values
        super()._apply(fn, recurse)
        if not lies_as(self.values, before):
            self._forget()
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Tiles of the state may differ from these in number; torch compares shapes before it copies."""
        self._forget()
        for name in ("values", *(f"tile_{column}" for column in TILE_COLUMNS)):
            if (loaded := state_dict.get(prefix + name)) is not None:
                own = getattr(self, name)
                setattr(self, name, own.new_empty(loaded.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """For printing a model."""
        kept = self.values.numel() / (self.in_features * self.out_features)
        features = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{features}, bias={self.bias is not None}, pattern={self.pattern}, density={kept:.3f}"


def _check_is_pruned(weights: Floats) -> None:
    share = np.count_nonzero(weights) / weights.size
    if share > MOST_DENSE:
        raise BadInput(f"wanted a pruned layer, or what to keep of it; {share:.2%} of its weights stay")


def _check(linear: torch.nn.Linear, layout: str, max_tokens: int, token_step: int, max_plans: int) -> None:
    if layout not in LAYOUTS:
        raise BadInput(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if max_tokens < 1:
        raise BadInput(f"max_tokens must be at least 1, got {max_tokens}")
    if token_step < 1 or token_step % LINE_TOKENS:
        raise BadInput(f"token_step must be a multiple of {LINE_TOKENS}, got {token_step}")
    if max_plans < 1:
        raise BadInput(f"max_plans must be at least 1, got {max_plans}")
    _dtype(linear.weight)


def _has_kernels(x: torch.Tensor) -> bool:
    return bool(x.is_cuda)


def _dtype(values: torch.Tensor) -> str:
    if values.dtype not in _DTYPES:
        raise BadInput(
            f"TileSparseLinear takes fp16 or bf16 weights, got {values.dtype}: cast the layer first"
        )
    return _DTYPES[values.dtype]
