"""`zeros`: the matrix comes pruned already; keep what is not zero in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from prunecast.errors import BadInput
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap


@dataclass(frozen=True, slots=True, kw_only=True)
class ZerosPattern(Pattern):
    """The mask that the file states. Sources with stored zeros say so: hand in `Layer.kept` as importance."""

    family: ClassVar[str] = "zeros"
    example: ClassVar[str] = "zeros"
    meaning: ClassVar[str] = "the weights are pruned already: what is not zero stays"
    ranks: ClassVar[bool] = False

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Not a choice: the file has the sparsity it has."""
        if sparsity is not None:
            raise BadInput(f"{self.family} takes its sparsity from the file: wanted none, got {sparsity}")
        return 0.0

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """True where the importance is not zero."""
        return {name: scores != 0 for name, scores in importances.items()}

    def masks_within(
        self, importances: Mapping[str, ImportanceArray], sparsity: float, within: Mapping[str, MaskArray]
    ) -> dict[str, MaskArray]:
        """What is in the matrix and may be kept."""
        masks = self.masks(importances, sparsity)
        return {name: masks[name] & self.room(within[name]) for name in importances}

    def map(self, mask: MaskArray) -> TileMap | ElementMap:
        """Kept elements in compressed rows."""
        return element_map_from_mask(mask, self.canonical)
