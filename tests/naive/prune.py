"""Slow, obvious pruners: one loop per idea, exact fractions for targets. The oracle of `tests/patterns`.

Matrices are lists of rows of plain numbers; masks are lists of rows of bool. A group is a list of matrices
that share one sparsity.
"""

import itertools
import math
from fractions import Fraction


def target(sparsity, total):
    """Fewest elements that reach the sparsity, taken as the decimal that was written."""
    return math.ceil(Fraction(str(sparsity)) * total)


def cut(pieces, elements_to_prune):
    """Indices of the pieces that go: (score, elements) each, lower score first, later piece first."""
    order = sorted(range(len(pieces)), key=lambda index: (pieces[index][0], -index))
    gone, pruned = set(), 0
    for index in order:
        if pruned >= elements_to_prune:
            break
        gone.add(index)
        pruned += pieces[index][1]
    return gone


def size(group):
    return sum(len(matrix) * len(matrix[0]) for matrix in group)


def full_masks(group):
    return [[[True] * len(row) for row in matrix] for matrix in group]


def prune_cells(group, cells, scores, elements_to_prune):
    """Masks without the lowest pieces; a piece is (layer, list of (row, column))."""
    masks = full_masks(group)
    gone = cut(
        [(score, len(places)) for score, (_, places) in zip(scores, cells, strict=True)], elements_to_prune
    )
    for index in gone:
        layer, places = cells[index]
        for row, column in places:
            masks[layer][row][column] = False
    return masks


def unstructured(group, sparsity):
    cells = [
        (layer, [(i, j)])
        for layer, matrix in enumerate(group)
        for i in range(len(matrix))
        for j in range(len(matrix[0]))
    ]
    scores = [group[layer][i][j] for layer, [(i, j)] in cells]
    return prune_cells(group, cells, scores, target(sparsity, size(group)))


def block_sparse(group, sparsity, height, width, score="rms"):
    cells = []
    for layer, matrix in enumerate(group):
        m, k = len(matrix), len(matrix[0])
        for top in range(0, m, height):
            for left in range(0, k, width):
                rows, columns = range(top, min(top + height, m)), range(left, min(left + width, k))
                cells.append((layer, [(i, j) for i in rows for j in columns]))
    scores = []
    for layer, places in cells:
        values = [group[layer][i][j] for i, j in places]
        if score == "rms":
            scores.append(math.sqrt(sum(value * value for value in values) / len(values)))
        else:
            scores.append(sum(values) / len(values))
    return prune_cells(group, cells, scores, target(sparsity, size(group)))


def n_of_m(matrix, n, m):
    mask = [[False] * len(row) for row in matrix]
    for i, row in enumerate(matrix):
        for first in range(0, len(row), m):
            group = list(range(first, min(first + m, len(row))))
            keep = math.floor(Fraction(len(group) * n, m) + Fraction(1, 2))
            for j in sorted(group, key=lambda j: (-row[j], j))[:keep]:
                mask[i][j] = True
    return mask


def segment_score(values, length, divide_by_width):
    norm = math.sqrt(sum(value * value for value in values))
    return norm / length if divide_by_width else norm / math.sqrt(length)


def tile_wise(group, sparsity, height, divide_by_width=False):
    cells, scores = [], []
    for layer, matrix in enumerate(group):
        for top in range(0, len(matrix), height):
            rows = range(top, min(top + height, len(matrix)))
            for j in range(len(matrix[0])):
                cells.append((layer, [(i, j) for i in rows]))
                scores.append(segment_score([matrix[i][j] for i in rows], len(rows), divide_by_width))
    return prune_cells(group, cells, scores, target(sparsity, size(group)))


def row_target(sparsity, total):
    """Fewest elements n with n / total >= 1 - sqrt(1 - sparsity), without a root."""
    left = 1 - Fraction(str(sparsity))
    return next(n for n in range(total + 1) if (1 - Fraction(n, total)) ** 2 <= left)


def tiles_2d(dead, height, retile):
    """Tiles as lists of consecutive rows, dead ones included."""
    tiles, current, alive = [], [], 0
    for i, is_dead in enumerate(dead):
        current.append(i)
        alive += not is_dead
        if (alive == height) if retile else (len(current) == height):
            tiles.append(current)
            current, alive = [], 0
    if current and retile and alive == 0 and tiles:
        tiles[-1].extend(current)
    elif current:
        tiles.append(current)
    return [tile for tile in tiles if not all(dead[i] for i in tile)]


def tile_wise_2d(group, sparsity, height, divide_by_width=False, count_dead_rows=False, retile=True):
    rows = [(layer, i) for layer, matrix in enumerate(group) for i in range(len(matrix))]
    pieces = []
    for layer, i in rows:
        row = group[layer][i]
        pieces.append((segment_score(row, len(row), divide_by_width), len(row)))
    gone = {rows[index] for index in cut(pieces, row_target(sparsity, size(group)))}
    cells, scores = [], []
    for layer, matrix in enumerate(group):
        dead = [(layer, i) in gone for i in range(len(matrix))]
        for tile in tiles_2d(dead, height, retile):
            alive = [i for i in tile if not dead[i]]
            length = len(tile) if count_dead_rows else len(alive)
            for j in range(len(matrix[0])):
                cells.append((layer, [(i, j) for i in alive]))
                scores.append(segment_score([matrix[i][j] for i in alive], length, divide_by_width))
    pruned = sum(len(group[layer][i]) for layer, i in gone)
    masks = prune_cells(group, cells, scores, target(sparsity, size(group)) - pruned)
    for layer, i in gone:
        masks[layer][i] = [False] * len(masks[layer][i])
    return masks


def balanced(matrix, sparsity, width):
    mask = [[True] * len(row) for row in matrix]
    for i, row in enumerate(matrix):
        for first in range(0, len(row), width):
            segment = list(range(first, min(first + width, len(row))))
            lowest = sorted(segment, key=lambda j: (row[j], -j))
            for j in lowest[: target(sparsity, len(segment))]:
                mask[i][j] = False
    return mask


def in_groups(matrix, sparsity, groups):
    """Every group of rows keeps the columns of highest sum, the same number in all."""
    k = len(matrix[0])
    mask = [[False] * k for _ in matrix]
    for rows in groups:
        sums = [sum(matrix[i][j] for i in rows) for j in range(k)]
        for j in sorted(range(k), key=lambda j: (-sums[j], j))[: k - target(sparsity, k)]:
            for i in rows:
                mask[i][j] = True
    return mask


def vector_wise(matrix, sparsity, height):
    rows = list(range(len(matrix)))
    return in_groups(matrix, sparsity, [rows[top : top + height] for top in range(0, len(rows), height)])


def retained(matrix, mask):
    return sum(
        value
        for row, kept in zip(matrix, mask, strict=True)
        for value, keep in zip(row, kept, strict=True)
        if keep
    )


def groupings(rows, height):
    """All ways to cut rows into groups of `height`; what does not fill one is the last group of each."""
    if len(rows) <= height:
        yield [rows] if rows else []
        return
    if len(rows) % height:
        for left in itertools.combinations(rows, len(rows) % height):
            for rest in groupings([row for row in rows if row not in left], height):
                yield [*rest, list(left)]
        return
    first, *others = rows
    for mates in itertools.combinations(others, height - 1):
        for rest in groupings([row for row in others if row not in mates], height):
            yield [[first, *mates], *rest]


def best_grouping(matrix, sparsity, height):
    """Most importance that any grouping of the rows retains."""
    every = groupings(list(range(len(matrix))), height)
    return max(retained(matrix, in_groups(matrix, sparsity, groups)) for groups in every)
