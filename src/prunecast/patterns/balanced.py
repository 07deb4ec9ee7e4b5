"""`balanced:64`: every segment of `width` neighbours in a row keeps equally many elements.

The pattern of Yao et al., "Balanced Sparsity for Efficient DNN Inference on GPU" (AAAI'19): thresholds are
local to a segment, so all lanes of a warp get equal work. Our own choices, where the paper is silent: a
segment prunes as few elements as reach the sparsity (0.9 of 64 are 58), and so does a shorter last segment
where the width does not divide K; of equal scores the lower column is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import elements_to_prune
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.n_of_m import keep_in_windows, kept_in_windows
from prunecast.patterns.pattern import Pattern
from prunecast.patterns.tile_map import MaskArray, check_mask
from prunecast.patterns.within import importance_within


def prune_balanced(
    scores: ImportanceArray,
    sparsity: float,
    *,
    width: int,
    most: int | None = None,
    most_in_tail: int | None = None,
) -> MaskArray:
    """Mask (M, K) without the lowest elements of each segment of `width` columns of a row.

    No segment keeps more than `most`, no shorter last one more than `most_in_tail`, where these are given.
    """
    tail = scores.shape[1] % width
    keep, keep_in_tail = (size - elements_to_prune(sparsity, size) for size in (width, tail))
    return keep_in_windows(
        scores,
        width=width,
        keep=keep if most is None else min(keep, most),
        keep_in_tail=keep_in_tail if most_in_tail is None else min(keep_in_tail, most_in_tail),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedPattern(Pattern):
    """Segments of `width` columns, the last one of a row possibly shorter."""

    family: ClassVar[str] = "balanced"
    example: ClassVar[str] = "balanced:64"
    meaning: ClassVar[str] = "every segment of WIDTH columns of a row keeps equally many"

    width: int

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """As given, refused where no element of a segment would be left."""
        wanted = Pattern.sparsity_to_prune(self, sparsity)
        if elements_to_prune(wanted, self.width) == self.width:
            most = 1.0 - 1.0 / self.width
            raise BadInput(
                f"{self.canonical} keeps at least 1 of {self.width}: wanted a sparsity up to {most:.4g}, "
                f"got {sparsity}"
            )
        return wanted

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """See `prune_balanced`."""
        return prune_balanced(scores, sparsity, width=self.width)

    def masks_within(
        self, importances: Mapping[str, ImportanceArray], sparsity: float, within: Mapping[str, MaskArray]
    ) -> dict[str, MaskArray]:
        """Masks inside what earlier masks keep; where one segment may keep fewer elements, all segments keep
        as few.
        """
        masks = {}
        for name, scores in importances.items():
            left = importance_within(scores, within[name])
            most = kept_in_windows(within[name], self.width)
            full = most[:, : scores.shape[1] // self.width]
            masks[name] = prune_balanced(
                left,
                sparsity,
                width=self.width,
                most=int(full.min(initial=self.width)),
                most_in_tail=int(most[:, -1].min()),
            )
        return masks

    def map(self, mask: MaskArray) -> ElementMap:
        """Kept elements in compressed rows; whole segments keep equally many, so do short last ones."""
        check_mask(mask, self.canonical)
        kept = kept_in_windows(mask, self.width)
        wanted = np.full(kept.shape[1], kept[0, 0])
        if mask.shape[1] % self.width:
            wanted[-1] = kept[0, -1]
        if (other := kept != wanted).any():
            row, segment = (int(index[0]) for index in np.nonzero(other))
            raise BadInput(
                f"mask is not {self.canonical}: row {row} keeps {kept[row, segment]} of the columns from "
                f"{segment * self.width}, row 0 keeps {wanted[segment]} of a segment"
            )
        return element_map_from_mask(mask, self.canonical)
