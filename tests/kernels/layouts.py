"""Small random layouts for kernel tests: tile maps and element maps of every kind."""

from collections.abc import Sequence

import numpy as np

from prunecast.choice import fastest_plan
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.tile_map import TileMap
from prunecast.patterns.tiling import dense_tile_map

__all__ = [
    "NEED_AMPERE",
    "PLANNED",
    "elements_of_density",
    "example",
    "example_plan",
    "tiles_keeping",
    "tiles_of_density",
    "two_of_four",
    "whole_numbers",
]


PLANNED = tuple(name for name, kernel in KERNELS.items() if not kernel.parts)
"""Kernels of one launch."""
NEED_AMPERE = tuple(
    name
    for name in PLANNED
    if KERNELS[name].natural_pattern == "2:4"
    or min((entry.least for entry in KERNELS[name].compilers.values()), default=0) >= 80
)
"""Kernels that need compute capability 8.0: for sparse tensor cores, or since nothing older compiles them."""


def example(kernel: str, m: int, k: int, density: float = 0.4) -> TileMap | ElementMap:
    """A map that the kernel runs, by its natural pattern; tiles of 64 rows keep from 0 to 2 * density."""
    record = KERNELS[kernel]
    if record.natural_pattern == "dense":
        return dense_tile_map(m, k, 64)
    if record.natural_pattern == "2:4":
        return two_of_four(m, k)
    if record.takes is ElementMap:
        return elements_of_density(m, k, density)
    share = np.linspace(0.0, min(2.0 * density, 1.0), -(-m // 64))
    return tiles_keeping(np.rint(share * k).astype(int).tolist(), height=64, k=k, m=m)


def example_plan(
    kernel: str, m: int, k: int, n: int, gpu: GpuSpec, *, dtype: str = "fp16", density: float = 0.4
) -> KernelPlan:
    """The plan of `example` with n tokens, or with the most that the kernel supports."""
    tokens = min(n, KERNELS[kernel].most_tokens or n)
    return fastest_plan(kernel, example(kernel, m, k, density), tokens, dtype, gpu)


def tiles_keeping(
    kept: Sequence[int], *, height: int, k: int, m: int | None = None, seed: int = 0, rows: object = None
) -> TileMap:
    """Tile t keeps kept[t] random columns of k; the last tile may be short of `height` rows."""
    rng = np.random.default_rng(seed)
    m = height * len(kept) if m is None else m
    row_index = np.arange(m) if rows is None else np.asarray(rows)
    columns = [np.sort(rng.permutation(k)[:count]) for count in kept]
    return TileMap(
        m=m if rows is None else max(m, int(row_index.max(initial=-1)) + 1),
        k=k,
        row_start=np.minimum(np.arange(len(kept) + 1) * height, row_index.size),
        row_index=row_index,
        column_start=np.concatenate(([0], np.cumsum(kept))),
        column_index=np.concatenate([np.zeros(0, int), *columns]),
        pattern=f"tile-wise:{height}",
    )


def tiles_of_density(m: int, k: int, height: int, density: float, seed: int = 0) -> TileMap:
    """Every tile keeps its own random number of columns around density * k; 0 and 1 are exact."""
    rng = np.random.default_rng(seed)
    count = -(-m // height)
    if density in (0, 1):
        kept = [int(density * k)] * count
    else:
        kept = [int(rng.binomial(k, density)) for _ in range(count)]
    return tiles_keeping(kept, height=height, k=k, m=m, seed=seed)


def elements_of_density(m: int, k: int, density: float, seed: int = 0) -> ElementMap:
    """Single elements kept at random."""
    return element_map_from_mask(np.random.default_rng(seed).random((m, k)) < density, "unstructured")


def two_of_four(m: int, k: int, seed: int = 0) -> ElementMap:
    """Two of every four neighbouring columns of a row, at random; a shorter last group keeps two at most."""
    rng = np.random.default_rng(seed)
    rank = rng.random((m, -(-k // 4), 4)).argsort(axis=2).argsort(axis=2)
    return element_map_from_mask((rank < 2).reshape(m, -1)[:, :k], "2:4")


def whole_numbers(m: int, n: int, seed: int) -> np.ndarray:
    """Small whole numbers, so that products are exact in float64 and any order of summation agrees."""
    return np.random.default_rng(seed).integers(-9, 10, (m, n)).astype(np.float64)
