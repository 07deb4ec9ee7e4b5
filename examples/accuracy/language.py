"""The language model of the study: a decoder of 51 M weights over source code and its documentation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from narrow import Counts, Group, Narrowing
from study import Batch, Budget, Scores, Study
from text import Text, read_text
from torch import Tensor, nn
from torch.nn import functional

from prunecast.workload.graph import ModelGraph, Pass
from prunecast.workload.graph.config import graph_of_tensors
from prunecast.workload.graph.shapes import Transformer

DISTILLED = 0.5
"""Share of the loss that is the distance from the dense model."""


@dataclass(frozen=True)
class Sizes:
    """Of the model, its text and its batches."""

    layers: int = 4
    hidden: int = 1024
    heads: int = 16
    feed_forward: int = 4096
    words: int = 8192
    context: int = 512
    windows: int = 32
    judged: int = 768
    text_bytes: int = 160_000_000
    timed_sequences: int = 8


TINY = Sizes(
    layers=1,
    hidden=256,
    heads=4,
    feed_forward=1024,
    words=300,
    context=32,
    windows=4,
    judged=8,
    text_bytes=1_500_000,
    timed_sequences=512,
)


class Attention(nn.Module):
    """Causal attention with queries, keys and values of x."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, nn.Linear(sizes.hidden, sizes.hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Y (batch, tokens, hidden) of x."""
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """fc2(GELU(fc1(x))), under the names that GPT-2 has."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.c_fc = nn.Linear(sizes.hidden, sizes.feed_forward)
        self.act = nn.GELU()
        self.c_proj = nn.Linear(sizes.feed_forward, sizes.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Y of x."""
        return self.c_proj(self.act(self.c_fc(x)))


class Block(nn.Module):
    """Attention and feed-forward, each behind its norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(sizes.hidden), nn.LayerNorm(sizes.hidden)
        self.self_attn, self.mlp = Attention(sizes), FeedForward(sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Y of x."""
        x = x + self.self_attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """Logits (batch, tokens, words) of ids (batch, tokens)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.hidden)
        self.places = nn.Embedding(sizes.context, sizes.hidden)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.hidden)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("o_proj.weight", "c_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * sizes.layers) ** 0.5 if deep else 0.02)

    def hidden(self, ids: Tensor) -> Tensor:
        """The last block's output, normalised."""
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the next word at every place."""
        return functional.linear(self.hidden(ids), self.words.weight)


class Prompt(nn.Module):
    """The timed pass: a prompt is read, and only its last word has logits."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (batch, words) behind ids (batch, tokens)."""
        return functional.linear(self.model.hidden(ids)[:, -1], self.model.words.weight)


def study(tiny: bool) -> Study:
    """The study, or one of the same parts in small that runs on a CPU in seconds."""
    if tiny:
        return study_of(TINY, TINY_BUDGET, (0.9,), (0, 1))
    return study_of(Sizes(), BUDGET, (0.8, 0.7, 0.6), (0, 1, 2))


def study_of(
    sizes: Sizes, budget: Budget, shares: tuple[float, ...] = (0.9,), seeds: tuple[int, ...] = (0, 1, 2)
) -> Study:
    """The study of a model of these sizes."""
    text = cache(lambda: read_text(sizes.words, sizes.text_bytes, sizes.context, sizes.judged))
    return Study(
        name="language",
        build=lambda device: LanguageModel(sizes).to(device),
        batches=lambda seed, device: batches(text(), sizes, seed, device),
        outputs=lambda model, batch: model(batch[0][:, :-1]),
        loss=loss,
        scores=lambda model: scores(model, text()),
        more_is_better=False,
        unit="nats a token",
        target=("re:layers",),
        timed=Prompt,
        example=lambda device: (
            torch.zeros((sizes.timed_sequences, sizes.context), dtype=torch.int64, device=device),
        ),
        tokens=sizes.timed_sequences * sizes.context,
        graph=lambda: graph(sizes),
        narrowing=narrowing(sizes),
        budget=budget,
        shares=shares,
        seeds=seeds,
    )


BUDGET = Budget(train_steps=3000, train_rate=1e-3, tune_steps=250, tune_rate=3e-4)
TINY_BUDGET = Budget(
    train_steps=12,
    train_rate=1e-3,
    tune_steps=6,
    tune_rate=1e-3,
    updates=2,
    calibration_steps=2,
    warmup_steps=2,
)


