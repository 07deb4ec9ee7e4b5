"""The study of a convolutional network: which character is it? Glyphs of many fonts, distorted and noisy.

A network of ResNet-18's size, trained from its first weights on images that are made as they are needed;
20,000 others, the same for every model, judge it. The first layer, of one channel, and the last stay dense.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from draw import Distortion, distort, draw
from narrow import Group, Narrowing
from network import ResidualNetwork, TimedNetwork
from study import Batch, Budget, Scores, Study
from torch import Tensor, nn
from torch.nn import functional

from prunecast.workload.graph import ModelGraph
from prunecast.workload.graph.runtimes import rewritten
from prunecast.workload.torch_model.read_module import read_network

DISTILLED = 0.7
"""Share of the loss that is the distance from the dense model."""
WARMTH = 2.0
"""What logits are divided by for that distance."""
JUDGED_SEED = 7
CLASSES = 389
"""Characters that differ, of those that all faces have."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the network, its images and batches."""

    widths: tuple[int, ...] = (64, 128, 256, 512)
    pixels: int = 32
    characters: int = 1000
    images: int = 512
    judged: int = 20_000
    timed_images: int = 1024


TINY = Sizes(widths=(64, 128), characters=12, images=8, judged=16, timed_images=256)


class Cells(NamedTuple):
    """Drawn glyphs (glyphs, CELL, CELL) and their characters' numbers (glyphs,)."""

    cells: Tensor
    labels: Tensor


class Judged(NamedTuple):
    """Images that judge, and their characters' numbers."""

    images: Tensor
    labels: Tensor


def study(tiny: bool) -> Study:
    """The study, or one of the same parts in small that runs on a CPU in seconds."""
    sizes = TINY if tiny else Sizes()
    cells = cache(lambda device: read_cells(sizes, device))
    judged = cache(lambda device: judge_with(cells(device), sizes))
    classes = cache(lambda: int(cells("cpu").labels.max()) + 1)
    return Study(
        name="glyphs",
        build=lambda device: ResidualNetwork(classes(), sizes.widths).to(
            device, memory_format=torch.channels_last
        ),
        batches=lambda seed, device: batches(cells(device), sizes, seed),
        outputs=lambda model, batch: model(batch[0]),
        loss=loss,
        scores=lambda model: scores(model, judged(str(next(model.parameters()).device)), sizes),
        more_is_better=True,
        unit="share of characters that are told",
        target=(r"re:^stages\.",),
        timed=TimedNetwork,
        example=lambda device: (noise(sizes).to(device),),
        tokens=sizes.timed_images,
        graph=lambda: graph(sizes),
        narrowing=narrowing(sizes),
        budget=TINY_BUDGET if tiny else BUDGET,
        shares=(0.6,) if tiny else (0.75,),
        seeds=(0, 1) if tiny else (0, 1, 2),
        is_captured=True,
    )


BUDGET = Budget(train_steps=2400, train_rate=2e-3, tune_steps=600, tune_rate=5e-4, weight_decay=0.05)
TINY_BUDGET = Budget(
    train_steps=3,
    train_rate=1e-3,
    tune_steps=4,
    tune_rate=1e-3,
    updates=2,
    calibration_steps=2,
    warmup_steps=2,
)


def read_cells(sizes: Sizes, device: str) -> Cells:
    """All glyphs, drawn once a machine: they are kept in the folder of temporary files."""
    path = Path(tempfile.gettempdir()) / f"prunecast-glyphs-{sizes.characters}.npy"
    if not path.exists():
        unfinished = path.with_name(f"{os.getpid()}-{path.name}")
        np.save(unfinished, draw(sizes.characters, min(os.cpu_count() or 1, 16)).cells)
        unfinished.replace(path)
    cells = torch.from_numpy(np.load(path, allow_pickle=False)).to(device)
    labels = torch.arange(len(cells), device=device).repeat_interleave(cells.shape[1])
    return Cells(cells.flatten(0, 1), labels)


