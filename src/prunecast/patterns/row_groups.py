"""Rows that keep alike, put together: balanced clustering of rows into groups of given sizes.

Shfl-BW (Huang et al., DAC'22) lets any rows form a group. Its released code holds no pruner; the way here
follows its outline, from an unstructured mask at a lower sparsity to clusters of equal size. Our own are
the start (rows far from each other), the centre (mean signature of a group), the assignment (all pairs of
row and group in order of similarity) and the density of the signatures.
"""

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray

SIGNATURE_DENSITY = 1.5
"""A signature keeps half as many elements again as the pattern will, at most all."""

ROUNDS = 10
"""Most updates of the centres; they settle in fewer."""

SignatureArray = npt.NDArray[np.float32]


def consecutive(m: int, height: int) -> CountArray:
    """(M,) int64: group of each row where groups are `height` neighbours, the last one maybe fewer."""
    return np.arange(m, dtype=np.int64) // height


def group_sums(scores: ImportanceArray, group_of_row: CountArray) -> ImportanceArray:
    """(groups, K) float64: importance of each column summed over the rows of a group; no group is empty."""
    order = np.argsort(group_of_row, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(group_of_row))[:-1])
    return np.array([scores[rows].sum(axis=0, dtype=np.float64) for rows in groups])


def cluster_rows(scores: ImportanceArray, sparsity: float, *, height: int) -> CountArray:
    """(M,) int64: group of each row; groups have the sizes of `consecutive` ones.

    Parameters
    ----------
    scores : importance (M, K)
    sparsity : that the pattern will have; signatures keep more
    height : rows per group

    """
    kept = signatures(scores, 1.0 - SIGNATURE_DENSITY * (1.0 - sparsity))
    return cluster_signatures(kept, np.bincount(consecutive(scores.shape[0], height)))


def cluster_signatures(kept: SignatureArray, sizes: CountArray) -> CountArray:
    """(M,) int64: group of each row of `kept` (M, K), 0 or 1, in groups of the given sizes."""
    group_of_row = _assign(_similarity(kept, kept[_distant_rows(kept, sizes.size)]), sizes)
    for _ in range(ROUNDS):
        centres = (group_sums(kept, group_of_row) / sizes[:, None]).astype(np.float32)
        moved = _assign(_similarity(kept, centres), sizes)
        if (moved == group_of_row).all():
            break
        group_of_row = moved
    return group_of_row


def signatures(scores: ImportanceArray, sparsity: float) -> SignatureArray:
    """(M, K) float32: 1 from the matrix's quantile `sparsity` up, else 0; all 1 at a sparsity up to 0.

    What is not important at all has no 1, even where the quantile is 0.
    """
    if sparsity <= 0.0:
        return np.ones(scores.shape, dtype=np.float32)
    place = min(int(sparsity * scores.size), scores.size - 1)
    threshold = np.partition(scores, place, axis=None)[place]
    kept: SignatureArray = ((scores >= threshold) & (scores > 0)).astype(np.float32)
    return kept


def _distant_rows(kept: SignatureArray, count: int) -> CountArray:
    """(count,): the row that keeps most, then always the one furthest from those before; lower rows first."""
    squares = kept.sum(axis=1)
    chosen = [int(squares.argmax())]
    distance = np.full(kept.shape[0], np.inf, dtype=np.float32)
    for _ in range(count - 1):
        newest = kept[chosen[-1]]
        distance = np.minimum(distance, squares + newest.sum() - 2 * (kept @ newest))
        chosen.append(int(distance.argmax()))
    return np.array(chosen)


def _similarity(kept: SignatureArray, centres: SignatureArray) -> SignatureArray:
    """(M, groups): overlap with each centre less half the centre's own, as in k-means."""
    own = np.float32(0.5) * np.square(centres).sum(axis=1)
    similarity: SignatureArray = kept @ centres.T - own
    return similarity


def _assign(similarity: SignatureArray, sizes: CountArray) -> CountArray:
    """Each row to the group it is most like while there is room: best pairs first, then lower rows.

    Pairs compete by how much better the group is than the row's average one.
    """
    lead = similarity - similarity.mean(axis=1, keepdims=True)
    group_of_row = np.full(similarity.shape[0], -1, dtype=np.int64)
    room = sizes.tolist()
    for pair in np.argsort(-lead, axis=None, kind="stable").tolist():
        row, group = divmod(pair, sizes.size)
        if room[group] and group_of_row[row] < 0:
            group_of_row[row] = group
            room[group] -= 1
    return group_of_row


def alike_rows(mask: MaskArray) -> list[CountArray]:
    """Rows that keep the same columns, ascending, class by class."""
    if mask.shape[0] == 0:
        return []
    packed = np.packbits(mask, axis=1)
    whole_rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    inverse = np.unique(whole_rows, return_inverse=True)[1]
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)


def tiles_of_alike_rows(mask: MaskArray, height: int, pattern: str) -> list[CountArray]:
    """Rows of each tile: `height` that keep the same columns, one tile with the M % `height` left over.

    Tiles come in the order of their first rows. Of more rows than `height` that keep the same, the first form
    the first tile.

    Raises
    ------
    BadInput : rows that keep the same columns make no tiles

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
    return sorted(tiles, key=lambda rows: int(rows[0]))
