"""A residual network of ResNet-18's size for small images of one channel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import fuse_conv_bn_eval

from prunecast.plan.conv_grid import PlaneLayout
from prunecast.torch import SparseConv2d
from prunecast.torch.conv import in_planes, planes_behind, planes_of, seen_in, whole_batch

BORDER = 1
"""Zeros around images in planes, in pixels."""


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
        self.norm = nn.BatchNorm2d(outputs) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        inside = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(inside)) + self.norm(self.shortcut(x)))


class ResidualNetwork(nn.Module):
    """A stem of stride 2, stages of two blocks that halve the image and widen, a linear head on the mean."""

    def __init__(self, classes: int, widths: tuple[int, ...] = (64, 128, 256, 512)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, widths[0], 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        sizes = zip((widths[0], *widths), widths, strict=False)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(Block(before, width, 1 + (place > 0)), Block(width, width, 1))
                for place, (before, width) in enumerate(sizes)
            )
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, height, width) to logits (batch, classes)."""
        x = functional.relu(self.norm(self.stem(x)))
        return self.head(self.stages(x).mean(dim=(2, 3)))


class TimedNetwork(nn.Module):
    """The network as it is timed: norms are part of the convolutions before them, sums and ReLU in place.

    Sparse convolutions keep channels outermost and take ReLU into their epilogue; torch compiles the rest,
    among it what stands before the first sparse one with the copy into planes.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = _folded(network.eval()).to(memory_format=torch.channels_last)
        self.blocks = [block for stage in network.stages for block in stage]
        sparse = [number for number, block in enumerate(self.blocks) if _has_sparse(block)]
        self.first, self._add = len(self.blocks), _add_relu_
        for block in self.blocks:
            if isinstance(block.conv1, SparseConv2d):
                block.conv1.activation = "relu"
        if sparse:
            self.first, self._add = sparse[0], torch.compile(_add_relu_)
            self._front, self.forward = torch.compile(self._planes), torch.compiler.disable(self.forward)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, classes) of images (batch, 1, height, width)."""
        if self.first < len(self.blocks):
            planes, layout = self._front(x)
            x = seen_in(planes, PlaneLayout(*layout), x.shape[0])
        else:
            x = self._dense(x)
        for block in self.blocks[self.first :]:
            x = self._block(block, x)
        return self.network.head(x.mean(dim=(2, 3)))

    def _dense(self, x: Tensor) -> Tensor:
        """What the blocks before the first sparse one give."""
        x = self.network.stem(x).relu_()
        for block in self.blocks[: self.first]:
            x = self._block(block, x)
        return x

    def _planes(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """The same in planes, and their layout."""
        x = self._dense(x)
        return planes_of(x, whole_batch(x.shape[0]), BORDER), (*x.shape[1:], BORDER)

    def _block(self, block: nn.Module, x: Tensor) -> Tensor:
        is_sparse = isinstance(block.conv1, SparseConv2d)
        if is_sparse:
            x = in_planes(x, BORDER)
        inside = block.conv1(x)
        y = block.conv2(inside if is_sparse else inside.relu_())
        short = block.shortcut(x)
        planes = planes_behind(y), planes_behind(short)
        if planes[0] is not None and planes[1] is not None and planes[0].shape == planes[1].shape:
            self._add(*planes)  # zeros around images stay zeros
        else:
            self._add(y, short)
        return y


def _has_sparse(block: nn.Module) -> bool:
    return any(isinstance(module, SparseConv2d) for module in block.modules())


def _add_relu_(y: Tensor, x: Tensor) -> None:
    y.add_(x).relu_()


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