def batches(cells: Cells, sizes: Sizes, seed: int) -> Iterator[Batch]:
    """Images (images, 1, pixels, pixels) and their characters' numbers."""
    device = cells.cells.device
    draw_from = torch.Generator(device).manual_seed(seed)
    while True:
        chosen = torch.randint(len(cells.cells), (sizes.images,), generator=draw_from, device=device)
        images = distort(cells.cells[chosen], sizes.pixels, Distortion(), draw_from)
        yield images.contiguous(memory_format=torch.channels_last), cells.labels[chosen]


def judge_with(cells: Cells, sizes: Sizes) -> Judged:
    """The same images for every model."""
    source = batches(cells, sizes, JUDGED_SEED)
    found = [next(source) for _ in range(-(-sizes.judged // sizes.images))]
    images, labels = (torch.cat(parts)[: sizes.judged] for parts in zip(*found, strict=True))
    return Judged(images, labels)


def noise(sizes: Sizes) -> Tensor:
    """The timed images, the same ones at every call: passes of several models are compared."""
    shape = (sizes.timed_images, 1, sizes.pixels, sizes.pixels)
    return torch.randn(shape, generator=torch.Generator().manual_seed(JUDGED_SEED)).half()


def loss(logits: Tensor, dense: Tensor | None, batch: Batch) -> Tensor:
    """Cross entropy; with the dense model's logits also the divergence from them."""
    own = functional.cross_entropy(logits.float(), batch[1])
    if dense is None:
        return own
    said, wanted = (functional.log_softmax(each.float() / WARMTH, 1) for each in (logits, dense))
    apart = functional.kl_div(said, wanted, log_target=True, reduction="batchmean") * WARMTH**2
    return (1 - DISTILLED) * own + DISTILLED * apart


@torch.no_grad()
def scores(model: nn.Module, judged: Judged, sizes: Sizes) -> Scores:
    """1 for each image whose character is told, else 0."""
    found = []
    for images, labels in zip(judged.images.split(2048), judged.labels.split(2048), strict=True):
        with torch.autocast(images.device.type, torch.float16, enabled=images.is_cuda):
            found.append(model(images).argmax(1) == labels)
    return torch.cat(found).float().cpu().numpy()


RUNGS = ((4, 4, 4, 4), (2, 4, 4, 4), (2, 2, 4, 4), (2, 2, 2, 4), (2, 2, 2, 2), (1, 1, 1, 1))
"""What the channels of each stage are divided by, narrowest first. cuDNN is no faster at widths
between these: three eighths of the channels take longer than half of them."""


def narrowing(sizes: Sizes) -> Narrowing:
    """Channels between the two convolutions of each block, the same share of them in all stages."""
    groups = []
    for stage, width in enumerate(sizes.widths):
        for place in range(2):
            block = f"stages.{stage}.{place}"
            made, read = {f"{block}.conv1.weight": 1}, {f"{block}.conv2.weight": 9}
            groups.append(Group(f"stage {stage}", width, made, read, (f"{block}.norm1",)))
    ladder = tuple(
        {
            f"stage {stage}": width // by
            for stage, (width, by) in enumerate(zip(sizes.widths, rung, strict=False))
        }
        for rung in RUNGS
    )
    return Narrowing(
        groups=tuple(groups), graph=lambda counts: graph(sizes, *counts.values()), ladders=(ladder,)
    )


@cache
def graph(sizes: Sizes, *counts: int) -> ModelGraph:
    """The timed pass as torch runs it, products called as the weights.

    `counts` are channels between the convolutions of a block, by stage, where these are fewer than it has.
    """
    network = ResidualNetwork(CLASSES, sizes.widths, counts)
    sides = (sizes.pixels, sizes.pixels)
    read = read_network(network, batch=sizes.timed_images, images=lambda names: dict.fromkeys(names, sides))
    return rewritten(read, "torch", by_matrix=True)
