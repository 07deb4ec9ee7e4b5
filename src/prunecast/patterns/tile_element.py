"""`tile-element:128` (TEW): tiles as in tile-wise, and the best single elements that tiles would lose.

The mix of Guo et al. (SC'20): prune tiles at s + d, then bring back the most important d of all elements,
wherever they stand. The tiles run on tensor cores, the rest as a sparse remainder; d is 5 % as in the
authors' released code for TW-1D. Our own choices: the sparsity is met to the element, elements compete by
their importance (tiles by its root mean square), and of equal elements the earlier one is brought back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import elements_to_prune, keep_highest, piece_sizes, piece_starts
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tile_wise import prune_tile_wise
from prunecast.patterns.tiling import tile_map_from_mask
from prunecast.patterns.within import importance_within, whole_columns

PERCENT = 5
"""Elements that are brought back, in percent of all."""


class TileElementParts(NamedTuple):
    """A mask in two parts without a common element."""

    tiles: TileMap
    """Columns that all rows of a tile keep."""
    rest: ElementMap
    """Every other kept element."""


def _bring_back(
    importances: Mapping[str, ImportanceArray], tiled: Mapping[str, MaskArray], sparsity: float
) -> dict[str, MaskArray]:
    """`tiled` and, of all elements outside, the most important ones that the sparsity allows."""
    total = sum(scores.size for scores in importances.values())
    lost = {name: scores[~tiled[name]] for name, scores in importances.items()}
    one_each = {name: np.ones(1, dtype=np.int64) for name in importances}
    back = keep_highest(lost, one_each, elements_to_prune(sparsity, total))
    masks = {name: mask.copy() for name, mask in tiled.items()}
    for name, mask in masks.items():
        mask[~mask] = back[name]
    return masks


@dataclass(frozen=True, slots=True, kw_only=True)
class TileElementPattern(Pattern):
    """Tiles of `height` consecutive rows, and `percent` of all elements besides.

    Spelled `tile-element:HEIGHT` or `tile-element:HEIGHTxPERCENT`.
    """

    family: ClassVar[str] = "tile-element"
    example: ClassVar[str] = "tile-element:128"
    meaning: ClassVar[str] = "as tile-wise, then the best PERCENT of all weights come back (HEIGHTxPERCENT)"

    height: int
    percent: int = PERCENT

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """As given, refused where tiles would have to prune everything."""
        wanted = Pattern.sparsity_to_prune(self, sparsity)
        most = 1.0 - self.percent / 100
        if wanted >= most:
            raise BadInput(
                f"{self.canonical} brings {self.percent} % back: wanted a sparsity below {most:.4g}, "
                f"got {sparsity}"
            )
        return wanted

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Tiles at the sparsity and `percent`, then the best of what they took come back."""
        tiled = prune_tile_wise(importances, sparsity + self.percent / 100, height=self.height)
        return _bring_back(importances, tiled, sparsity)

    def masks_within(
        self, importances: Mapping[str, ImportanceArray], sparsity: float, within: Mapping[str, MaskArray]
    ) -> dict[str, MaskArray]:
        """Tiles of whole segments that are left, then the best single elements that are left."""
        left = {name: importance_within(scores, within[name]) for name, scores in importances.items()}
        whole = {name: whole_columns(mask, self.height) for name, mask in within.items()}
        tiled = prune_tile_wise(
            {name: np.where(whole[name], scores, 0) for name, scores in left.items()},
            sparsity + self.percent / 100,
            height=self.height,
        )
        kept = {name: tiled[name] & whole[name] for name in within}
        masks = _bring_back(left, kept, sparsity)
        return {name: masks[name] & within[name] for name in importances}

    def map(self, mask: MaskArray) -> ElementMap:
        """All kept elements in compressed rows. Any mask will do: its tiles may be empty."""
        return element_map_from_mask(mask, self.canonical)

    def parts(self, mask: MaskArray) -> TileElementParts:
        """The kept elements in two parts, tiles for a tile kernel and the rest for a sparse one. Raises
        BadInput.
        """
        check_mask(mask, self.canonical)
        m = mask.shape[0]
        whole = np.logical_and.reduceat(mask, piece_starts(m, self.height), axis=0)
        tiled = np.repeat(whole, piece_sizes(m, self.height), axis=0)
        return TileElementParts(
            tiles=tile_map_from_mask(tiled, height=self.height, pattern=self.canonical),
            rest=element_map_from_mask(mask & ~tiled, self.canonical),
        )
