"""Masks that matrices state by their zeros: what a pattern once pruned, it finds again."""

from collections.abc import Callable, Mapping

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray


def stated_masks(
    importances: Mapping[str, ImportanceArray], sparsity: float, has_pattern: Callable[[MaskArray], object]
) -> dict[str, MaskArray] | None:
    """The masks of what is not zero, where they have the pattern and the sparsity; else None.

    They retain everything, which no search for better groups can exceed.

    Parameters
    ----------
    has_pattern : raises BadInput for a mask that does not have the pattern
    """
    masks = {name: np.asarray(scores != 0) for name, scores in importances.items()}
    elements = sum(mask.size for mask in masks.values())
    removed = 1.0 - sum(int(np.count_nonzero(mask)) for mask in masks.values()) / max(elements, 1)
    # patterns deal in whole columns and fours, of a row one more or less
    columns = min((mask.shape[1] for mask in masks.values()), default=1)
    if removed == 0.0 or abs(removed - sparsity) >= 2.0 / columns:
        return None
    try:
        for mask in masks.values():
            has_pattern(mask)
    except BadInput:
        return None
    return masks
