"""Pruning what is pruned already: importance where only some elements may be kept, masks found again.

What is out scores nothing and what is in scores more than that, however little: whatever takes the lowest
pieces first then takes the pruned ones before any other.
"""

from collections.abc import Callable, Mapping

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import piece_sizes, piece_starts
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray

LEAST = {"float32": 1e-37, "float64": 1e-150}
"""Importance of what may be kept is raised to this: its square is no zero in float64."""


def checked_within(within: Mapping[str, MaskArray], importances: Mapping[str, ImportanceArray]) -> None:
    """Refuse what is no bool mask of a layer's shape. Raises BadInput that names the layer."""
    for name, mask in within.items():
        if name not in importances:
            raise BadInput(f"within: wanted masks of {', '.join(importances)}, got one of {name!r}")
        shape = importances[name].shape
        if mask.dtype != np.bool_ or mask.shape != shape:
            raise BadInput(
                f"within of {name!r}: wanted a bool mask of shape {shape}, got {mask.dtype} of {mask.shape}"
            )


def importance_within(scores: ImportanceArray, room: MaskArray) -> ImportanceArray:
    """`scores` (M, K) where `room` is True, but more than 0; 0 elsewhere."""
    least = scores.dtype.type(LEAST[scores.dtype.name])
    return np.where(room, np.maximum(scores, least), scores.dtype.type(0))


def is_everything(within: Mapping[str, MaskArray]) -> bool:
    """Whether nothing is pruned yet."""
    return all(mask.all() for mask in within.values())


def whole_columns(mask: MaskArray, height: int) -> MaskArray:
    """`mask` without the columns of a tile of `height` consecutive rows that only some of its rows keep."""
    m = mask.shape[0]
    whole = np.logical_and.reduceat(mask, piece_starts(m, height), axis=0)
    return np.repeat(whole, piece_sizes(m, height), axis=0)


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
