"""Balanced clustering: put rows with similar kept columns into groups of given sizes.

Shfl-BW (Huang et al., DAC'22) allows any rows to form a group. Its released code contains no pruner. The
method here follows the outline of the paper, from an unstructured mask at a lower sparsity to clusters of
equal size. Our own choices are the initial centres (rows far from each other), the centre of a group (its
mean signature), the assignment (all pairs of row and group in order of similarity) and the density of the
signatures.
"""

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.tiling import RowTiles

SIGNATURE_DENSITY = 1.5
"""Number of elements kept by the signatures (the unstructured mask whose rows are clustered), divided by the
number that the pattern will keep. If the quotient would exceed all elements, all are kept."""

ROUNDS = 10
"""Maximum number of updates of the centres; they converge in fewer."""

SignatureArray = npt.NDArray[np.float32]


def consecutive(m: int, height: int) -> CountArray:
    """Return the group of each row, (M,) int64: `height` neighbours form a group; the last may be smaller."""
    return np.arange(m, dtype=np.int64) // height


def cluster_rows(scores: ImportanceArray, sparsity: float, *, height: int) -> CountArray:
    """Return the group of each row, (M,) int64, with similar rows in one group.

    Groups have `height` rows each; the last one has the remaining rows.

    Parameters
    ----------
    scores : importance (M, K)
    sparsity : sparsity of the pattern; signatures keep `SIGNATURE_DENSITY` times as many elements as it
    height : rows per group
    """
    kept = signatures(scores, 1.0 - SIGNATURE_DENSITY * (1.0 - sparsity))
    return cluster_signatures(kept, np.bincount(consecutive(scores.shape[0], height)))


def cluster_signatures(kept: SignatureArray, sizes: CountArray) -> CountArray:
    """Return the group of each row, (M,) int64, with similar rows in one group.

    Parameters
    ----------
    kept : signatures (M, K), 0 or 1
    sizes : number of rows of each group
    """
    if sizes.size == 1:
        return np.zeros(kept.shape[0], dtype=np.int64)
    group_of_row = assign_rows(_similarity(kept, kept[_distant_rows(kept, sizes.size)]), sizes)
    for _ in range(ROUNDS):
        centres = (RowTiles.of_groups(group_of_row).sums(kept) / sizes[:, None]).astype(np.float32)
        moved = assign_rows(_similarity(kept, centres), sizes)
        if (moved == group_of_row).all():
            break
        group_of_row = moved
    return group_of_row


def signatures(scores: ImportanceArray, sparsity: float) -> SignatureArray:
    """Return (M, K) float32: 1 where scores reach the quantile `sparsity` of the matrix, else 0.

    If the sparsity is 0 or negative, all elements are 1. Otherwise scores of 0 give 0, even if the quantile
    is 0.
    """
    if sparsity <= 0.0:
        return np.ones(scores.shape, dtype=np.float32)
    place = min(int(sparsity * scores.size), scores.size - 1)
    threshold = np.partition(scores, place, axis=None)[place]
    kept: SignatureArray = ((scores >= threshold) & (scores > 0)).astype(np.float32)
    return kept


def _distant_rows(kept: SignatureArray, count: int) -> CountArray:
    """Return the numbers of `count` rows that are far apart, (count,).

    The first is the row that keeps most elements. Each further row has the largest distance to its nearest
    row among the rows already chosen. Of equal rows the lower one is chosen.
    """
    squares = kept.sum(axis=1)
    chosen = [int(squares.argmax())]
    distance = np.full(kept.shape[0], np.inf, dtype=np.float32)
    for _ in range(count - 1):
        newest = kept[chosen[-1]]
        distance = np.minimum(distance, squares + newest.sum() - 2 * (kept @ newest))
        chosen.append(int(distance.argmax()))
    return np.array(chosen)


def _similarity(kept: SignatureArray, centres: SignatureArray) -> SignatureArray:
    """Return the overlap of each row with each centre minus half the centre's squared norm, (M, groups).

    The largest value belongs to the nearest centre, as in k-means.
    """
    own = np.float32(0.5) * np.square(centres).sum(axis=1)
    similarity: SignatureArray = kept @ centres.T - own
    return similarity


def assign_rows(similarity: SignatureArray, sizes: CountArray) -> CountArray:
    """Return the group of each row, (M,) int64: the most similar group that is not full.

    Pairs of row and group are assigned in descending order of their similarity minus the row's mean
    similarity to all groups. Of equal pairs the lower row is first.

    Parameters
    ----------
    similarity : (M, groups)
    sizes : number of rows of each group
    """
    lead = similarity - similarity.mean(axis=1, keepdims=True)
    group_of_row = np.full(similarity.shape[0], -1, dtype=np.int64)
    room, left = sizes.copy(), np.arange(similarity.shape[0])
    while left.size:
        # Assign rows in order to their best group with space, until a row's group is full
        best = lead[left].argmax(axis=1)
        order = np.argsort(-lead[left, best], kind="stable")
        wanted = best[order]
        before = np.cumsum(wanted[:, None] == np.arange(sizes.size), axis=0)
        late = before[np.arange(left.size), wanted] > room[wanted]
        stop = int(late.argmax()) if late.any() else left.size
        group_of_row[left[order[:stop]]] = wanted[:stop]
        room -= np.bincount(wanted[:stop], minlength=sizes.size)
        left = np.sort(left[order[stop:]])
        lead[:, room == 0] = -np.inf
    return group_of_row


def alike_rows(mask: MaskArray) -> list[CountArray]:
    """Return one array of row numbers, ascending, for each set of rows that keep the same columns."""
    if mask.shape[0] == 0:
        return []
    packed = np.packbits(mask, axis=1)
    whole_rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    inverse = np.unique(whole_rows, return_inverse=True)[1]
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)


def tiles_of_alike_rows(mask: MaskArray, height: int, pattern: str) -> RowTiles:
    """Return tiles of `height` rows with the same kept columns.

    If `height` does not divide M, one tile has the remaining M % `height` rows. Tiles are in the order of
    their first rows. If more than `height` rows keep the same columns, they form several tiles in row order.

    Raises
    ------
    BadInput : rows with the same kept columns whose number does not form tiles
    """
    tiles: list[CountArray] = []
    left = mask.shape[0] % height
    for rows in alike_rows(mask):
        over = rows.size % height
        if over not in (0, left):
            raise BadInput(
                f"mask is not {pattern}: {rows.size} rows keep the columns of row {rows[0]}, which makes no "
                f"tiles of {height}"
            )
        left -= over
        tiles += np.split(rows, np.arange(height, rows.size, height))
    return RowTiles.of_members(tiles).by_first_row()
