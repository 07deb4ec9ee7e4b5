"""What `gpu_trace` stamps: short products of equal tiles, and *fit* cases of the suite."""

from typing import NamedTuple

import numpy as np

from benchmarks.gpu_cases import Case, tile_map
from benchmarks.stamps.products import GPU, made_up_tiles, whole_items
from prunecast.kernels import KernelPlan, plan_stspmm
from prunecast.validation.case_maps import map_of
from prunecast.validation.case_plans import case_plan
from prunecast.validation.suite import load_suite, suite_names

__all__ = ["CUT", "SHORT", "SUITE", "WAVES", "Traced", "cases", "plan_of", "suite_cases"]

SUITE = {
    "stspmm": (
        "4096x1024x512 fp16 tile-wise:128 0.5 equal #1",
        "4096x1024x512 fp16 block:128x64 0.75 equal #1",
        "4096x4096x512 fp16 dense-block:8 0.9 equal #1",
        "1024x1024x2048 fp16 tile-wise:128 0.75 equal #1",
        "768x768x2048 fp16 tile-wise:128 0.5 equal #1",
        "768x3072x2048 fp16 tile-wise:128 0.9 equal #1",
        "4096x4096x512 fp16 tile-wise:64 0.9 equal #1",
        "1024x4096x512 fp16 shuffled-block:128 0.9 equal #1",
        "4096x11008x64 fp16 tile-wise:128 0.9 equal #1",
        "2048x512x512 fp16 tile-wise:32 0.9 equal #1",
        "768x3072x4096 fp16 block:128x64 0.9 equal #1",
        "768x3072x4096 fp16 block:128x64 0.75 random #1",
        "4096x4096x512 fp16 block:64x64 0.9 random #1",
        "128x1152x50176 fp16 tile-wise:128 0.9 equal #1",
        "768x768x16384 fp16 tile-wise:128 0.9 equal #1",
        "3072x768x4096 fp16 dense-block:8 0.75 equal #1",
        "768x3072x512 fp16 tile-wise:128 0 equal #1",
        "512x2048x128 fp16 tile-wise:128 0 equal #1",
        "512x512x4096 fp16 tile-wise:128 0.75 equal #1",
        "4096x1024x512 fp16 tile-wise-2d:128 0.75 equal #1",
        "11008x4096x512 fp16 atp-2d:128 0.9 equal #1",
    ),
    "tile-wise": (
        "768x3072x4096 fp16 tile-wise:128 0.98 equal #1",
        "768x3072x2048 fp16 tile-wise:128 0.5 random #1",
        "768x3072x4096 fp16 tile-wise:128 0.75 ramp #1",
        "768x3072x512 fp16 tile-wise:128 0 equal #1",
        "512x2048x128 fp16 tile-wise:128 0 equal #1",
    ),
    "block-sparse": (
        "768x3072x4096 fp16 block:128x64 0.75 random #1",
        "4096x1024x512 fp16 block:64x64 0.5 random #1",
    ),
    "2:4": ("2048x512x512 fp16 tvw:128 0.9 lognormal:0.6 #1", "768x3072x512 fp16 2:4 0.5 equal #1"),
}
"""Short products, most of which are predicted 5 to 20 % off."""
SHORT = {
    "block-sparse": (
        "768x3072x4096 fp16 block:128x64 0.75 random #1",
        "768x3072x512 fp16 block:64x64 0.9 random #1",
        "4096x1024x512 fp16 block:64x64 0.5 random #1",
        "4096x4096x512 fp16 block:64x64 0.75 equal #1",
        "768x3072x4096 fp16 block:128x64 0.9 equal #1",
    ),
    "tile-wise": (
        "768x3072x4096 fp16 tile-wise:128 0.98 equal #1",
        "768x3072x4096 fp16 tile-wise:128 0.75 ramp #1",
        "768x3072x4096 fp16 tile-wise:128 0.9 ramp #1",
        "768x768x2048 fp16 tile-wise:128 0.98 equal #1",
    ),
    "stspmm": (
        "768x3072x4096 fp16 block:128x64 0.75 random #1",
        "4096x1024x512 fp16 tile-wise:32 0.75 equal #1",
        "128x1152x50176 fp16 tile-wise:128 0.9 equal #1",
        "2048x512x4096 fp16 dense-block:8 0.75 equal #1",
        "2048x512x512 fp16 tile-wise:64 0.9 equal #1",
        "2048x512x512 fp16 dense-block:8 0.9 equal #1",
        "768x3072x512 fp16 block:64x64 0.9 random #1",
        "512x512x4096 fp16 tile-wise:128 0.75 equal #1",
    ),
}
"""Short tiles, and unequal ones that the hardware starts."""
WAVES = {
    "tile-wise": (
        "8192x1664x152 fp16 tile-wise:32 0.97 equal #1",
        "2304x2304x600 fp16 tile-wise:64 0.94 random #1",
        "1024x1024x10000 fp16 tile-wise:32 0.97 ramp #1",
        "9216x2304x440 fp16 tile-wise:128 0.9 random #1",
        "1280x5120x6304 fp16 tile-wise:128 0.95 equal #1",
        "2816x1024x1576 fp16 tile-wise:96 0.88 random #1",
        "4096x11008x4096 fp16 tile-wise:128 0.98 equal #1",
        "13824x5120x3000 fp16 tile-wise:32 0.96 ramp #1",
    ),
    "block-sparse": (
        "6144x1408x360 fp16 block:64x64 0.84 random #1",
        "6144x1408x2000 fp16 block:32x32 0.84 equal #1",
        "6144x1408x1100 fp16 block:64x32 0.94 random #1",
        "5120x1280x1536 fp16 block:64x32 0.6 equal #1",
        "576x576x152 fp16 block:64x64 0.67 lognormal:0.8 #1",
    ),
}
"""Blocks of few steps that the hardware starts behind one another, of all suites."""
CUT = {
    "stspmm": (
        "1152x4352x256 fp16 tile-wise:128 0.3 equal #2",
        "1152x4352x256 fp16 tile-wise:128 0.5 equal #2",
        "896x4864x256 fp16 tile-wise:128 0.5 equal #2",
        "1280x5120x1024 fp16 tile-wise:128 0.3 equal #1",
        "5120x1280x384 fp16 tile-wise:128 0.1 equal #2",
        "2304x2304x640 fp16 tile-wise:128 0.42 equal #3",
        "1408x6144x192 fp16 tile-wise:128 0.54 equal #3",
        "1408x6144x192 fp16 tile-wise:128 0.08 equal #3",
        "2048x11008x640 fp16 tile-wise:128 0.66 equal #3",
        "2048x11008x192 fp16 tile-wise:128 0.66 equal #3",
        "4096x4096x192 fp16 tile-wise:128 0.2 equal #3",
        "4096x11008x128 fp16 tile-wise:128 0 equal #1",
        "5632x2048x384 fp16 tile-wise:128 0.7 equal #2",
        "2304x2304x1600 fp16 tile-wise:128 0.54 equal #3",
        "768x3072x4096 fp16 block:128x64 0.75 random #1",
        "768x3072x2048 fp16 tile-wise:128 0.5 lognormal:1.0 #1",
        "896x4864x900 fp16 tile-wise:128 0.1 equal #2",
        "5632x2048x384 fp16 tile-wise:128 0.1 equal #2",
    ),
}
"""One wave of equal blocks, most of them parts of tiles: two to four, of 32 to 96 KB of sums."""


