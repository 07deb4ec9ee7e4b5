"""`OptionTimes`: times of the options of a layer, computed once for all layers of a shape.

`KeptLayer` is one layer after pruning, computed from its weights or, where they suffice, from sums over
tiles.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from prunecast.choice import SEARCHED, PrunedMap, fastest_plan
from prunecast.errors import BadInput
from prunecast.kernels import ConvGrid, KernelPlan, implicit_plan, plan_dense
from prunecast.patterns import Pattern, TileMap, TileSums, parse_pattern
from prunecast.patterns.adaptive_tile_pattern import AdaptiveTilePattern
from prunecast.patterns.element_map import retained_sum
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray, frozen_int32
from prunecast.workload.engines import Engine
from prunecast.workload.expert_launches import layer_plan, share_of
from prunecast.workload.graph.experts import ExpertPart, are_fused

FloatArray = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int64]

SUMMED_HEIGHT = 64
"""Rows of the tiles whose sums represent a layer: all offered heights are multiples of it."""

EXACT_DENSITIES = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
"""Densities at which the engine predicts a curve, denser where launches and stores make it nonlinear."""


def equal_tile_map(best_first: CountArray, m: int, *, kept: int, height: int) -> TileMap:
    """Return tiles of `height` of m rows that keep the first `kept` of their columns
    `best_first` (tiles, K).
    """
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

    All layers of a shape are assumed to need the time of the first one. Tiles of the layers of a model have
    similar numbers of columns in common, which decide how often rows of B are read.

    Parameters
    ----------
    engine : predicts the times
    dtype : of A, B and C
    typical : (M, K) -> importance (M, K) of the layer that represents that shape
    grids : (M, K, N) of a product -> the grid of input images, if torch runs it as a convolution
    experts : (M, K, N) of a product -> the part of a fused layer of experts that it is
    """

    engine: Engine
    dtype: str
    typical: Mapping[tuple[int, int], Callable[[], ImportanceArray]] = field(default_factory=dict)
    grids: Mapping[tuple[int, int, int], ConvGrid] = field(default_factory=dict)
    experts: Mapping[tuple[int, int, int], ExpertPart] = field(default_factory=dict)
    _known: dict[tuple[str | int, ...], float] = field(default_factory=dict, init=False, repr=False)
    _of_patterns: dict[tuple[str, float | None, int, int, int], float | None] = field(
        default_factory=dict, init=False, repr=False
    )
    _curves: dict[tuple[str | int, ...], FloatArray] = field(default_factory=dict, init=False, repr=False)
    _sums: dict[tuple[int, int], TileSums] = field(default_factory=dict, init=False, repr=False)
    _best_first: dict[tuple[int, int, int], CountArray] = field(default_factory=dict, init=False, repr=False)

    def dense(self, m: int, k: int, n: int) -> float:
        """Return the predicted seconds of the dense product of A (m, k) and B (k, n).

        Rows are padded to multiples of 16 bytes, which a user would do: unaligned rows are slower. Of
        experts it is the share of one expert in the grouped launch.
        """
        if (m, k, n) in self.experts and are_fused(self.engine.gpu, self.dtype):
            return self.experts[m, k, n].seconds(self.engine.gpu, self.dtype, self.engine.state)
        key = ("dense", m, k, n)
        if key not in self._known:
            grid = self.grids.get((m, k, n))
            plan = plan_dense(m, k, n if grid is None else grid.conv.n, self.dtype, self.engine.gpu)
            if grid is not None:
                plan = implicit_plan(plan, grid.conv)
            self._known[key] = self.engine.run(plan).seconds
        return self._known[key]

    def tile_curve(
        self, m: int, k: int, n: int, *, counts: Sequence[int], height: int, kernel: str = "stspmm"
    ) -> FloatArray:
        """Return the seconds of a kernel on equal tiles at every count, ascending, (counts,) float64.

        The engine predicts a few counts. Between them, its ratio to the closed form is interpolated linearly.

        Raises
        ------
        BadInput : the kernel cannot run the layer
        """
        key: tuple[str | int, ...] = (kernel, m, k, n, height, *counts)
        if key not in self._curves:
            best = self._columns(m, k, height)
            wanted = np.array(EXACT_DENSITIES)[:, None] * k
            places = np.unique(np.abs(np.array(counts) - wanted).argmin(axis=1)).tolist()
            exact, estimated_s = [], np.empty(len(counts))
            for place, kept in enumerate(counts):
                plan = self._plan(kernel, equal_tile_map(best, m, kept=kept, height=height), n)
                share = share_of(plan, m)
                # At once, while the estimate is remembered that chose the config
                estimated_s[place] = share * self.engine.estimate(plan).seconds
                if place in places:
                    exact.append(self.engine.start(plan))
            ratios = share * np.array([outcome.result().seconds for outcome in exact]) / estimated_s[places]
            self._curves[key] = estimated_s * np.interp(counts, np.array(counts)[places], ratios)
        return self._curves[key]

    def _plan(self, kernel: str, kept: PrunedMap, n: int) -> KernelPlan:
        grid = self.grids.get((kept.m, kept.k, n))
        columns = n if grid is None else grid.n
        fused = self.experts.get((kept.m, kept.k, n))
        return layer_plan(
            kernel, kept, columns, self.dtype, self.engine.gpu, fused, source=grid, most=SEARCHED
        )

    def of_map(self, tiles: TileMap, n: int) -> float:
        """Return the closed-form seconds of `stspmm` on any tiles."""
        key = ("stspmm", tiles.fingerprint(), n)
        if key not in self._known:
            plan = self._plan("stspmm", tiles, n)
            self._known[key] = share_of(plan, tiles.m) * self.engine.estimate(plan).seconds
        return self._known[key]

    def two_of_four(
        self, pattern: str, mask: Callable[[], MaskArray], sparsity: float | None, size: tuple[int, int, int]
    ) -> float | None:
        """Return the seconds of `2:4` on a pattern with 2:4 inside, for the first layer of the size (M, K,
        N).

        Return None if the GPU or the shape does not support it. `mask` returns the mask of the layer.
        """
        key = (pattern, sparsity, *size)
        if key not in self._of_patterns:
            seconds = None
            with contextlib.suppress(BadInput):
                kept = parse_pattern(pattern).map(mask())
                plan = fastest_plan("2:4", kept, n=size[2], dtype=self.dtype, gpu=self.engine.gpu)
                seconds = self.engine.run(plan).seconds
            self._of_patterns[key] = seconds
        return self._of_patterns[key]

    def _columns(self, m: int, k: int, height: int) -> CountArray:
        """Return the columns (tiles, K) of each tile, those with the highest importance first."""
        key = (m, k, height)
        if key not in self._best_first:
            if (m, k) not in self._sums:
                self._sums[m, k] = TileSums.of(self.typical[m, k](), SUMMED_HEIGHT)
            sums = self._sums[m, k].taller(height).sums
            self._best_first[key] = np.argsort(-sums, axis=1, kind="stable")
        return self._best_first[key]


