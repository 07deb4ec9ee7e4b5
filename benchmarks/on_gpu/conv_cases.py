"""Layers of VGG-16 and ResNet-50 that are run as convolutions, with random filters."""

from typing import NamedTuple

import numpy as np

from prunecast.kernels import ConvGrid, ConvShape
from prunecast.patterns import TileMap, parse_pattern

SPARSITY = 0.75
CUDNN = "cuDNN"
"""What rows of a record have for tiles where the library ran."""


class Case(NamedTuple):
    """A layer of square images and filters."""

    filters: int
    channels: int
    size: int
    stride: int = 1
    kernel: int = 3
    batch: int = 32
    network: str = ""

    @property
    def name(self) -> str:
        """For example `vgg 256x256 3x3 56`."""
        step = f" /{self.stride}" if self.stride > 1 else ""
        batch = f" b{self.batch}" if self.batch != 32 else ""
        sizes = f"{self.filters}x{self.channels} {self.kernel}x{self.kernel} {self.size}"
        return f"{self.network} {sizes}{step}{batch}"

    @property
    def grid(self) -> ConvGrid:
        """How it lies in memory."""
        shape = ConvShape(
            channels=self.channels,
            height=self.size,
            width=self.size,
            kernel_h=self.kernel,
            kernel_w=self.kernel,
            stride=self.stride,
            padding=self.kernel // 2,
            batch=self.batch,
        )
        return ConvGrid(conv=shape, border=max(self.kernel // 2, 1))


VGG = tuple(
    Case(*sizes, network="vgg")
    for sizes in (
        (64, 64, 224),
        (128, 64, 112),
        (128, 128, 112),
        (256, 128, 56),
        (256, 256, 56),
        (512, 256, 28),
        (512, 512, 28),
        (512, 512, 14),
    )
)
RESNET = tuple(
    Case(*sizes, network="resnet")
    for sizes in (
        (64, 64, 56),
        (128, 128, 56, 2),
        (128, 128, 28),
        (256, 256, 28, 2),
        (256, 256, 14),
        (512, 512, 14, 2),
        (512, 512, 7),
    )
)
SMALL = (
    Case(256, 24, 9, batch=8, network="small"),
    Case(192, 16, 12, kernel=5, batch=16, network="small"),
    Case(256, 64, 10, kernel=1, batch=40, network="small"),
    Case(128, 40, 11, 2, batch=24, network="small"),
)


def filters_of(case: Case) -> np.ndarray:
    """(filters, channels * kernel^2) fp32, of values that fp16 has."""
    rng = np.random.default_rng([case.filters, case.channels, case.size])
    values = rng.standard_normal((case.filters, case.channels * case.kernel**2))
    return values.astype(np.float16).astype(np.float32)


def tiles_of(case: Case, height: int) -> TileMap:
    """What is kept of a layer."""
    pattern = parse_pattern(f"tile-wise:{height}")
    kept = pattern.map(pattern.prune({"w": np.abs(filters_of(case))}, SPARSITY)["w"])
    assert isinstance(kept, TileMap)
    return kept
