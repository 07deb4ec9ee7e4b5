"""`OptionTimes`: predicted times of options, computed once for all layers of a shape.

`KeptLayer`: one layer after pruning, computed from its importance or from the importance sums of its tiles.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeGuard

import numpy as np

from prunecast.choice import SEARCHED, PrunedMap
from prunecast.codesign.search.allocation import FloatArray
from prunecast.errors import BadInput
from prunecast.kernels import ConvGrid, KernelPlan, implicit_plan, plan_dense
from prunecast.patterns import Pattern, TileMap, TileSums, parse_pattern
from prunecast.patterns.adaptive_tile_pattern import AdaptiveTilePattern
from prunecast.patterns.cut import CountArray
from prunecast.patterns.element_map import retained_sum
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray, frozen_int32
from prunecast.plan.misaligned import planned_tokens
from prunecast.workload.engines import Engine
from prunecast.workload.expert_launches import layer_plan, share_of
from prunecast.workload.graph.experts import ExpertPart, are_fused

SUMMED_HEIGHT = 64
"""Height of the tiles for which importance sums are stored; all heights of options are multiples of it."""

EXACT_DENSITIES = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
"""Densities at which the engine predicts the time of tiles. They are closer together at low density, where
launch overhead and stores make the time nonlinear."""


def equal_tile_map(best_first: CountArray, m: int, *, kept: int, height: int) -> TileMap:
    """Return a map of tiles with equal numbers of kept columns.

    Parameters
    ----------
    best_first : columns of each tile, the most important first, (tiles, K)
    m : rows of the matrix
    kept : number of columns that each tile keeps
    height : rows of a tile; the last one may be shorter
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
    """Predicted seconds of dense layers and of pruned layers, for one engine and dtype.

    All layers of a shape are assumed to need as long as the first layer of this shape. The number of columns
    that neighbouring tiles share determines how often rows of B are read, and this number is similar in all
    layers of a model.

    Parameters
    ----------
    engine : predicts the times
    dtype : number format of A, B and C
    typical : (M, K) -> function that returns the importance (M, K) of the layer that represents the shape
    grids : (M, K, N) of a product -> grid of its input images, if torch runs it as a convolution
    experts : (M, K, N) of a product -> the part of a fused mixture-of-experts layer to which it belongs
    in_torch : True if `SparseLinear` of torch runs the layers, which pads rows (`planned_tokens`)
    """

    engine: Engine
    dtype: str
    typical: Mapping[tuple[int, int], Callable[[], ImportanceArray]] = field(default_factory=dict)
    grids: Mapping[tuple[int, int, int], ConvGrid] = field(default_factory=dict)
    experts: Mapping[tuple[int, int, int], ExpertPart] = field(default_factory=dict)
    in_torch: bool = False
    _known: dict[tuple[str | int, ...], float] = field(default_factory=dict, init=False, repr=False)
    _of_patterns: dict[tuple[str, float | None, int, int, int], float | None] = field(
        default_factory=dict, init=False, repr=False
    )
    _curves: dict[tuple[str | int, ...], FloatArray] = field(default_factory=dict, init=False, repr=False)
    _sums: dict[tuple[int, int], TileSums] = field(default_factory=dict, init=False, repr=False)
    _best_first: dict[tuple[int, int, int], CountArray] = field(default_factory=dict, init=False, repr=False)

    def dense(self, m: int, k: int, n: int) -> float:
        """Return the predicted seconds of the dense product of A (m, k) and B (k, n).

        Rows are assumed to be padded to multiples of 16 bytes, since unaligned rows are slower. For a product
        of a fused mixture-of-experts layer, the result is the share of one expert in the grouped launch.
        """
        if (m, k, n) in self.experts and are_fused(self.engine.gpu, self.dtype):
            return self.experts[m, k, n].seconds(self.engine.gpu, self.dtype, self.engine.conditions.state)
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
        """Return the seconds of a kernel on equal tiles for each number of kept columns, (counts,) float64.

        The engine predicts the times at a few counts only. At these counts, the ratio of the engine's time to
        the closed-form time is computed. For all counts, the closed-form time is multiplied by this ratio,
        interpolated linearly between them.

        Parameters
        ----------
        m, k, n : sizes of the product
        counts : numbers of columns that each tile keeps, ascending
        height : rows of a tile

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
                plan = self.plan(kernel, equal_tile_map(best, m, kept=kept, height=height), n, most=SEARCHED)
                share = share_of(plan, m)
                # Estimate at once, while the estimate that chose the config is still cached
                estimated_s[place] = share * self.engine.estimate(plan).seconds
                if place in places:
                    exact.append(self.engine.start(plan))
            ratios = share * np.array([outcome.result().seconds for outcome in exact]) / estimated_s[places]
            self._curves[key] = estimated_s * np.interp(counts, np.array(counts)[places], ratios)
        return self._curves[key]

    def plan(self, kernel: str, kept: PrunedMap, n: int, *, most: int | None = None) -> KernelPlan:
        """Return the plan of a kernel for a sparsity map and `n` tokens; `most` limits the compared configs.

        A convolution of torch reads its grid of images, and a product of experts is part of their launch.
        """
        grid = self.grids.get((kept.m, kept.k, n))
        columns = grid.n if grid is not None else planned_tokens(n) if self.in_torch else n
        fused = self.experts.get((kept.m, kept.k, n))
        return layer_plan(kernel, kept, columns, self.dtype, self.engine.gpu, fused, source=grid, most=most)

    def of_map(self, tiles: TileMap, n: int) -> float:
        """Return the closed-form seconds of the kernel `stspmm` on a tile map with `n` tokens."""
        key = ("stspmm", tiles.fingerprint(), n)
        if key not in self._known:
            plan = self.plan("stspmm", tiles, n, most=SEARCHED)
            self._known[key] = share_of(plan, tiles.m) * self.engine.estimate(plan).seconds
        return self._known[key]

    def two_of_four(
        self, pattern: str, mask: Callable[[], MaskArray], sparsity: float | None, size: tuple[int, int, int]
    ) -> float | None:
        """Return the seconds of the kernel `2:4` for a pattern; None if the kernel cannot run the layer.

        The result is cached: later layers of the same size get the time of the first one.

        Parameters
        ----------
        pattern, sparsity : pattern string and its argument
        mask : returns the mask (M, K) of the layer
        size : (M, K, N)
        """
        key = (pattern, sparsity, *size)
        if key not in self._of_patterns:
            seconds = None
            with contextlib.suppress(BadInput):
                kept = parse_pattern(pattern).map(mask())
                seconds = self.engine.run(self.plan("2:4", kept, size[2])).seconds
            self._of_patterns[key] = seconds
        return self._of_patterns[key]

    def keep_sums(self, sums: TileSums) -> None:
        """Store importance sums of tiles of `SUMMED_HEIGHT` rows as those of their shape.

        Without them, `typical` is called, which draws or reads the weights again.
        """
        self._sums.setdefault((sums.m, sums.k), sums)

    def _columns(self, m: int, k: int, height: int) -> CountArray:
        """Return the columns of each tile, those with the highest importance first, (tiles, K)."""
        key = (m, k, height)
        if key not in self._best_first:
            if (m, k) not in self._sums:
                self._sums[m, k] = TileSums.of(self.typical[m, k](), SUMMED_HEIGHT)
            sums = self._sums[m, k].taller(height).sums
            self._best_first[key] = np.argsort(-sums, axis=1, kind="stable")
        return self._best_first[key]


class KeptLayer(NamedTuple):
    """A layer after pruning: its sparsity map, retained importance and number of kept weights."""

    kept: PrunedMap
    importance: float
    """Retained importance."""
    weights: int
    """Number of kept weights."""

    @classmethod
    def of_sums(cls, pattern: AdaptiveTilePattern, sums: TileSums, sparsity: float | None) -> Self:
        """Return the layer pruned by the importance sums of its tiles, without reading its weights.

        The result equals that of `of_mask` up to rounding, which matters only for columns of equal
        importance.
        """
        fraction = pattern.sparsity_to_prune(sparsity)
        tiles = pattern.map_of_sums(sums, fraction)
        kept = int(np.dot(tiles.rows_per_tile.astype(np.int64), tiles.kept_per_tile.astype(np.int64)))
        return cls(tiles, sums.taller(pattern.height).retained(tiles), kept)

    @classmethod
    def of_mask(cls, pattern: Pattern, importance: ImportanceArray, mask: MaskArray) -> Self:
        """Return the layer for a mask (M, K) of the pattern and the importance (M, K) of its weights."""
        return cls(pattern.map(mask), retained_sum(importance, mask), int(np.count_nonzero(mask)))


def sums_say_all(pattern: Pattern, sums: TileSums) -> TypeGuard[AdaptiveTilePattern]:
    """Return True if the importance sums of tiles suffice to prune a layer to the pattern."""
    return (
        isinstance(pattern, AdaptiveTilePattern)
        and pattern.needs_only_sums
        and pattern.height % sums.height == 0
    )
