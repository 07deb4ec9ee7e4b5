"""`2:4` and every other N:M: of M neighbours in a row, the N most important stay."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import MatrixShape, Pattern, check_sparsity, parse_sizes
from prunecast.patterns.tile_map import MaskArray, check_mask
from prunecast.patterns.windows import keep_in_windows, kept_in_windows


def kept_in_tail(tail: int, *, n: int, m: int) -> int:
    """Elements kept in a last group of only `tail` elements: tail * n / m, halves rounded up."""
    return (2 * tail * n + m) // (2 * m)


def prune_n_of_m(scores: ImportanceArray, *, n: int, m: int) -> MaskArray:
    """Mask (M, K) that keeps the `n` highest of every `m` neighbours along K, row by row.

    Of equal scores the lower column is kept. Where K is no multiple of `m`, the last group keeps
    `kept_in_tail`.
    """
    tail = kept_in_tail(scores.shape[1] % m, n=n, m=m)
    return keep_in_windows(scores, width=m, keep=n, keep_in_tail=tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class NOfMPattern(Pattern):
    """`n` of every `m` neighbours along K."""

    family: ClassVar[str] = "n-of-m"
    example: ClassVar[str] = "2:4"
    meaning: ClassVar[str] = "of every M neighbours in a row, N stay"

    n: int
    m: int

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """From `2:4`; n may not exceed m."""
        n, m = parse_sizes(argument, ("n", "m"), cls.example)
        if n > m:
            raise BadInput(f"pattern N:M keeps N of M: wanted N <= M, got {n}:{m}")
        return cls(n=n, m=m)

    @property
    def canonical(self) -> str:
        """`2:4`, without the family's name."""
        return f"{self.n}:{self.m}"

    @property
    def smallest(self) -> MatrixShape:
        """One whole group."""
        return MatrixShape(1, self.m)

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """1 - n / m, which may be left out."""
        own = 1.0 - self.n / self.m
        if sparsity is not None and abs(check_sparsity(sparsity) - own) > 1e-9:
            raise BadInput(
                f"{self.canonical} only has sparsity {own:.4g}, got {sparsity}; {self._nearest(sparsity)}"
            )
        return own

    def _nearest(self, sparsity: float) -> str:
        n = max(1, round((1.0 - sparsity) * self.m))
        return f"the nearest N:{self.m} is {n}:{self.m} with {1.0 - n / self.m:.4g}"

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_n_of_m`; layers do not compete."""
        return {name: prune_n_of_m(scores, n=self.n, m=self.m) for name, scores in importances.items()}

    def map(self, mask: MaskArray) -> ElementMap:
        """Kept elements in compressed rows; a group may keep fewer than it could, never more."""
        check_mask(mask, self.canonical)
        kept = kept_in_windows(mask, self.m)
        allowed = np.full(kept.shape[1], self.n)
        if tail := mask.shape[1] % self.m:
            allowed[-1] = kept_in_tail(tail, n=self.n, m=self.m)
        if (over := kept > allowed).any():
            row, group = (int(index[0]) for index in np.nonzero(over))
            raise BadInput(
                f"mask is not {self.canonical}: row {row} keeps {kept[row, group]} of the {self.m} columns "
                f"from {group * self.m}"
            )
        return element_map_from_mask(mask, self.canonical)
