"""Transformers of plain torch in place of Hugging Face's, where transformers is not installed.

The same launches: names that `sparsify` knows, attention by `scaled_dot_product_attention` without a mask, a
static cache. Inputs are hidden states, so that no embedding is looked up.
"""

import torch
from torch import nn
from torch.nn import functional

from prunecast.codesign.graph.passes import Pass
from prunecast.codesign.graph.shapes import Transformer

BASE = 10_000.0
"""Base of rotary embeddings' wave lengths."""


class Cache:
    """Keys and values of one block (batch, heads, cached + new, width), of which a pass writes the last."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, cached: int) -> None:
        self.keys, self.values, self.cached = keys, values, cached

    def copied(self, dtype: torch.dtype) -> "Cache":
        """The same in tensors of its own."""
        return Cache(self.keys.to(dtype, copy=True), self.values.to(dtype, copy=True), self.cached)

    def updated(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values, the new ones written."""
        self.keys[:, :, self.cached :] = k
        self.values[:, :, self.cached :] = v
        return self.keys, self.values


class Attention(nn.Module):  # type: ignore[misc]
    """Queries, keys and values of x, attention, and the output."""

    def __init__(self, shape: Transformer) -> None:
        super().__init__()
        self.width, self.causal, self.turns = shape.width // shape.heads, shape.causal, shape.gated
        self.grouped = shape.key_width != shape.width
        bias = not shape.gated
        self.q_proj = nn.Linear(shape.hidden, shape.width, bias=bias)
        self.k_proj = nn.Linear(shape.hidden, shape.key_width, bias=bias)
        self.v_proj = nn.Linear(shape.hidden, shape.key_width, bias=bias)
        self.o_proj = nn.Linear(shape.width, shape.hidden, bias=bias)

    def forward(self, x: torch.Tensor, waves: tuple[torch.Tensor, ...], cache: Cache | None) -> torch.Tensor:
        """Y (batch, tokens, hidden) of x."""
        q, k, v = (self._heads(part(x)) for part in (self.q_proj, self.k_proj, self.v_proj))
        if self.turns:
            q, k = _turned(q, *waves), _turned(k, *waves)
        if cache is not None:
            k, v = cache.updated(k, v)
        causal = self.causal and cache is None
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=self.grouped)
        return self.o_proj(y.transpose(1, 2).flatten(2))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.width)).transpose(1, 2)


class GatedFeedForward(nn.Module):  # type: ignore[misc]
    """down(SiLU(gate(x)) up(x))."""

    def __init__(self, shape: Transformer) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (
            nn.Linear(shape.hidden, shape.feed_forward, bias=False) for _ in range(2)
        )
        self.down_proj = nn.Linear(shape.feed_forward, shape.hidden, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Y of x."""
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class FeedForward(nn.Module):  # type: ignore[misc]
    """fc2(GELU(fc1(x)))."""

    def __init__(self, shape: Transformer) -> None:
        super().__init__()
        self.fc1 = nn.Linear(shape.hidden, shape.feed_forward)
        self.fc2 = nn.Linear(shape.feed_forward, shape.hidden)
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Y of x."""
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):  # type: ignore[misc]
    """Attention and feed-forward, each with its norm before or behind it."""

    def __init__(self, shape: Transformer) -> None:
        super().__init__()
        self.first = shape.norm_first
        self.attention = Attention(shape)
        self.mlp = GatedFeedForward(shape) if shape.gated else FeedForward(shape)
        self.norm1, self.norm2 = _norm(shape), _norm(shape)

    def forward(self, x: torch.Tensor, waves: tuple[torch.Tensor, ...], cache: Cache | None) -> torch.Tensor:
        """Y of x."""
        if self.first:
            x = x + self.attention(self.norm1(x), waves, cache)
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x, waves, cache))
        return self.norm2(x + self.mlp(x))


class PlainTransformer(nn.Module):  # type: ignore[misc]
    """Blocks over hidden states (batch, tokens, hidden)."""

    def __init__(self, shape: Transformer) -> None:
        super().__init__()
        self.shape = shape
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = _norm(shape)

    def forward(self, x: torch.Tensor, caches: list[Cache] | None = None) -> torch.Tensor:
        """Y of x."""
        first = 0 if caches is None else caches[0].cached
        waves = _waves(self.shape, first, x) if self.shape.gated else ()
        for number, block in enumerate(self.blocks):
            x = block(x, waves, None if caches is None else caches[number])
        return self.norm(x) if self.shape.norm_first else x


def new_caches(shape: Transformer, run: Pass, like: torch.Tensor) -> list[Cache]:
    """Random keys and values of `cached` tokens for every block."""
    size = (run.batch, shape.key_heads or shape.heads, run.cached + run.tokens, shape.width // shape.heads)

    def drawn() -> torch.Tensor:
        return like.new_empty(size).normal_()

    return [Cache(drawn(), drawn(), run.cached) for _ in range(shape.layers)]


def _norm(shape: Transformer) -> nn.Module:
    return nn.RMSNorm(shape.hidden, eps=1e-6) if shape.gated else nn.LayerNorm(shape.hidden)


def _waves(shape: Transformer, first: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    half = shape.width // shape.heads // 2
    rates = BASE ** -(torch.arange(half, device=x.device) / half)
    place = torch.arange(first, first + x.shape[1], device=x.device)
    angles = torch.outer(place, rates).repeat(1, 2)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin
