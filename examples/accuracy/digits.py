"""Handwritten digits of scikit-learn (8x8 pixels) and a small residual network for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from settings import Digits
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 10
GREATEST = 16.0
"""Pixels run from 0 to this."""


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut, which is a 1x1 convolution where the size changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        changes = inputs != outputs or stride != 1
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        inside = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(inside)) + self.shortcut(x))


class ResidualNetwork(nn.Module):
    """A stem, stages of blocks that halve the image and widen, and a linear head on the mean pixel."""

    def __init__(self) -> None:
        super().__init__()
        widths = Digits.widths
        self.stem = nn.Conv2d(1, widths[0], 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        self.stages = nn.Sequential(*(_stage(i) for i in range(len(widths))))
        self.head = nn.Linear(widths[-1], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, 8, 8) to logits (batch, 10)."""
        x = functional.relu(self.norm(self.stem(x)))
        return self.head(self.stages(x).mean(dim=(2, 3)))


def _stage(index: int) -> nn.Sequential:
    width, before = Digits.widths[index], Digits.widths[max(index - 1, 0)]
    first = Block(before, width, 1 if index == 0 else 2)
    return nn.Sequential(first, *(Block(width, width, 1) for _ in range(Digits.blocks - 1)))


class Images(NamedTuple):
    """Both splits on one device: pixels (count, 1, 8, 8) from 0 to 1, and labels (count,)."""

    training: Tensor
    training_labels: Tensor
    held_out: Tensor
    held_out_labels: Tensor


def images(seed: int, device: torch.device) -> Images:
    """`Digits.train_images` random images to train on, the rest to judge."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    pixels = torch.from_numpy(digits.images[order] / GREATEST).float()[:, None].to(device)
    labels = torch.from_numpy(digits.target[order]).long().to(device)
    cut = Digits.train_images
    return Images(pixels[:cut], labels[:cut], pixels[cut:], labels[cut:])


def batches(data: Images, batch: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Random training images, shifted by up to a pixel, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = torch.randint(len(data.training), (batch,), generator=generator)
        down, right = (int(shift) for shift in torch.randint(-1, 2, (2,), generator=generator))
        pixels = data.training[chosen.to(data.training.device)].roll((down, right), dims=(2, 3))
        yield pixels, data.training_labels[chosen.to(data.training.device)]


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross-entropy in nats."""
    pixels, labels = batch
    return functional.cross_entropy(model(pixels).float(), labels)


@torch.no_grad()
def judge(model: nn.Module, data: Images) -> dict[str, float]:
    """Loss and accuracy on the held-out images, in float32."""
    logits = model.eval()(data.held_out)
    right = (logits.argmax(dim=1) == data.held_out_labels).float().mean()
    return {
        "loss": round(float(functional.cross_entropy(logits, data.held_out_labels)), 6),
        "accuracy": round(float(right), 6),
    }