class KeptLayer(NamedTuple):
    """A layer after pruning."""

    kept: PrunedMap
    importance: float
    """Retained importance."""
    weights: int
    """Number of kept weights."""

    @classmethod
    def of_sums(cls, pattern: AdaptiveTilePattern, sums: TileSums, sparsity: float | None) -> Self:
        """Return a pruned layer computed from tile sums instead of weights.

        It equals `of_mask` up to rounding, which matters only for columns of equal importance.
        """
        fraction = pattern.sparsity_to_prune(sparsity)
        tiles = pattern.map_of_sums(sums, fraction)
        kept = int(np.dot(tiles.rows_per_tile.astype(np.int64), tiles.kept_per_tile.astype(np.int64)))
        return cls(tiles, sums.taller(pattern.height).retained(tiles), kept)

    @classmethod
    def of_mask(cls, pattern: Pattern, importance: ImportanceArray, mask: MaskArray) -> Self:
        """Return the layer that a mask of the pattern leaves of an importance (M, K)."""
        return cls(pattern.map(mask), retained_sum(importance, mask), int(np.count_nonzero(mask)))


def sums_say_all(pattern: Pattern, sums: TileSums) -> TypeGuard[AdaptiveTilePattern]:
    """Return whether the pattern needs only these sums of a layer."""
    return (
        isinstance(pattern, AdaptiveTilePattern)
        and pattern.needs_only_sums
        and pattern.height % sums.height == 0
    )
