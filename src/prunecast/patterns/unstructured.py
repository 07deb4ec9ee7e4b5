"""`unstructured`: single elements, the most important ones wherever they stand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.patterns.cut import elements_to_prune, keep_highest
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Pattern
from prunecast.patterns.tile_map import MaskArray


def prune_unstructured(importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
    """Masks (M, K) without the lowest elements of the whole group of layers."""
    total = sum(scores.size for scores in importances.values())
    one_each = {name: np.ones((1, 1), dtype=np.int64) for name in importances}
    return keep_highest(importances, one_each, elements_to_prune(sparsity, total))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnstructuredPattern(Pattern):
    """Any mask at all."""

    family: ClassVar[str] = "unstructured"
    example: ClassVar[str] = "unstructured"
    meaning: ClassVar[str] = "single weights, wherever they stand"

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_unstructured`."""
        return prune_unstructured(importances, sparsity)

    def map(self, mask: MaskArray) -> ElementMap:
        """Kept elements in compressed rows."""
        return element_map_from_mask(mask, self.canonical)
