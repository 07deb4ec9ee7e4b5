"""`2:4` and other N:M patterns: of every M neighbours in a row, the N most important are kept.

`keep_in_windows` is used by all patterns that keep the same number of elements in every window of a row.

`balanced:64`: every segment of 64 neighbours in a row keeps the same number of elements.

`balanced` is the pattern of Yao et al., "Balanced Sparsity for Efficient DNN Inference on GPU" (AAAI'19):
each segment has its own threshold, so that all lanes of a warp get equal work. Our own choices, where the
paper gives no rule: a segment prunes the fewest elements that reach the sparsity (58 of 64 at 0.9), and so
does a shorter last segment where the width does not divide K; of equal scores the lower column is kept.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.cut import elements_to_prune
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import MatrixShape, Pattern, check_sparsity
from prunecast.patterns.tile_map import MaskArray, check_mask

SMALL_WINDOW = 16
"""Largest width at which comparing all pairs is faster than a selection in each window."""

ROWS_AT_ONCE = 64
"""Number of rows that are ranked at a time, so that temporary arrays stay in the CPU caches."""
SUMMED_AT_ONCE = 2**16
"""Number of elements that `retained_by_two_of_four` sums at a time, for the same reason."""
ROWS_CHECKED = 1024
"""Number of rows whose windows are counted at a time. Kind: choice, a count needs 4 bytes."""
WORDS = {4: np.uint32, 8: np.uint64}
"""Window width -> unsigned integer type of as many bytes; an element of a mask is one byte."""


def keep_in_windows(scores: ImportanceArray, *, width: int, keep: int, keep_in_tail: int) -> MaskArray:
    """Return a mask (M, K) that keeps the `keep` highest of every `width` neighbours along K, row by row.

    Of equal scores the lower column is kept. Where K is no multiple of `width`, the last window is shorter
    and keeps `keep_in_tail`.
    """
    mask = np.empty(scores.shape, dtype=np.bool_)
    full = scores.shape[1] // width * width
    for start in range(0, scores.shape[0], ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        own = scores[rows]
        if own.dtype == np.float16:
            own = own.astype(np.float32)  # comparisons are faster
        if full:
            mask[rows, :full] = _keep_highest(own[:, :full].reshape(-1, width), keep).reshape(-1, full)
        if full < scores.shape[1]:
            mask[rows, full:] = _keep_highest(own[:, full:], keep_in_tail)
    return mask


def kept_in_windows(mask: MaskArray, width: int) -> npt.NDArray[np.int32]:
    """Return the kept elements of every window of a row, (M, windows); the last window may be shorter."""
    whole = mask.shape[1] // width * width
    if width in WORDS and whole == mask.shape[1]:
        # A kept element is a byte with one bit set. Counting bits of words is seven times as fast as adding
        words = np.ascontiguousarray(mask).view(WORDS[width])
        kept: npt.NDArray[np.int32] = np.bitwise_count(words).astype(np.int32)
        return kept
    return np.add.reduceat(mask, np.arange(0, mask.shape[1], width), axis=1, dtype=np.int32)


def _keep_highest(groups: ImportanceArray, count: int) -> MaskArray:
    """Return (groups, size) flags of the `count` highest of each group; of equal scores the first is kept."""
    if count in (0, groups.shape[1]):
        return np.full(groups.shape, count > 0)
    if groups.shape[1] <= SMALL_WINDOW:
        ranked: MaskArray = _rank(groups) < count
        return ranked
    threshold = np.partition(groups, -count, axis=1)[:, -count, None]
    kept: MaskArray = groups > threshold
    tied = groups == threshold
    missing = count - kept.sum(axis=1, keepdims=True)
    kept |= tied & (np.cumsum(tied, axis=1) <= missing)
    return kept


def _rank(groups: ImportanceArray) -> npt.NDArray[np.uint8]:
    """Return the number of members of the group that rank above each member, (groups, size)."""
    places = np.ascontiguousarray(groups.T)
    rank: npt.NDArray[np.uint8] = np.zeros(places.shape, dtype=np.uint8)
    for low in range(places.shape[0]):
        for high in range(low + 1, places.shape[0]):
            low_wins = places[low] >= places[high]
            rank[high] += low_wins
            rank[low] += ~low_wins
    return rank.T


def kept_in_tail(tail: int, *, n: int, m: int) -> int:
    """Return the elements kept in a last group of only `tail` elements: tail * n / m, halves rounded up."""
    return (2 * tail * n + m) // (2 * m)


def prune_n_of_m(scores: ImportanceArray, *, n: int, m: int) -> MaskArray:
    """Return a mask (M, K) that keeps the `n` highest of every `m` neighbours along K, row by row.

    Of equal scores the lower column is kept. Where K is no multiple of `m`, the last group keeps
    `kept_in_tail`.
    """
    tail = kept_in_tail(scores.shape[1] % m, n=n, m=m)
    return keep_in_windows(scores, width=m, keep=n, keep_in_tail=tail)


def retained_by_two_of_four(importance: ImportanceArray) -> float:
    """Return the importance that 2:4 retains, the sum over the mask of `prune_n_of_m`, without that mask.

    In each group of four it is the sum of the best pair. Rows are processed a few at a time, so that all data
    stay in the L2 cache of the CPU. This needs a quarter of the time of processing all rows at once.
    """
    columns = importance.shape[1]
    whole, at_once = columns // 4 * 4, max(SUMMED_AT_ONCE // max(columns, 1), 1)
    best_of_tail = -np.sort(-importance[:, whole:], axis=1)[:, : kept_in_tail(columns % 4, n=2, m=4)]
    chunks = (importance[row : row + at_once, :whole] for row in range(0, len(importance), at_once))
    return float(best_of_tail.sum(dtype=np.float64)) + sum(_best_pairs(rows) for rows in chunks)


def _best_pairs(rows: ImportanceArray) -> float:
    a, b, c, d = (np.ascontiguousarray(rows[:, place::4]) for place in range(4))
    best = np.maximum(a, b) + np.maximum(c, d)
    np.maximum(best, a + b, out=best)
    np.maximum(best, c + d, out=best)
    return float(best.sum(dtype=np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class NOfMPattern(Pattern):
    """Pattern in which each row keeps at most `n` of every `m` neighbours along K."""

    family: ClassVar[str] = "n-of-m"
    example: ClassVar[str] = "2:4"
    meaning: ClassVar[str] = "of every M neighbours in a row, N stay"
    by_blocks: ClassVar[bool] = True

    n: int
    m: int

    def __post_init__(self) -> None:
        if self.n > self.m:
            raise BadInput(f"pattern N:M keeps N of M: wanted N <= M, got {self.canonical}")

    @property
    def canonical(self) -> str:
        """Return the pattern string, like `2:4`, without the family's name."""
        return f"{self.n}:{self.m}"

    @property
    def smallest(self) -> MatrixShape:
        """Return the smallest matrix that can be pruned: one whole group."""
        return MatrixShape(1, self.m)

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Return 1 - n / m, the only sparsity of the pattern. Raises BadInput for any other."""
        own = 1.0 - self.n / self.m
        if sparsity is not None and abs(check_sparsity(sparsity) - own) > 1e-9:
            n = max(1, round((1.0 - sparsity) * self.m))
            raise BadInput(
                f"{self.canonical} only has sparsity {own:.4g}, got {sparsity}; the nearest N:{self.m} is "
                f"{n}:{self.m} with {1.0 - n / self.m:.4g}"
            )
        return own

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """Return the mask (M, K) that `prune_n_of_m` makes."""
        return prune_n_of_m(scores, n=self.n, m=self.m)

    def map(self, mask: MaskArray) -> ElementMap:
        """Return the kept elements in compressed rows. A group may keep fewer than n elements.

        Raises BadInput if a group keeps more.
        """
        check_mask(mask, self.canonical)
        allowed = np.full(-(-mask.shape[1] // self.m), self.n)
        if tail := mask.shape[1] % self.m:
            allowed[-1] = kept_in_tail(tail, n=self.n, m=self.m)
        for first in range(0, mask.shape[0], ROWS_CHECKED):
            kept = kept_in_windows(mask[first : first + ROWS_CHECKED], self.m)
            if (over := kept > allowed).any():
                row, group = (int(index[0]) for index in np.nonzero(over))
                raise BadInput(
                    f"mask is not {self.canonical}: row {first + row} keeps {kept[row, group]} of the "
                    f"{self.m} columns from {group * self.m}"
                )
        return element_map_from_mask(mask, self.canonical)


def prune_balanced(scores: ImportanceArray, sparsity: float, *, width: int) -> MaskArray:
    """Return a mask (M, K) that prunes the lowest elements of each segment of `width` columns of a row."""
    tail = scores.shape[1] % width
    keep, keep_in_tail = (size - elements_to_prune(sparsity, size) for size in (width, tail))
    return keep_in_windows(scores, width=width, keep=keep, keep_in_tail=keep_in_tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedPattern(Pattern):
    """Segments of `width` columns of a row that keep equal numbers of elements.

    The last segment of a row may be shorter.
    """

    family: ClassVar[str] = "balanced"
    example: ClassVar[str] = "balanced:64"
    meaning: ClassVar[str] = "every segment of WIDTH columns of a row keeps equally many"
    by_blocks: ClassVar[bool] = True

    width: int

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Return the sparsity as given. Raises BadInput if a segment would keep no element."""
        wanted = Pattern.sparsity_to_prune(self, sparsity)
        if elements_to_prune(wanted, self.width) == self.width:
            most = 1.0 - 1.0 / self.width
            raise BadInput(
                f"{self.canonical} keeps at least 1 of {self.width}: wanted a sparsity up to {most:.4g}, "
                f"got {sparsity}"
            )
        return wanted

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """Return the mask (M, K) that `prune_balanced` makes."""
        return prune_balanced(scores, sparsity, width=self.width)

    def map(self, mask: MaskArray) -> ElementMap:
        """Return the kept elements in compressed rows.

        Raises
        ------
        BadInput : whole segments keep different numbers of elements, or short last segments do
        """
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
