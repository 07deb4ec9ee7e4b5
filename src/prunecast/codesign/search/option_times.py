"""The times of options that depend on shape and kept columns alone, computed once for all layers alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from prunecast.choice import SEARCHED, fastest_plan
from prunecast.codesign.engines import Engine
from prunecast.errors import BadInput
from prunecast.kernels import KernelPlan, plan_dense
from prunecast.patterns import TileMap, TileSums, parse_pattern
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import frozen_int32

FloatArray = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int64]

SUMMED_HEIGHT = 64
"""Rows of the tiles whose sums stand for a layer: all heights on offer are multiples of it."""

EXACT_DENSITIES = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
"""Where the engine that is asked for predicts a curve: closer where launches and stores bend it."""


def equal_tile_map(best_first: CountArray, m: int, *, kept: int, height: int) -> TileMap:
    """Tiles of `height` of m rows that keep the first `kept` of their columns `best_first` (tiles, K)."""
    row_start = np.append(np.arange(0, m, height), m)
    tiles, k = best_first.shape
    return TileMap(
        m=m,
        k=k,
        row_start=frozen_int32(row_start),
        row_index=np.arange(m, dtype=np.int32),
        column_start=frozen_int32(np.arange(tiles + 1) * kept),
        column_index=frozen_int32(np.sort(best_first[:, :kept], axis=1).ravel()),
        pattern=f"atp:{height}",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptionTimes:
    """Seconds of dense layers and of tiles with equal counts, for one engine and dtype.

    Layers of one shape are supposed to take what the first of them takes: which columns their tiles have in
    common, which decides how often rows of B are read, is alike in the layers of a model.

    Parameters
    ----------
    engine : predicts
    dtype : of A, B and C
    typical : (M, K) -> importance (M, K) of the layer that stands for all of that shape
    quick : predicts the counts of a curve of which `engine` predicts a few; None for `engine` alone
    """

    engine: Engine
    dtype: str
    quick: Engine | None = None
    typical: Mapping[tuple[int, int], Callable[[], ImportanceArray]] = field(default_factory=dict)
    _known: dict[tuple[str | int, ...], float] = field(default_factory=dict, init=False, repr=False)
    _of_patterns: dict[tuple[str, float | None, int, int, int], float | None] = field(
        default_factory=dict, init=False, repr=False
    )
    _curves: dict[tuple[str | int, ...], FloatArray] = field(default_factory=dict, init=False, repr=False)
    _sums: dict[tuple[int, int], TileSums] = field(default_factory=dict, init=False, repr=False)
    _best_first: dict[tuple[int, int, int], CountArray] = field(default_factory=dict, init=False, repr=False)

    def dense(self, m: int, k: int, n: int) -> float:
        """Seconds of the dense kernel."""
        key = ("dense", m, k, n)
        if key not in self._known:
            self._known[key] = self.engine.run(plan_dense(m, k, n, self.dtype, self.engine.gpu)).seconds
        return self._known[key]

    def tiles(self, m: int, k: int, n: int, *, kept: int, height: int, kernel: str = "stspmm") -> float:
        """Seconds of a kernel on equal tiles."""
        key = (kernel, m, k, n, kept, height)
        if key not in self._known:
            self._known[key] = self.engine.run(self._tile_plan(kernel, m, k, n, kept, height)).seconds
        return self._known[key]

    def tile_curve(
        self, m: int, k: int, n: int, *, counts: Sequence[int], height: int, kernel: str = "stspmm"
    ) -> FloatArray:
        """Seconds of a kernel on equal tiles of every count, ascending, (counts,) float64.

        Between the counts of which `engine` has the last word its ratio to `quick` changes linearly.

        Raises
        ------
        BadInput : the kernel cannot run the layer
        """
        if self.quick is None:
            return np.array([self.tiles(m, k, n, kept=kept, height=height, kernel=kernel) for kept in counts])
        key: tuple[str | int, ...] = (kernel, m, k, n, height, *counts)
        if key not in self._curves:
            plans = [self._tile_plan(kernel, m, k, n, kept, height) for kept in counts]
            places = _few_places(np.array(counts), k)
            exact = [self.engine.start(plans[place]) for place in places]
            quick_s = np.array([self.quick.once(plan).seconds for plan in plans])
            ratios = np.array([outcome.result().seconds for outcome in exact]) / quick_s[places]
            self._curves[key] = quick_s * np.interp(counts, np.array(counts)[places], ratios)
        return self._curves[key]

    def _tile_plan(self, kernel: str, m: int, k: int, n: int, kept: int, height: int) -> KernelPlan:
        equal = equal_tile_map(self._columns(m, k, height), m, kept=kept, height=height)
        return fastest_plan(kernel, equal, n, self.dtype, self.engine.gpu, most=SEARCHED)

    def of_map(self, tiles: TileMap, n: int) -> float:
        """Seconds of `stspmm` on any tiles, in closed form where there is one; nothing is kept."""
        engine = self.quick or self.engine
        plan = fastest_plan("stspmm", tiles, n, self.dtype, engine.gpu, most=SEARCHED)
        return engine.once(plan).seconds

    def two_of_four(self, pattern: str, sparsity: float | None, m: int, k: int, n: int) -> float | None:
        """Seconds of `2:4` on a pattern with 2:4 inside; None where the GPU or the shape cannot have it."""
        key = (pattern, sparsity, m, k, n)
        if key not in self._of_patterns:
            self._of_patterns[key] = self._two_of_four(pattern, sparsity, m, k, n)
        return self._of_patterns[key]

    def _two_of_four(self, text: str, sparsity: float | None, m: int, k: int, n: int) -> float | None:
        pattern = parse_pattern(text)
        try:
            kept = pattern.map(pattern.prune({"layer": self.typical[m, k]()}, sparsity)["layer"])
            plan = fastest_plan("2:4", kept, n=n, dtype=self.dtype, gpu=self.engine.gpu)
            return self.engine.run(plan).seconds
        except BadInput:
            return None

    def _columns(self, m: int, k: int, height: int) -> CountArray:
        """(tiles, K): columns of each tile, those of most importance first."""
        key = (m, k, height)
        if key not in self._best_first:
            if (m, k) not in self._sums:
                self._sums[m, k] = TileSums.of(self.typical[m, k](), SUMMED_HEIGHT)
            sums = self._sums[m, k].taller(height).sums
            self._best_first[key] = np.argsort(-sums, axis=1, kind="stable")
        return self._best_first[key]


def _few_places(counts: CountArray, k: int) -> list[int]:
    """Places of the counts nearest to `EXACT_DENSITIES`."""
    wanted = np.array(EXACT_DENSITIES) * k
    places: list[int] = np.unique(np.abs(counts - wanted[:, None]).argmin(axis=1)).tolist()
    return places
