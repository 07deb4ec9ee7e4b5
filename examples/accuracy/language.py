"""The language model of the study: text, model and losses of `examples/stdlib_lm`, at BERT-Small's size."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from settings import Language
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[1] / "stdlib_lm"))

from corpus import (
    Corpus,
    bytes_tensor,
    even_windows,
    random_windows,
    read_corpus,
)
from model import LanguageModel, Shape, evaluation_loss_nats_per_byte, next_byte_loss

__all__ = [
    "LanguageModel",
    "Text",
    "batches",
    "build",
    "next_byte_loss",
    "read_corpus",
    "text_of",
    "training_loss",
    "validation_loss",
]


class Text(NamedTuple):
    """All bytes to train on, and fixed windows of both splits, on one device."""

    training: Tensor
    training_windows: Tensor
    validation_windows: Tensor


def shape() -> Shape:
    """Sizes of the model."""
    return Shape(
        layers=Language.layers,
        hidden=Language.hidden,
        heads=Language.heads,
        feed_forward=Language.feed_forward,
    )


def build(dropout: float, device: torch.device) -> LanguageModel:
    """A model with initial weights."""
    return LanguageModel(shape(), dropout).to(device)


def text_of(corpus: Corpus, device: torch.device) -> Text:
    """The corpus on the device."""
    training = bytes_tensor(corpus.training, device)
    validation = bytes_tensor(corpus.validation, device)
    length_bytes = shape().context_bytes + 1
    return Text(
        training,
        even_windows(training, Language.evaluation_windows // 2, length_bytes),
        even_windows(validation, Language.evaluation_windows, length_bytes),
    )


def batches(text: Text, batch: int, seed: int) -> Iterator[Tensor]:
    """Random windows (batch, context + 1) without end."""
    generator = torch.Generator(text.training.device).manual_seed(seed)
    while True:
        yield random_windows(text.training, batch, shape().context_bytes + 1, generator)


def validation_loss(model: LanguageModel, text: Text) -> float:
    """Nats per byte on the fixed held-out windows, in float32 without dropout."""
    return round(evaluation_loss_nats_per_byte(model, text.validation_windows), 6)


def training_loss(model: LanguageModel, text: Text) -> float:
    """The same on the fixed windows of the training files."""
    return round(evaluation_loss_nats_per_byte(model, text.training_windows), 6)