class Traced(NamedTuple):
    """A product of equal tiles."""

    kernel: str
    form: tuple[int, int]
    row_tiles: int
    ranges: int
    """Of tokens."""
    steps: int
    blocks: int = 132
    thin: int = 4
    """K over kept columns."""
    parts: int = 1
    cluster: int = 1
    long_tiles: int = 0
    """Tiles that keep four times as many."""
    layer: tuple[int, int, int] = (0, 0, 0)
    """With half of its columns in tiles as tall as the form, planned as always."""
    suite: str = ""
    """Name of a case of the suite, whose plan by `kernel` it is."""

    @property
    def name(self) -> str:
        """Unique."""
        if self.suite:
            return f"{self.kernel} {self.suite}"
        if self.layer[0]:
            return f"tile {self.form[0]} rows {'x'.join(map(str, self.layer))} planned"
        extra = f" parts{self.parts}" if self.parts > 1 else ""
        extra += f" cluster{self.cluster}" if self.cluster > 1 else ""
        extra += f" long{self.long_tiles}" if self.long_tiles else ""
        extra += f" thin{self.thin}" if self.thin != 4 else ""
        form, grid = f"{self.form[0]}x{self.form[1]}", f"{self.row_tiles}x{self.ranges}"
        return f"{self.kernel} {form} {grid} steps{self.steps}{extra}"


