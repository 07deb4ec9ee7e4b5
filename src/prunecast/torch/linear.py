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

It runs on every GPU that a tile kernel has, by the project's operators; `SparseLinear`, which torch's graphs
take, needs the token-major kernels, and those wgmma. Without a GPU the module multiplies with torch's own
product, in fp32: slow, for tests.
"""

from typing import Any

import numpy as np
import torch

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan
from prunecast.patterns import TileMap
from prunecast.torch.kept import Floats, tiles_of
from prunecast.torch.prepared import (
    LINE_TOKENS,
    PreparedCall,
    in_rows,
    padded_tokens,
    planned_tokens,
    prepared_call,
)
from prunecast.torch.tile_module import DTYPES, MOST_PLANS, TileModule, check_dtype

LAYOUTS = ("tokens_first", "features_first")
MOST_DENSE = 0.999
"""Share of weights that are not zero above which a layer is not pruned. Kind: choice."""
MOST_CALLS = 256
"""Most kinds of input (shape, strides) that a module keeps prepared."""


class TileSparseLinear(TileModule):
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
        weights: Floats,
        linear: torch.nn.Linear,
        *,
        gpu: GpuSpec,
        max_tokens: int,
        layout: str,
        token_step: int = LINE_TOKENS,
        max_plans: int = MOST_PLANS,
    ) -> None:
        super().__init__(tiles, weights, linear, gpu)
        self.in_features, self.out_features = tiles.k, tiles.m
        self.token_step, self.max_plans = token_step, max_plans
        self.max_tokens, self.layout = max_tokens, layout

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
            share = np.count_nonzero(weights) / weights.size
            if share > MOST_DENSE:
                raise BadInput(
                    f"wanted a pruned layer, or what to keep of it; {share:.2%} of its weights stay"
                )
        tiles = tiles_of(weights, kept, pattern)
        return cls(
            tiles,
            weights,
            linear,
            gpu=load_gpu(gpu) if isinstance(gpu, str) else gpu,
            max_tokens=max_tokens,
            layout=layout,
            token_step=token_step,
            max_plans=max_plans,
        )

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
        return self._planned(tokens if read_in_place else padded_tokens(tokens, self.token_step))

    def _planned(self, key: int) -> KernelPlan:
        check_dtype("TileSparseLinear", self.values)
        return fastest_plan("stspmm", self.tiles(), key, DTYPES[self.values.dtype], self.gpu)

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
        """Drop what is packed on the device, and prepared calls."""
        super()._forget()
        self._calls: dict[tuple[Any, ...], PreparedCall] = {}

    def __getstate__(self) -> dict[str, Any]:
        """State of a copy without kernels, device memory and prepared calls."""
        return {**super().__getstate__(), "_calls": {}}

    def extra_repr(self) -> str:
        """What `print(model)` shows of the module."""
        features = f"in_features={self.in_features}, out_features={self.out_features}"
        return (
            f"{features}, bias={self.bias is not None}, pattern={self.pattern}, density={self._density:.3f}"
        )


def _check(linear: torch.nn.Linear, layout: str, max_tokens: int, token_step: int, max_plans: int) -> None:
    if layout not in LAYOUTS:
        raise BadInput(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if max_tokens < 1:
        raise BadInput(f"max_tokens must be at least 1, got {max_tokens}")
    if token_step < 1 or token_step % LINE_TOKENS:
        raise BadInput(f"token_step must be a multiple of {LINE_TOKENS}, got {token_step}")
    if max_plans < 1:
        raise BadInput(f"max_plans must be at least 1, got {max_plans}")
    check_dtype("TileSparseLinear", linear.weight)


def _has_kernels(x: torch.Tensor) -> bool:
    return bool(x.is_cuda)
