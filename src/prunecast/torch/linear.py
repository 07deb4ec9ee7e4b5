"""`TileSparseLinear`: `torch.nn.Linear` with pruned weights, for inference.

The kernel multiplies B (in_features, tokens), whose tokens of one feature are contiguous, and returns C
(out_features, tokens) in the same layout. The module transposes in these cases:

* `layout="tokens_first"`, the default, accepts and returns (..., features) like `nn.Linear`. The output is a
  transposed view of C, without a copy. The input is transposed by one copy, unless it is such a view itself:
  a sequence of these layers, with elementwise functions between them, copies once at the start.
* `layout="features_first"` accepts (in_features, tokens) and returns (out_features, tokens). There is no copy
  if the number of tokens is a multiple of 8, or if rows already have whole L2 lines.

A copy has rows of whole L2 lines (64 tokens), and plans are made for the padded number: 6304 tokens run as
6336. All results of a call that depend only on the shape and strides of x are cached for later calls
(`prepared.py`), which reduces the host time to a fifth.

The module runs on every GPU with a tile kernel, by the project's operators. `SparseLinear`, which supports
torch's graphs, needs the token-major kernels, and these need wgmma. Without a GPU the module multiplies with
torch's dense product, in fp32: slow, for tests.
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
"""Most combinations of input shape and strides that a module caches."""


class TileSparseLinear(TileModule):
    """y = x A^T + bias with tile-sparse A (out_features, in_features). Made by `from_linear`; no gradients.

    The state holds the kept values and the tiles, and is saved in `state_dict`; loading a state replaces the
    tiles. For every planned number of tokens (see `plan`), the first call packs the weights again. They stay
    on the device until the module is moved or loaded, or until `max_plans` others have been used since. A
    larger `token_step` makes fewer plans if the number of tokens varies.

    A captured CUDA graph needs its plan to stay on the device. Use a separate module for it, or set
    `max_plans` to the number of different token counts.
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
        """Return a sparse module with the kept weights of `linear`, in its dtype and on its device.

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
        max_plans : number of plans on the device; a new one replaces the least recently used one

        Raises
        ------
        BadInput : another dtype, a shape that differs, an unknown layout, step or GPU, or a mask that does
            not follow its pattern
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
        """Return the plan for a call with `tokens` tokens, which are padded by less than `token_step`.

        If the tokens of a feature of x are contiguous, in rows that are aligned to 16 bytes, the plan has
        exactly its tokens, and x is read in place.

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
        """Return y of x in the layout `layout`; the docstring of this file lists the copies.

        Raises
        ------
        BadInput : in training or for an x with a gradient while gradients are enabled; another number of
            features, dtype or device; more tokens than `max_tokens`
        """
        self._check_gradients(x)
        # Everything that determines a call. Refused inputs are never cached.
        key = (x.shape, x.stride(), x.dtype, x.device, self.layout, self.max_tokens, self.token_step)
        call = self._calls.get(key)
        if call is None or not call.takes(x):
            return self._first(x, key)
        return call(x, self._operator(call.planned))

    def _first(self, x: torch.Tensor, key: tuple[Any, ...]) -> torch.Tensor:
        """Run a call whose shape, strides or alignment is new, and cache its preparation."""
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
        """Return y (..., out_features) of x (..., in_features)."""
        bias = None if self.bias is None else self.bias.float()
        y: torch.Tensor = torch.nn.functional.linear(x.float(), self.dense_weight().float(), bias)
        return y.to(x.dtype)

    def _keep(self, key: tuple[Any, ...], call: PreparedCall) -> None:
        if len(self._calls) >= MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        self._calls[key] = call

    def _multiply(self, b: torch.Tensor) -> torch.Tensor:
        """Return C (out_features, tokens) of B (in_features, tokens)."""
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
        """Drop the packed weights on the device and the prepared calls."""
        super()._forget()
        self._calls: dict[tuple[Any, ...], PreparedCall] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy without kernels, device memory and prepared calls."""
        return {**super().__getstate__(), "_calls": {}}

    def extra_repr(self) -> str:
        """Return the text that `print(model)` shows for the module."""
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
