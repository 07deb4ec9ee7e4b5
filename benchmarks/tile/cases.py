"""Layers, densities and tile maps that kernels are checked and timed on."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from prunecast.hardware import load_gpu
from prunecast.patterns import TileMap

GPU = load_gpu("h200-sxm")
KEPT = (0, 1, 15, 16, 17, 63, 64, 65, 700, 300)
"""Kept columns of the tiles of `ragged_map`."""
TILE_ROWS = (128, 256)
"""Heights of tiles; the pruner may choose, so that the faster one of a layer counts."""


class Case(NamedTuple):
    """One product to be timed against dense."""

    m: int
    k: int
    n: int
    density: float
    kept: str = "equal"
    """How kept columns are spread over tiles: `equal`, `lognormal`, `one-full`, `ramp`."""
    rows: int = TILE_ROWS[0]
    """Height of the tiles."""

    @property
    def layer(self) -> str:
        """M x K x N."""
        return f"{self.m}x{self.k}x{self.n}"

    @property
    def name(self) -> str:
        """Unique among the cases."""
        rows = "" if self.rows == TILE_ROWS[0] else f" rows={self.rows}"
        return f"{self.layer} d={self.density:g} {self.kept}{rows}"


LAYERS = (
    (4096, 4096, 2048),
    (11008, 4096, 2048),
    (4096, 11008, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4096, 1024, 8192),
    (1024, 4096, 8192),
    (3072, 768, 4096),
    (768, 3072, 4096),
    (512, 2048, 4096),
    (256, 2304, 12544),
    (512, 4608, 3136),
)
LARGE = tuple(layer for layer in LAYERS if layer[0] >= 4096 and layer[1] >= 4096)
SKEWED = ("lognormal", "one-full", "ramp")


def quick_cases() -> list[Case]:
    """Four layers that stand for the rest."""
    layers = (LAYERS[3], LAYERS[1], LAYERS[7], LAYERS[8])
    return _both_heights(Case(*layer, density) for layer in layers for density in (0.25, 1.0))


def full_cases() -> list[Case]:
    """Every case that a goal speaks of."""
    cases = [Case(*layer, density) for layer in LAYERS for density in (0.5, 0.25, 0.1)]
    cases += [Case(*layer, 1.0) for layer in LARGE]
    cases += [Case(4096, 4096, 4096, 0.25, kept) for kept in SKEWED]
    return [*_both_heights(cases), Case(4096, 4096, 4096, 0.92), Case(11008, 4096, 16, 0.25)]


def _both_heights(cases: Iterable[Case]) -> list[Case]:
    return [case._replace(rows=rows) for case in cases for rows in TILE_ROWS]


def tile_map(case: Case) -> TileMap:
    """Tiles of `case.rows` rows with random kept columns; the same case gives the same map everywhere."""
    seed = [case.m, case.k, round(1000 * case.density)]
    rng = np.random.default_rng(seed if case.rows == TILE_ROWS[0] else [*seed, case.rows])
    row_start = np.minimum(np.arange(-(-case.m // case.rows) + 1) * case.rows, case.m)
    counts = _kept_counts(case, row_start.size - 1, rng)
    columns = [np.sort(rng.permutation(case.k)[:kept]) for kept in counts]
    return TileMap(
        m=case.m,
        k=case.k,
        row_start=row_start,
        row_index=np.arange(case.m),
        column_start=np.concatenate(([0], np.cumsum(counts))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{case.rows}",
    )


def _kept_counts(case: Case, tiles: int, rng: np.random.Generator) -> np.ndarray:
    """Kept columns of each tile; the totals of all kinds are those of `equal`."""
    equal = round(case.k * case.density)
    if case.kept == "lognormal":
        weight = rng.lognormal(0.0, 0.8, tiles)
    elif case.kept == "ramp":
        weight = np.arange(1, tiles + 1, dtype=float)
    elif case.kept == "one-full":
        weight = np.full(tiles, (equal * tiles - case.k) / (tiles - 1))
        weight[0] = case.k
    else:
        return np.full(tiles, equal)
    return _scaled(weight, equal * tiles, case.k)


def _scaled(weight: np.ndarray, total: int, most: int) -> np.ndarray:
    """Integers in proportion to `weight`, none above `most`, that add up to `total`."""
    low, high = 0.0, total / weight.min()
    for _ in range(200):
        middle = (low + high) / 2
        enough = np.minimum(np.floor(weight * middle), most).sum() >= total
        low, high = (low, middle) if enough else (middle, high)
    counts = np.minimum(np.floor(weight * high), most).astype(np.int64)
    partial = np.flatnonzero(counts < most)  # a full tile stays full
    heaviest = partial[np.argsort(-counts[partial], kind="stable")]
    counts[heaviest[: counts.sum() - total]] -= 1
    return counts


def ragged_map(block_m: int, k: int, seed: int) -> TileMap:
    """A tile for every count of `KEPT`, rows shuffled over the matrix, a short last tile, rows in no tile."""
    rng = np.random.default_rng(seed)
    heights = np.full(len(KEPT), block_m)
    heights[-1] = block_m // 2 + 3
    m = int(heights.sum()) + 5
    columns = [np.sort(rng.choice(k - 8, min(kept, k - 8), replace=False)) for kept in KEPT]
    return TileMap(
        m=m,
        k=k,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=rng.permutation(m)[: m - 5],
        column_start=np.concatenate(([0], np.cumsum([c.size for c in columns]))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{block_m}",
    )
