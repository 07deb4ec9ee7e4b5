"""The study of a sentence encoder that others trained: all-MiniLM-L6-v2 finds the gloss of a sentence.

It is tuned on half of WordNet's pairs, and judged on the other half: is a sentence's own gloss the nearest?
RETRIEVAL_INPUTS names the folder that `prepare.py` wrote.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from encoder import Encoder, embed, load_encoder, pooled, random_encoder, states
from narrow import Counts, Group, Narrowing
from safetensors.torch import load_file
from study import Batch, Budget, Scores, Study
from torch import Tensor, nn
from torch.nn import functional

from prunecast.workload.graph import ModelGraph, Pass
from prunecast.workload.graph.config import graph_of_tensors
from prunecast.workload.graph.shapes import Transformer

SPLIT_SEED = 0
"""Seed of the halves, the same in all runs."""
TEMPERATURE = 0.05
APART = 5.0
"""Weight of how far states are from the dense model's, beside the nats of how far rankings are."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of batches, of what is judged, and of the pass that is timed."""

    pairs: int = 96
    others: int = 160
    tuned_tokens: int = 40
    """Most tokens of a text in tuning."""
    judged_at_once: int = 2048
    timed_texts: int = 64
    timed_tokens: int = 128


TINY = Sizes(pairs=4, others=4)


class Half(NamedTuple):
    """Pairs as token numbers (pairs, tokens)."""

    sentences: Tensor
    glosses: Tensor


class Texts(NamedTuple):
    """Both halves, and glosses without a sentence, which only the dense model can say something about."""

    tuning: Half
    held_out: Half
    alone: Tensor


def study(tiny: bool) -> Study:
    """The study, or one of the same parts in small that runs on a CPU in seconds, with random words."""
    sizes = TINY if tiny else Sizes()
    texts = cache(lambda device: random_texts() if tiny else read_texts(inputs(), device))
    built = cache(lambda: random_encoder() if tiny else load_encoder(inputs() / "model"))
    return Study(
        name="retrieval",
        build=lambda device: copy.deepcopy(built()).to(device),
        batches=lambda seed, device: batches(texts(device), sizes, seed),
        outputs=lambda model, batch: states(model, torch.cat(batch)),
        loss=loss,
        scores=lambda model: scores(model, texts(str(next(model.parameters()).device)), sizes),
        more_is_better=True,
        unit="share of sentences whose gloss comes first",
        target=("re:^encoder",),
        timed=Encoder,
        example=lambda device: (
            torch.ones((sizes.timed_texts, sizes.timed_tokens), dtype=torch.int64, device=device),
        ),
        tokens=sizes.timed_texts * sizes.timed_tokens,
        graph=lambda: graph(built(), sizes),
        narrowing=narrowing(built, sizes, 1 if tiny else 6),
        budget=TINY_BUDGET if tiny else BUDGET,
        shares=(0.97,) if tiny else (0.833,),
        seeds=(0, 1) if tiny else (0, 1, 2),
        is_captured=True,
    )


BUDGET = Budget(
    train_steps=300,
    train_rate=1e-4,
    tune_steps=800,
    tune_rate=3e-4,
    weight_decay=0.01,
    calibration_steps=16,
    warmup_steps=12,
)
TINY_BUDGET = Budget(
    train_steps=2,
    train_rate=1e-4,
    tune_steps=4,
    tune_rate=1e-4,
    updates=2,
    calibration_steps=2,
    warmup_steps=2,
)


def inputs() -> Path:
    """The folder with weights and pairs."""
    named = os.environ.get("RETRIEVAL_INPUTS")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / "retrieval"
    if not (folder / "pairs.safetensors").is_file():
        raise SystemExit(f"RETRIEVAL_INPUTS: wanted a folder that prepare.py wrote, got {folder}")
    return folder


def read_texts(folder: Path, device: str) -> Texts:
    """What `prepare.py` wrote, split by synset."""
    stored = load_file(folder / "pairs.safetensors")
    found = {name: ids.to(device).long() for name, ids in stored.items()}
    order = torch.from_numpy(np.random.default_rng(SPLIT_SEED).permutation(len(found["sentences"])))
    halves = [
        Half(found["sentences"][half], found["glosses"][half]) for half in order.to(device).tensor_split(2)
    ]
    more = halves[0].glosses.shape[1] - found["alone"].shape[1]
    return Texts(*halves, functional.pad(found["alone"], (0, more)))


def random_texts() -> Texts:
    """Eight pairs each half; a gloss begins with its sentence."""
    ids = torch.randint(1, 50, (5, 8, 12), generator=torch.Generator().manual_seed(0))
    ids[1, :, :6], ids[3, :, :6] = ids[0, :, :6], ids[2, :, :6]
    return Texts(Half(ids[0], ids[1]), Half(ids[2], ids[3]), ids[4])


