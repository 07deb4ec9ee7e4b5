"""`tile-wise:128` (TW-1D): tiles of consecutive rows, each with its own set of kept columns.

The published pattern (Guo et al., "Accelerating Sparse DNN Models without Hardware-Support via Tile-Wise
Sparsity", SC'20) cuts the output features into tiles and prunes, inside each tile, whole segments along the
other axis. Output features are the rows of A here, so a segment is one column of A inside one tile.

A-priori tuning (`apriori:128`) is part of the paper: what element-wise pruning does to a layer decides about
some of the pieces before they are ranked. No released code shows it; the rule here is our own. At the
sparsity wanted, single elements are pruned over the whole group of layers. Of all segments, the `percent` of
which the least share of elements is left go first, and the `percent` of which most is left go last. All
others, and those among themselves, rank as in `tile-wise`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import (
    CountArray,
    broadcast_sizes,
    elements_to_prune,
    keep_highest,
    piece_sizes,
    piece_starts,
    row_sums,
)
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, MatrixShape, Pattern, parse_sizes
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import tile_map_from_mask
from prunecast.patterns.unstructured import prune_unstructured
from prunecast.patterns.within import whole_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWiseQuirks:
    """Where the authors' released code differs from what one would do; False, False, True is the sane choice.

    divide_by_width : divide the L2 norm by the length of the segment instead of its root. The score then
        falls as 1 / sqrt(length): short last tiles are favoured, layers with a large K lose more rows.
    count_dead_rows : TW-2D measures the height of a tile with the dead rows between its survivors, which
        penalises tiles that span many of them.
    retile_on_survivors : TW-2D cuts a tile each time `height` surviving rows have been seen; if False,
        every `height` rows of the matrix, dead or not.
    """

    divide_by_width: bool = False
    count_dead_rows: bool = False
    retile_on_survivors: bool = True


SANE = TileWiseQuirks()


def prune_tile_wise(
    importances: Mapping[str, ImportanceArray],
    sparsity: float,
    *,
    height: int,
    quirks: TileWiseQuirks = SANE,
) -> dict[str, MaskArray]:
    """Masks (M, K) without the lowest segments of all tiles of the whole group of layers.

    A tile is `height` consecutive rows, the last one possibly fewer. A segment is one column of a tile,
    scored by the root mean square of its importance.
    """
    sizes = {name: piece_sizes(scores.shape[0], height) for name, scores in importances.items()}
    scored = {
        name: segment_scores(scores, piece_starts(scores.shape[0], height), sizes[name], quirks)
        for name, scores in importances.items()
    }
    elements = {name: broadcast_sizes(size)[:, None] for name, size in sizes.items()}
    total = sum(scores.size for scores in importances.values())
    kept = keep_highest(scored, elements, elements_to_prune(sparsity, total))
    return {name: np.repeat(kept[name], sizes[name], axis=0) for name in importances}


def segment_scores(
    scores: ImportanceArray, starts: CountArray, lengths: CountArray, quirks: TileWiseQuirks
) -> ImportanceArray:
    """(tiles, K) float64: L2 norm of each segment over the root (or quirk: the whole) of its length."""
    norms = row_sums(scores, starts, power=2)
    np.sqrt(norms, out=norms)
    norms /= (lengths if quirks.divide_by_width else np.sqrt(lengths))[:, None]
    return norms


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWisePattern(Pattern):
    """Tiles of `height` consecutive rows (TW-1D)."""

    family: ClassVar[str] = "tile-wise"
    example: ClassVar[str] = "tile-wise:128"
    meaning: ClassVar[str] = "HEIGHT consecutive rows share their kept columns"
    keeps: ClassVar[Kept] = "tiles"

    height: int

    @property
    def smallest(self) -> MatrixShape:
        """One whole tile."""
        return MatrixShape(self.height, 1)

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_tile_wise`."""
        return prune_tile_wise(importances, sparsity, height=self.height)

    def room(self, within: MaskArray) -> MaskArray:
        """Segments that may be kept as a whole."""
        return whole_columns(within, self.height)

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles of `height` consecutive rows."""
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical)


PERCENT = 5


def prune_apriori(
    importances: Mapping[str, ImportanceArray], sparsity: float, *, height: int, percent: int = PERCENT
) -> dict[str, MaskArray]:
    """Masks (M, K) of tiles whose clearest segments unstructured pruning has decided about.

    Parameters
    ----------
    importances : layer -> importance (M, K)
    sparsity : of the group
    height : rows of a tile
    percent : segments decided about at either end, of all segments; at most 50

    """
    sizes = {name: piece_sizes(scores.shape[0], height) for name, scores in importances.items()}
    starts = {name: piece_starts(scores.shape[0], height) for name, scores in importances.items()}
    scored = {
        name: segment_scores(scores, starts[name], sizes[name], SANE) for name, scores in importances.items()
    }
    single = prune_unstructured(importances, sparsity)
    shares = {
        name: row_sums(mask, starts[name], power=1) / sizes[name][:, None] for name, mask in single.items()
    }
    total = sum(scores.size for scores in importances.values())
    kept = keep_highest(
        _decided(scored, shares, percent),
        {name: broadcast_sizes(size)[:, None] for name, size in sizes.items()},
        elements_to_prune(sparsity, total),
    )
    return {name: np.repeat(kept[name], sizes[name], axis=0) for name in importances}


def _decided(
    scored: Mapping[str, ImportanceArray], shares: Mapping[str, ImportanceArray], percent: int
) -> dict[str, ImportanceArray]:
    """Ranks of the segments, from 1: lower goes first. Equal shares rank by score, equal scores by place."""
    score = np.concatenate([scores.ravel() for scores in scored.values()])
    share = np.concatenate([part.ravel() for part in shares.values()])
    later_first = -np.arange(score.size)
    clear = np.lexsort((later_first, score, share))
    at_each_end = score.size * percent // 100
    group = np.ones(score.size, dtype=np.int64)
    group[clear[:at_each_end]] = 0
    group[clear[score.size - at_each_end :]] = 2
    # What scores nothing has no claim, whatever is left of it
    group[score <= 0] = 0
    ranks = np.empty(score.size)
    ranks[np.lexsort((later_first, score, group))] = np.arange(1, score.size + 1)
    parts = np.split(ranks, np.cumsum([scores.size for scores in scored.values()])[:-1])
    return {name: part.reshape(scored[name].shape) for name, part in zip(scored, parts, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AprioriPattern(TileWisePattern):
    """Tiles of `height` consecutive rows, `percent` of their segments decided before the ranking.

    Spelled `apriori:HEIGHT` or `apriori:HEIGHTxPERCENT`.
    """

    family: ClassVar[str] = "apriori"
    example: ClassVar[str] = "apriori:128"
    meaning: ClassVar[str] = (
        "as tile-wise; unstructured pruning decides about the clearest PERCENT of segments first"
    )
    keeps: ClassVar[Kept] = "tiles"

    percent: int = PERCENT

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """From `128` or `128x5`; the percentage is at most 50."""
        names = ("height", "percent") if "x" in argument else ("height",)
        found = cls(**dict(zip(names, parse_sizes(argument, names, cls.example), strict=True)))
        if found.percent > 50:
            raise BadInput(f"pattern {cls.family}: wanted at most 50 % at either end, got {found.percent}")
        return found

    @property
    def canonical(self) -> str:
        """Without the percentage where it is the default."""
        text = f"{self.family}:{self.height}"
        return text if self.percent == PERCENT else f"{text}x{self.percent}"

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_apriori`."""
        return prune_apriori(importances, sparsity, height=self.height, percent=self.percent)
