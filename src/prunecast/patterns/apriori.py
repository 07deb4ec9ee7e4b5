"""`apriori:128`: tile-wise that asks unstructured pruning first, which segments are beyond doubt.

A-priori tuning is part of Guo et al., SC'20: what element-wise pruning does to a layer decides about some of
the pieces before they are ranked. No released code shows it; the rule here is our own. At the sparsity
wanted, single elements are pruned over the whole group of layers. Of all segments, the `percent` of which
the least share of elements is left go first, and the `percent` of which most is left go last. All others, and
those among themselves, rank as in `tile_wise`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import elements_to_prune, keep_highest
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, parse_sizes
from prunecast.patterns.segments import broadcast_sizes, piece_sizes, piece_starts, row_sums
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.tile_wise import SANE, TileWisePattern, segment_scores
from prunecast.patterns.unstructured import prune_unstructured

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