def batches(texts: Texts, sizes: Sizes, seed: int) -> Iterator[Batch]:
    """Sentences, their glosses, other glosses. Each pair comes once before one comes again."""
    draw, half = torch.Generator().manual_seed(seed), texts.tuning
    device = texts.alone.device
    while True:
        for chosen in torch.randperm(len(half.sentences), generator=draw).to(device).split(sizes.pairs):
            if len(chosen) == sizes.pairs:
                others = torch.randint(len(texts.alone), (sizes.others,), generator=draw).to(device)
                batch = half.sentences[chosen], half.glosses[chosen], texts.alone[others]
                yield tuple(ids[:, : sizes.tuned_tokens] for ids in batch)


def loss(said: Tensor, dense: Tensor | None, batch: Batch) -> Tensor:
    """Loss of states of all layers (layers, texts, tokens, hidden): contrast without a dense model.

    Beside the dense model: how far the states of every token are from its own, in every layer, and how far
    the ranking of the texts.
    """
    ids = torch.cat(batch)
    vectors = pooled(said[-1], ids)
    if dense is None:
        return _contrast(vectors, len(batch[0]))
    mask = (ids != 0)[..., None]
    apart = ((said.float() - dense.float()).square() * mask).sum((1, 2, 3))
    apart = apart / (dense.float().square() * mask).sum((1, 2, 3))
    return APART * apart.mean() + _ranking_loss(vectors, pooled(dense[-1], ids))


def _contrast(vectors: Tensor, pairs: int) -> Tensor:
    """Cross entropy in nats of telling each sentence's gloss in the batch, and each gloss's sentence."""
    logits = vectors[:pairs] @ vectors[pairs : 2 * pairs].T / TEMPERATURE
    own = torch.arange(pairs, device=logits.device)
    return (functional.cross_entropy(logits, own) + functional.cross_entropy(logits.T, own)) / 2


def _ranking_loss(vectors: Tensor, dense: Tensor) -> Tensor:
    """Kullback-Leibler divergence in nats a text; a text's similarity to itself is left out."""
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    said, wanted = (
        (each @ each.T / TEMPERATURE).masked_fill(itself, -1e4).log_softmax(1) for each in (vectors, dense)
    )
    return functional.kl_div(said, wanted, reduction="batchmean", log_target=True)


def scores(model: nn.Module, texts: Texts, sizes: Sizes) -> Scores:
    """1 for each held-out sentence whose gloss is the nearest of all, else 0."""
    return (ranks(model, texts, sizes) == 1).astype(np.float32)


@torch.no_grad()
def ranks(model: nn.Module, texts: Texts, sizes: Sizes) -> np.ndarray:
    """The place of each held-out sentence's gloss among all, from 1; ties count against the model."""
    sentences, glosses = (_embed_all(model, ids, sizes) for ids in texts.held_out)
    found = []
    for first in range(0, len(sentences), sizes.judged_at_once):
        similar = sentences[first : first + sizes.judged_at_once] @ glosses.T
        own = similar.diagonal(first)
        found.append((similar >= own[:, None]).sum(1))
    return torch.cat(found).cpu().numpy()


def _embed_all(model: nn.Module, ids: Tensor, sizes: Sizes) -> Tensor:
    """Unit vectors (texts, hidden), by fp16 products on a GPU."""
    with torch.autocast(ids.device.type, torch.float16, enabled=ids.is_cuda):
        return torch.cat([embed(model, part) for part in ids.split(sizes.judged_at_once)])


FEWEST_NEURONS, NEURONS_STEP = 0.25, 64


def narrowing(built: Callable[[], nn.Module], sizes: Sizes, layers: int) -> Narrowing:
    """Neurons of each feed-forward pair, as many in all layers."""
    pairs = [f"encoder.layer.{layer}" for layer in range(layers)]
    neurons = 256 if layers == 1 else 1536
    groups = tuple(
        Group(
            "neurons", neurons, {f"{pair}.intermediate.dense.weight": 1}, {f"{pair}.output.dense.weight": 1}
        )
        for pair in pairs
    )
    steps = range(int(FEWEST_NEURONS * neurons), neurons + 1, NEURONS_STEP)
    ladder = tuple({"neurons": count} for count in steps)
    return Narrowing(groups=groups, graph=lambda counts: graph(built(), sizes, counts), ladders=(ladder,))


def graph(model: nn.Module, sizes: Sizes, counts: Counts | None = None) -> ModelGraph:
    """The timed pass as torch launches it, products called as the weights; narrower with fewer neurons."""
    config = model.config
    neurons = (counts or {}).get("neurons", config.intermediate_size)
    shape = Transformer(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        feed_forward=neurons,
        norm_first=False,
        causal=False,
    )
    matrices = {
        name: tuple(neurons if side == config.intermediate_size else side for side in weight.shape)
        for name, weight in model.named_parameters()
        if name.startswith("encoder") and weight.dim() == 2
    }
    run = Pass(sizes.timed_texts, sizes.timed_tokens)
    found = graph_of_tensors("retrieval", shape, run, matrices, "torch")
    assert found is not None
    return found