def cases() -> list[Traced]:
    """Short products: how many blocks, how many steps."""
    found = []
    for form in ((128, 64), (64, 128), (128, 128), (64, 256), (128, 192), (128, 256)):
        grids = ((6, 4), (8, 8), (12, 8), (16, 8), (12, 11))
        for rows, ranges in grids:
            for steps in (2, 4, 8):
                if (rows, ranges) in ((8, 8), (16, 8)) or (
                    steps == 4 and form in ((128, 64), (128, 128), (64, 256), (128, 256))
                ):
                    found.append(Traced("tile", form, rows, ranges, steps))
    for form in ((128, 64), (128, 128), (128, 256), (256, 128)):
        for rows, ranges in ((8, 8), (16, 8)):
            for steps in (2, 4, 8):
                found.append(Traced("sparse", form, rows, ranges, steps))
    found += [
        Traced("tile", (128, 64), 16, 8, 2, long_tiles=1),
        Traced("sparse", (128, 64), 16, 8, 2, long_tiles=1),
        Traced("tile", (128, 128), 16, 8, 2, long_tiles=1),
        Traced("tile", (128, 256), 16, 16, 2),
        Traced("tile", (128, 256), 16, 16, 4),
        Traced("sparse", (128, 256), 16, 16, 2),
        Traced("sparse", (256, 128), 8, 32, 2),
        Traced("tile", (128, 256), 4, 16, 2),
        Traced("tile", (128, 256), 32, 2, 2),
        Traced("tile", (128, 64), 4, 2, 32, thin=1),
        Traced("tile", (256, 128), 0, 0, 36, layer=(512, 4608, 3136)),
        Traced("tile", (256, 128), 0, 0, 32, layer=(2048, 4096, 1024)),
        Traced("tile", (128, 256), 0, 0, 32, layer=(11008, 4096, 2048)),
    ]
    return sorted(found, key=_rank)


def suite_cases(of: dict[str, tuple[str, ...]] = SUITE) -> list[Traced]:
    """Cases of the suite by the kernel that plans them."""
    return [Traced(kernel, (0, 0), 0, 0, 0, suite=name) for kernel in of for name in of[kernel]]


def _rank(case: Traced) -> int:
    """Of few columns and of many blocks first, should time run out."""
    return int(case.steps == 8) + 2 * int(case.form in ((64, 128), (128, 192)) or case.row_tiles in (6, 12))


def plan_of(case: Traced) -> KernelPlan:
    """Lists of whole items, longest first."""
    if case.suite:
        suites = map(load_suite, suite_names())
        found = next(c for suite in suites for c in suite.cases if c.name == case.suite)
        return case_plan(found, case.kernel, map_of(found), GPU)
    if case.layer[0]:
        layer = Case(*case.layer, 0.5, rows=case.form[0])
        return plan_stspmm(tile_map(layer), layer.n, "fp16", GPU)
    kept = np.full(case.row_tiles, 64 * case.steps)
    kept[: case.long_tiles] *= 4
    k = int(kept.max()) * (1 if case.long_tiles else case.thin)
    tiles = made_up_tiles(case.form[0], kept, k, np.random.default_rng(5))
    return whole_items(case.kernel, case.form, tiles, case.ranges, blocks=case.blocks, cluster=case.cluster)
