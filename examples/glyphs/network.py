"""A residual network of ResNet-18's size for small images of one channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import fuse_conv_bn_eval


class Block(nn.Module):
    """Two 3x3 convolutions, `inner` channels between them, around a shortcut, which is a 1x1 convolution
    where the size changes.
    """

    def __init__(self, inputs: int, inner: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inner, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        changes = inputs != outputs or stride != 1
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else nn.Identity()
        self.norm = nn.BatchNorm2d(outputs) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        inside = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(inside)) + self.norm(self.shortcut(x)))


class ResidualNetwork(nn.Module):
    """A stem of stride 2, stages of two blocks that halve the image and widen, a linear head on the mean.

    Blocks have `inner` channels between their convolutions, by stage; as many as the stage by default.
    """

    def __init__(
        self,
        classes: int,
        widths: tuple[int, ...] = (64, 128, 256, 512),
        inner: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, widths[0], 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        sizes = zip((widths[0], *widths), inner or widths, widths, strict=False)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(Block(before, between, width, 1 + (place > 0)), Block(width, between, width, 1))
                for place, (before, between, width) in enumerate(sizes)
            )
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, height, width) to logits (batch, classes)."""
        x = functional.relu(self.norm(self.stem(x)))
        return self.head(self.stages(x).mean(dim=(2, 3)))


class TimedNetwork(nn.Module):
    """The network as it is timed: norms are part of the convolutions before them, sums and ReLU in place.

    A network that `sparsify` has rewritten is called as it is.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.is_sparse = hasattr(network, "planes_graph")
        self.network = network
        if not self.is_sparse:
            self.network = _folded(network.eval()).to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, classes) of images (batch, 1, height, width)."""
        if self.is_sparse:
            return self.network(x)
        x = self.network.stem(x).relu_()
        for stage in self.network.stages:
            for block in stage:
                x = block.conv2(block.conv1(x).relu_()).add_(block.shortcut(x)).relu_()
        return self.network.head(x.mean(dim=(2, 3)))


def _folded(network: nn.Module) -> nn.Module:
    _fold(network, "stem", "norm")
    for block in (block for stage in network.stages for block in stage):
        _fold(block, "conv1", "norm1")
        _fold(block, "conv2", "norm2")
        _fold(block, "shortcut", "norm")
    return network


def _fold(module: nn.Module, conv: str, norm: str) -> None:
    if isinstance(getattr(module, norm), nn.BatchNorm2d):
        setattr(module, conv, fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm)))
        setattr(module, norm, nn.Identity())
