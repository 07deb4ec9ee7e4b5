"""`tile-element:128` (TEW): tile-wise pruning, plus the most important single elements outside of the tiles.

TEW of Guo et al. (SC'20) prunes tiles at the sparsity s + d and then restores the most important elements, a
fraction d of all, at any place. The tiles run on tensor cores and the restored elements as a sparse
remainder; d is 5 % as in the authors' released code for TW-1D. Our own choices: the sparsity is exact to the
element, elements rank by their importance (columns of tiles by its root mean square), and of equal elements
the earlier one is restored.

If only an element map is known, `split_parts` divides it into tiles and remainder. A segment is one column of
a tile. If enough rows of the tile keep an element in it, the whole segment is multiplied, zeros included. The
kept elements of the other segments are the remainder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import elements_of_all, keep_highest
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Pattern
from prunecast.patterns.tile_map import MaskArray, OfTiles, TileMap
from prunecast.patterns.tile_wise import TileWisePattern
from prunecast.patterns.tiling import RowTiles

PERCENT = 5
"""Default of the restored elements, in percent of all elements of the layers."""


@dataclass(frozen=True, slots=True, eq=False)
class TwoParts(OfTiles):
    """Kept elements of a layer, divided into tiles and a sparse remainder without overlap."""

    tiles: TileMap
    """Tiles. They may contain elements that are not kept, whose weights are zeros."""
    rest: ElementMap
    """Kept elements outside of the tiles."""

    @property
    def density(self) -> float:
        """Return the elements of tiles and remainder, divided by M * K."""
        return self.tiles.density + self.rest.density


def split_parts(kept: ElementMap, *, height: int, least_share: float) -> TwoParts:
    """Split kept elements into tiles and remainder.

    Parameters
    ----------
    kept : elements of A (M, K)
    height : consecutive rows of a tile; the last tile may have fewer
    least_share : fraction of a tile's rows that must keep an element of a column for the column to be in the
        tile; 1 for whole segments only, 0 for every column with a kept element

    Raises
    ------
    BadInput : a fraction outside 0 to 1
    """
    if not 0.0 <= least_share <= 1.0:
        raise BadInput(f"two parts: wanted a share of 0 to 1, got {least_share}")
    mask = kept.mask()
    tiles = RowTiles.of(np.arange(kept.m), height)
    keeping = tiles.sums(mask)
    whole = (keeping > 0) & (keeping >= least_share * tiles.heights[:, None])
    return TwoParts(
        tiles=tiles.tile_map(whole, kept.m, kept.pattern),
        rest=element_map_from_mask(mask & ~tiles.spread(whole, kept.m), kept.pattern),
    )


def highest_outside(
    importances: Mapping[str, ImportanceArray], taken: Mapping[str, MaskArray], to_prune: int
) -> dict[str, MaskArray]:
    """Return layer -> mask of kept elements outside of the masks `taken`; `to_prune` elements are pruned.

    The elements of lowest importance are pruned, by one ranking of all layers.
    """
    outside = {name: scores[~taken[name]] for name, scores in importances.items()}
    count = sum(scores.size for scores in outside.values())
    kept = keep_highest(outside, None, min(to_prune, count))
    found = {name: np.zeros_like(mask) for name, mask in taken.items()}
    for name, mask in found.items():
        mask[~taken[name]] = kept[name]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TileElementPattern(Pattern):
    """Tiles of `height` consecutive rows, plus single elements: the most important `percent` of all.

    The pattern string is `tile-element:HEIGHT` or `tile-element:HEIGHTxPERCENT`.
    """

    family: ClassVar[str] = "tile-element"
    example: ClassVar[str] = "tile-element:128"
    meaning: ClassVar[str] = "as tile-wise, then the best PERCENT of all weights come back (HEIGHTxPERCENT)"

    height: int
    percent: int = PERCENT

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Return the sparsity as given. Raises BadInput if tiles would have to prune everything."""
        wanted = Pattern.sparsity_to_prune(self, sparsity)
        most = 1.0 - self.percent / 100
        if wanted >= most:
            raise BadInput(
                f"{self.canonical} brings {self.percent} % back: wanted a sparsity below {most:.4g}, "
                f"got {sparsity}"
            )
        return wanted

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Prune tiles at the sparsity plus `percent`, then restore the most important pruned elements."""
        tiled = TileWisePattern(height=self.height).masks(importances, sparsity + self.percent / 100)
        rest = highest_outside(importances, tiled, elements_of_all(importances, sparsity))
        return {name: tiled[name] | rest[name] for name in tiled}

    def map(self, mask: MaskArray) -> ElementMap:
        """Return all kept elements in compressed rows. Any mask is valid, because tiles may be empty."""
        return element_map_from_mask(mask, self.canonical)
