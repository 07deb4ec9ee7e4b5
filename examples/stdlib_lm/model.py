"""A small GPT-style decoder over bytes; every linear map is a bare matrix without a bias."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; the defaults give 3,344,640 parameters."""

    layers: int = 4
    hidden: int = 256
    heads: int = 8
    feed_forward: int = 1024
    context_bytes: int = 512
    vocabulary: int = 256


class Attention(nn.Module):
    """Causal self-attention with q, k, v and o as four separate (hidden, hidden) matrices."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.q = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.v = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.o = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, bytes, hidden) to the same shape."""
        q, k, v = (self._split_heads(projection(x)) for projection in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(mixed.transpose(1, 2).flatten(2))

    def _split_heads(self, x: Tensor) -> Tensor:
        """(batch, bytes, hidden) to (batch, heads, bytes, hidden / heads)."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """GELU network: ffn1 is `up` (feed_forward, hidden), ffn2 is `down` (hidden, feed_forward)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, bytes, hidden) to the same shape."""
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    """One pre-norm layer: attention, then the feed-forward network, each added to its input."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.hidden, bias=False)
        self.attention = Attention(shape)
        self.ffn_norm = nn.LayerNorm(shape.hidden, bias=False)
        self.ffn = FeedForward(shape)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, bytes, hidden) to the same shape."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))


class LanguageModel(nn.Module):
    """Predicts each next byte; the embedding matrix also maps the last hidden state to logits."""

    def __init__(self, shape: Shape | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape or Shape()
        self.embedding = nn.Embedding(self.shape.vocabulary, self.shape.hidden)
        self.positions = nn.Embedding(self.shape.context_bytes, self.shape.hidden)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(self.shape, dropout) for _ in range(self.shape.layers))
        self.final_norm = nn.LayerNorm(self.shape.hidden, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        """Normal weights of deviation 0.02, smaller in matrices that write to the residual stream."""
        residual_deviation = 0.02 / math.sqrt(2 * self.shape.layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                writes_residual = name.endswith(("attention.o.weight", "ffn.down.weight"))
                nn.init.normal_(parameter, std=residual_deviation if writes_residual else 0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Maps byte values (batch, bytes), int64, to next-byte logits (batch, bytes, vocabulary)."""
        positions = torch.arange(text.shape[1], device=text.device)
        x = self.dropout(self.embedding(text) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.final_norm(x), self.embedding.weight)


def next_byte_loss(model: nn.Module, windows: Tensor) -> Tensor:
    """Mean loss in nats/byte of predicting each byte of the windows (batch, context + 1) but the first."""
    logits = model(windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten())


@torch.no_grad()
def evaluation_loss_nats_per_byte(model: nn.Module, windows: Tensor, batch: int = 32) -> float:
    """Loss over all the windows (count, context + 1), in float32 and without dropout."""
    was_training = model.training
    model.eval()
    losses = [next_byte_loss(model, part) * len(part) for part in windows.split(batch)]
    model.train(was_training)
    return float(torch.stack(losses).sum()) / len(windows)


def bits(nats: float) -> float:
    """Nats expressed in bits."""
    return nats / math.log(2)
