"""Epilogue of a product (activation, gated unit, layout of y), and the arguments of `prunecast::linear`,
`experts` and `fp8_linear`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from prunecast.errors import BadInput

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "gelu-tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}
"""Name of an activation in the kernels -> function that computes it in torch."""
GATED_ROWS = 8
"""Group size of the interleaved rows of a gated unit: 8 rows of gate, then 8 rows of up. Kind: CUDA source,
`activation.cuh`.
"""
_SAME = 1e-5
"""Activations count as equal if they differ by at most this for x from -6 to 6. GELU and its tanh form differ
by 5e-4.
"""


class Epilogue(NamedTuple):
    """Operations that a kernel computes after adding the bias."""

    activation: str = "none"
    glu: bool = False
    """Whether the epilogue is a gated unit: A contains rows of gate and up, interleaved by 8; y is
    activation(gate) * up.
    """
    features_first: bool = False
    """Whether y is written transposed, (rows, columns of x_t), which the next product reads directly."""


PLAIN = Epilogue()


def activated(sums: torch.Tensor, epilogue: Epilogue) -> torch.Tensor:
    """Apply an epilogue to sums (tokens, M) with torch operations; return y (tokens, rows).

    `rows` is M / 2 for a gated unit, else M. Raise BadInput for an unknown activation.
    """
    if epilogue.activation not in ACTIVATIONS:
        raise BadInput(f"activation must be one of {', '.join(ACTIVATIONS)}, got {epilogue.activation!r}")
    function = ACTIVATIONS[epilogue.activation]
    if not epilogue.glu:
        return function(sums)
    halves = sums.unflatten(-1, (-1, 2, GATED_ROWS))
    return (function(halves[..., 0, :]) * halves[..., 1, :]).flatten(-2)


def activation_of(function: Any) -> str | None:
    """Return the name in `ACTIVATIONS` of a function or module that computes one of them; else None."""
    x = torch.linspace(-6.0, 6.0, 97)
    try:
        with torch.no_grad():
            y = function(x.clone())  # it may work in place
    except Exception:  # not a function of one tensor
        return None
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        return None
    for name, known in ACTIVATIONS.items():
        if torch.allclose(y, known(x), rtol=0.0, atol=_SAME):
            return name
    return None


def interleaved(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Interleave the rows of gate and up, each (M, ...), in groups of 8; return (2 M, ...)."""
    pair = [each.unflatten(0, (-1, GATED_ROWS)) for each in (gate, up)]
    return torch.stack(pair, 1).flatten(0, 2)


def strides_seen_as(shape: Sequence[int], columns: int) -> tuple[int, ...]:
    """Return the strides of the transposed view (*shape, rows) of a contiguous tensor (rows, columns).

    The tensor has one token per column; `shape` are the dimensions of the tokens.
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return (*reversed(strides), columns)


def changes_of(epilogue: Epilogue, *, adds: bool) -> dict[str, int]:
    """Return the preprocessor macros of a kernel that writes y in the layout of the epilogue.

    With `adds`, the kernel adds the product to the values in y.
    """
    if epilogue.features_first:
        return {"GLU": int(epilogue.glu)}
    return {"TOKEN_MAJOR": 1, **({"RESIDUAL": 1} if adds else {})}


class PackedLayer(NamedTuple):
    """Packed weights, tiles, bias, GPU and epilogue of a product, as its launches need them."""

    images: list[torch.Tensor]
    tiles: torch.Tensor
    bias: torch.Tensor | None
    gpu: str
    """Name of the GPU to plan for."""
    plan: int
    """Key of the product in the table of layers, see `layer_table.py`."""
    epilogue: Epilogue


class LinearCall(NamedTuple):
    """Arguments of `prunecast::linear`, in the order of the operator."""

    x_t: torch.Tensor
    images: list[torch.Tensor]
    tiles: torch.Tensor
    bias: torch.Tensor | None
    tokens: int
    rows: int
    activation: str
    glu: bool
    features_first: bool
    gpu: str
    plan: int

    @property
    def epilogue(self) -> Epilogue:
        """The epilogue of the product."""
        return Epilogue(self.activation, self.glu, self.features_first)

    @property
    def layer(self) -> PackedLayer:
        """The product without x: packed weights, tiles, bias, GPU and epilogue."""
        return PackedLayer(self.images, self.tiles, self.bias, self.gpu, self.plan, self.epilogue)

    def new_y(self) -> torch.Tensor:
        """Allocate y without initialising it: (tokens, rows), or (rows, columns of x_t) with
        `features_first`.
        """
        columns = self.x_t.shape[1]
        return self.x_t.new_empty((self.rows, columns) if self.features_first else (self.tokens, self.rows))


def check_sum(y: torch.Tensor, *, tokens: int, rows: int, dtype: torch.dtype) -> None:
    """Raise BadInput unless y is contiguous, has this dtype and has `tokens` x `rows` elements."""
    if y.dtype != dtype or y.numel() != tokens * rows:
        got = f"{y.dtype} {tuple(y.shape)}"
        raise BadInput(f"wanted a sum of {dtype} ({tokens}, {rows}) like y, got {got}")
    if not y.is_contiguous():
        raise BadInput(f"y must be contiguous, got strides {y.stride()}")


class ExpertsCall(NamedTuple):
    """Arguments of `prunecast::experts`, in the order of the operator."""

    x: torch.Tensor
    chosen: torch.Tensor
    shares: torch.Tensor
    gate_up: list[torch.Tensor]
    gate_up_tiles: torch.Tensor
    down: list[torch.Tensor]
    down_tiles: torch.Tensor
    activation: str
    gpu: str
    plans: list[int]

    @property
    def products(self) -> tuple[tuple[list[torch.Tensor], torch.Tensor, int], ...]:
        """(packed weights, tile tensor, key in the table of layers) of the gate-up and the down product."""
        gate_up, down = self.plans
        return (self.gate_up, self.gate_up_tiles, gate_up), (self.down, self.down_tiles, down)

    def new_y(self) -> torch.Tensor:
        """Allocate y (tokens, features) without initialising it."""
        return torch.empty_like(self.x)

    def check(self) -> None:
        """Raise BadInput if x, `chosen` and `shares` have wrong shapes, or x has another dtype than the
        weights.
        """
        if self.x.dim() != 2 or self.chosen.shape != self.shares.shape or len(self.chosen) != len(self.x):
            shapes = [tuple(each.shape) for each in (self.x, self.chosen, self.shares)]
            raise BadInput(f"wanted x (tokens, features), and experts and shares of each token, got {shapes}")
        if self.x.dtype != self.gate_up[0].dtype:
            raise BadInput(f"x must be {self.gate_up[0].dtype} like the weights, got {self.x.dtype}")


class Fp8Call(NamedTuple):
    """Arguments of `prunecast::fp8_linear`, in the order of the operator."""

    x: torch.Tensor
    scales: torch.Tensor
    image: torch.Tensor
    row_scales: torch.Tensor
    """(M,) fp32 scales, stored as int32 bits so that casts of a model do not change them."""
    tiles: torch.Tensor
    bias: torch.Tensor | None
    rows: int
    activation: str
    glu: bool
    dtype: torch.dtype
    gpu: str
    plan: int

    @property
    def epilogue(self) -> Epilogue:
        """The epilogue of the product."""
        return Epilogue(self.activation, self.glu)

    @property
    def layer(self) -> PackedLayer:
        """The product without x: packed weights, tiles, bias, GPU and epilogue, but not the row scales."""
        return PackedLayer([self.image], self.tiles, self.bias, self.gpu, self.plan, self.epilogue)

    def new_y(self) -> torch.Tensor:
        """Allocate y (tokens, rows) without initialising it."""
        return self.x.new_empty((self.x.shape[0], self.rows), dtype=self.dtype)