def batches(text: Text, sizes: Sizes, seed: int, device: str) -> Iterator[Batch]:
    """Random windows (windows, context + 1) of the training files."""
    training = torch.from_numpy(text.training.astype(np.int32)).to(device)
    generator = torch.Generator().manual_seed(seed)
    span = torch.arange(sizes.context + 1, device=device)
    while True:
        starts = torch.randint(len(training) - sizes.context - 1, (sizes.windows, 1), generator=generator)
        yield (training[starts.to(device) + span].long(),)


def loss(logits: Tensor, dense: Tensor | None, batch: Batch) -> Tensor:
    """Cross entropy with the next word; with the dense logits, the mean of that and the divergence."""
    own = functional.cross_entropy(logits.flatten(0, 1).float(), batch[0][:, 1:].flatten())
    if dense is None:
        return own
    wanted, said = (functional.log_softmax(each.flatten(0, 1).float(), -1) for each in (dense, logits))
    apart = functional.kl_div(said, wanted, log_target=True, reduction="batchmean")
    return (1 - DISTILLED) * own + DISTILLED * apart


@torch.no_grad()
def scores(model: nn.Module, text: Text) -> Scores:
    """Mean loss of each held-out window, one window a file."""
    device = next(model.parameters()).device
    windows = torch.from_numpy(text.judged.astype(np.int64)).to(device)
    found = []
    for part in windows.split(32):
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(part[:, :-1])
        losses = functional.cross_entropy(logits.transpose(1, 2).float(), part[:, 1:], reduction="none")
        found.append(losses.mean(1))
    return torch.cat(found).cpu().numpy()


def graph(sizes: Sizes, counts: Counts | None = None) -> ModelGraph:
    """The timed pass as torch launches it, products called as the weights; narrower with fewer units."""
    left = {"heads": sizes.heads, "neurons": sizes.feed_forward} | dict(counts or {})
    width = sizes.hidden // sizes.heads
    shape = Transformer(
        layers=sizes.layers,
        hidden=sizes.hidden,
        heads=left["heads"],
        feed_forward=left["neurons"],
        head_width=width,
        head=sizes.words,
    )
    attention, neurons = left["heads"] * width, left["neurons"]
    shapes = {f"self_attn.{name}_proj": (attention, sizes.hidden) for name in "qkv"}
    shapes |= {"self_attn.o_proj": (sizes.hidden, attention)}
    shapes |= {"mlp.c_fc": (neurons, sizes.hidden), "mlp.c_proj": (sizes.hidden, neurons)}
    matrices = {
        f"layers.{layer}.{name}.weight": each
        for layer in range(sizes.layers)
        for name, each in shapes.items()
    }
    run = Pass(sizes.timed_sequences, sizes.context, all_logits=False)
    found = graph_of_tensors("language", shape, run, matrices, "torch")
    assert found is not None
    return found


FEWEST_NEURONS, NEURONS_STEP = 0.25, 128
"""Share of the neurons that stays at least; one tile of a dense product."""
KEPT_HEADS = (1.0, 0.875, 0.75)


def narrowing(sizes: Sizes) -> Narrowing:
    """Neurons of each feed-forward pair and heads of each attention, and 2:4 in what is left."""
    width, groups = sizes.hidden // sizes.heads, []
    for layer in range(sizes.layers):
        attention, pair = f"layers.{layer}.self_attn", f"layers.{layer}.mlp"
        makers = {f"{attention}.{name}_proj.weight": width for name in "qkv"}
        readers = {f"{attention}.o_proj.weight": width}
        groups.append(Group("heads", sizes.heads, makers, readers, (), (attention, "heads")))
        made, read = {f"{pair}.c_fc.weight": 1}, {f"{pair}.c_proj.weight": 1}
        groups.append(Group("neurons", sizes.feed_forward, made, read))
    fewest = int(FEWEST_NEURONS * sizes.feed_forward)
    steps = range(fewest, sizes.feed_forward + 1, NEURONS_STEP)
    ladders = tuple(
        tuple({"heads": int(sizes.heads * share), "neurons": count} for count in steps)
        for share in KEPT_HEADS
    )
    return Narrowing(
        groups=tuple(groups),
        graph=lambda counts: graph(sizes, counts),
        ladders=ladders,
        inside=((), ("mlp",), ("mlp", "q_proj", "k_proj", "v_proj")),
    )
