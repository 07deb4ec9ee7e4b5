"""`dense`: keep everything. The baseline that every pattern is measured against."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tiling import tile_map_from_mask

DENSE_TILE_HEIGHT = 128
"""Rows per tile of a dense map; any height describes the same matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DensePattern(Pattern):
    """All elements of every layer."""

    family: ClassVar[str] = "dense"
    example: ClassVar[str] = "dense"
    meaning: ClassVar[str] = "nothing is removed"
    keeps: ClassVar[Kept] = "tiles"
    ranks: ClassVar[bool] = False

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """0, which may be left out."""
        if sparsity:
            raise BadInput(f"dense only has sparsity 0, got {sparsity}")
        return 0.0

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """All True."""
        return {name: np.ones(scores.shape, dtype=np.bool_) for name, scores in importances.items()}

    def room(self, within: MaskArray) -> MaskArray:
        """All; what is pruned already is not dense."""
        if not within.all():
            pruned = within.size - np.count_nonzero(within)
            raise BadInput(f"within: dense keeps everything, wanted all True, got {pruned} False")
        return within

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles of `DENSE_TILE_HEIGHT` rows with all columns."""
        check_mask(mask, self.canonical)
        if not mask.all():
            raise BadInput(f"mask is not dense: {mask.size - np.count_nonzero(mask)} elements are pruned")
        return tile_map_from_mask(mask, height=DENSE_TILE_HEIGHT, pattern=self.canonical)
