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
from typing import ClassVar

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
from prunecast.patterns.pattern import Kept, Pattern
from prunecast.patterns.plain import prune_unstructured
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import tile_map_from_mask


def prune_tile_wise(
    importances: Mapping[str, ImportanceArray], sparsity: float, *, height: int
) -> dict[str, MaskArray]:
    """Masks (M, K) without the lowest segments of all tiles of the whole group of layers.

    A tile is `height` consecutive rows, the last one possibly fewer. A segment is one column of a tile,
    scored by the root mean square of its importance.
    """
    return _without_lowest(importances, _scored(importances, height), sparsity, height)


def _scored(importances: Mapping[str, ImportanceArray], height: int) -> dict[str, ImportanceArray]:
    return {
        name: segment_scores(
            scores, piece_starts(scores.shape[0], height), piece_sizes(scores.shape[0], height)
        )
        for name, scores in importances.items()
    }


def _without_lowest(
    importances: Mapping[str, ImportanceArray],
    scored: Mapping[str, ImportanceArray],
    sparsity: float,
    height: int,
) -> dict[str, MaskArray]:
    """Masks (M, K) without the segments (tiles, K) that score lowest."""
    sizes = {name: piece_sizes(scores.shape[0], height) for name, scores in importances.items()}
    elements = {name: broadcast_sizes(size)[:, None] for name, size in sizes.items()}
    total = sum(scores.size for scores in importances.values())
    kept = keep_highest(scored, elements, elements_to_prune(sparsity, total))
    return {name: np.repeat(kept[name], sizes[name], axis=0) for name in importances}


def segment_scores(scores: ImportanceArray, starts: CountArray, lengths: CountArray) -> ImportanceArray:
    """(tiles, K) float64: L2 norm of each segment over the root of its length.

    The authors' released code divides by the length, which falls as 1 / sqrt(length): short last tiles are
    favoured, and layers with a large K lose more rows. It also counts dead rows of `tile-wise-2d` as length.
    """
    norms = row_sums(scores, starts, power=2)
    np.sqrt(norms, out=norms)
    norms /= np.sqrt(lengths)[:, None]
    return norms


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWisePattern(Pattern):
    """Tiles of `height` consecutive rows (TW-1D)."""

    family: ClassVar[str] = "tile-wise"
    example: ClassVar[str] = "tile-wise:128"
    meaning: ClassVar[str] = "HEIGHT consecutive rows share their kept columns"
    keeps: ClassVar[Kept] = "tiles"

    height: int

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_tile_wise`."""
        return prune_tile_wise(importances, sparsity, height=self.height)

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles of `height` consecutive rows."""
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical)


PERCENT = 5


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

    def __post_init__(self) -> None:
        if self.percent > 50:
            raise BadInput(f"pattern {self.family}: wanted at most 50 % at either end, got {self.percent}")

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Tiles whose clearest segments unstructured pruning has decided about."""
        scored, shares = _scored(importances, self.height), {}
        for name, mask in prune_unstructured(importances, sparsity).items():
            m, height = mask.shape[0], self.height
            shares[name] = row_sums(mask, piece_starts(m, height), power=1) / piece_sizes(m, height)[:, None]
        ranks = _decided(scored, shares, self.percent)
        return _without_lowest(importances, ranks, sparsity, self.height)
