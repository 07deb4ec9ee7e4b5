"""Slow, obvious pruners: one loop per idea, exact fractions for targets. The oracle of `tests/patterns`.

Matrices are lists of rows of plain numbers; masks are lists of rows of bool. A group is a list of matrices
that share one sparsity.
"""

import functools
import itertools
import math
import operator
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


def block_sparse(group, sparsity, height, width):
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
        scores.append(math.sqrt(sum(value * value for value in values) / len(values)))
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


def segment_score(values):
    return math.sqrt(sum(value * value for value in values)) / math.sqrt(len(values))


def tile_wise(group, sparsity, height):
    cells, scores = [], []
    for layer, matrix in enumerate(group):
        for top in range(0, len(matrix), height):
            rows = range(top, min(top + height, len(matrix)))
            for j in range(len(matrix[0])):
                cells.append((layer, [(i, j) for i in rows]))
                scores.append(segment_score([matrix[i][j] for i in rows]))
    return prune_cells(group, cells, scores, target(sparsity, size(group)))


def row_target(sparsity, total):
    """Fewest elements n with n / total >= 1 - sqrt(1 - sparsity), without a root."""
    left = 1 - Fraction(str(sparsity))
    return next(n for n in range(total + 1) if (1 - Fraction(n, total)) ** 2 <= left)


def tiles_2d(dead, height):
    """Tiles as lists of consecutive rows, dead ones included."""
    tiles, current, alive = [], [], 0
    for i, is_dead in enumerate(dead):
        current.append(i)
        alive += not is_dead
        if alive == height:
            tiles.append(current)
            current, alive = [], 0
    if current and alive == 0 and tiles:
        tiles[-1].extend(current)
    elif current:
        tiles.append(current)
    return [tile for tile in tiles if not all(dead[i] for i in tile)]


def tile_wise_2d(group, sparsity, height):
    rows = [(layer, i) for layer, matrix in enumerate(group) for i in range(len(matrix))]
    pieces = []
    for layer, i in rows:
        row = group[layer][i]
        pieces.append((segment_score(row), len(row)))
    gone = {rows[index] for index in cut(pieces, row_target(sparsity, size(group)))}
    cells, scores = [], []
    for layer, matrix in enumerate(group):
        dead = [(layer, i) in gone for i in range(len(matrix))]
        for tile in tiles_2d(dead, height):
            alive = [i for i in tile if not dead[i]]
            for j in range(len(matrix[0])):
                cells.append((layer, [(i, j) for i in alive]))
                scores.append(segment_score([matrix[i][j] for i in alive]))
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


def adaptive_range(kept_elements, rows, k, quantum, low, high):
    """All multiples of the quantum up to K, and K: those in the interval, and the two next to the mean."""
    mean = Fraction(kept_elements, rows)
    levels = sorted({*range(0, k + 1, quantum), k})
    inside = [n for n in levels if low * mean <= 100 * n <= high * mean and n % quantum == 0]
    below = max(n for n in range(0, k + 1, quantum) if n <= mean)
    above = min(n for n in levels if n >= mean)
    if high * mean >= 100 * (k + -k % quantum):
        inside.append(k)
    allowed = [*inside, below, above]
    return min(allowed), max(allowed)


def steps_of(scores, low, high, quantum):
    """Mean score and width of each step of one tile, from `low` columns to `high`."""
    ranked = sorted(scores, reverse=True)
    steps = []
    for first in range(low, high, quantum):
        step = ranked[first : min(first + quantum, high)]
        mean = functools.reduce(operator.add, step) / len(step)
        steps.append((min(mean, steps[-1][0]) if steps else mean, len(step)))
    return steps


def adaptive_counts(scores, heights, to_prune, low, high, quantum):
    """From the most columns everywhere, take away the worst step, the later one first, until it is enough."""
    k = len(scores[0])
    steps = [
        (mean, t, place, width)
        for t, tile in enumerate(scores)
        for place, (mean, width) in enumerate(steps_of(tile, low, high, quantum))
    ]
    counts = [high] * len(heights)
    pruned = sum(heights) * (k - high)
    for _, t, _, width in sorted(steps, key=lambda step: (step[0], -step[1], -step[2])):
        if pruned >= to_prune:
            break
        counts[t] -= width
        pruned += width * heights[t]
    return counts


def adaptive_tile(matrix, sparsity, height, quantum, low, high):
    m, k = len(matrix), len(matrix[0])
    tiles = [list(range(top, min(top + height, m))) for top in range(0, m, height)]
    # exact, or equal steps would differ by the order in which they are added up
    scores = [[Fraction(sum(matrix[i][j] for i in rows)) / len(rows) for j in range(k)] for rows in tiles]
    to_prune = target(sparsity, m * k)
    fewest, most = adaptive_range(m * k - to_prune, m, k, quantum, low, high)
    counts = adaptive_counts(scores, [len(rows) for rows in tiles], to_prune, fewest, most, quantum)
    mask = [[False] * k for _ in matrix]
    for rows, tile, count in zip(tiles, scores, counts, strict=True):
        for j in sorted(range(k), key=lambda j: (-tile[j], j))[:count]:
            for i in rows:
                mask[i][j] = True
    return mask


def retained_by_counts(scores, heights, counts):
    return sum(
        height * sum(sorted(tile, reverse=True)[:count])
        for tile, height, count in zip(scores, heights, counts, strict=True)
    )


def best_counts(scores, heights, levels, affordable):
    """Most that any choice of counts retains among those that are affordable: all are tried."""
    every = itertools.product(levels, repeat=len(heights))
    return max(retained_by_counts(scores, heights, counts) for counts in every if affordable(counts))


def tiles_of(m, height):
    return [list(range(top, min(top + height, m))) for top in range(0, m, height)]


def inside_tiles(matrix, columns, height, keep=2):
    """The best of every four in each tile's list of columns, row by row."""
    mask = [[False] * len(row) for row in matrix]
    for rows, listed in zip(tiles_of(len(matrix), height), columns, strict=True):
        for i in rows:
            compact = [[matrix[i][j] for j in listed]]
            for j, kept in zip(listed, n_of_m(compact, keep, 4)[0], strict=True):
                mask[i][j] = kept
    return mask


def tile_two_of_four(group, sparsity, height):
    """Tile-wise at 1 - 2 (1 - s), then 2 of 4 survivors."""
    half = float(1 - 2 * (1 - Fraction(str(sparsity))))
    masks = []
    for matrix, tiles in zip(group, tile_wise(group, half, height), strict=True):
        firsts = [rows[0] for rows in tiles_of(len(matrix), height)]
        lists = [[j for j, kept in enumerate(tiles[first]) if kept] for first in firsts]
        masks.append(inside_tiles(matrix, lists, height))
    return masks


def vector_n_of_m(matrix, height, m):
    k = len(matrix[0])
    lists = []
    for rows in tiles_of(len(matrix), height):
        sums = [[sum(matrix[i][j] for i in rows) for j in range(k)]]
        lists.append([j for j, kept in enumerate(n_of_m(sums, 4, m)[0]) if kept])
    return inside_tiles(matrix, lists, height)


def two_of_four_fits(rows, listed):
    return all(
        sum(row[j] for j in listed[first : first + 4]) <= 2
        for row in rows
        for first in range(0, len(listed), 4)
    )


def fewest_columns(rows):
    """Length of the shortest list with all kept columns and at most 2 of 4 in each row; None if none."""
    k = len(rows[0])
    kept = {j for j in range(k) if any(row[j] for row in rows)}
    for length in range(len(kept), k + 1):
        for extra in itertools.combinations(sorted(set(range(k)) - kept), length - len(kept)):
            if two_of_four_fits(rows, sorted(kept | set(extra))):
                return length
    return None


def tile_element(group, sparsity, height, percent):
    """Tile-wise at s + d; of what it took, all come back but the lowest that the sparsity wants gone."""
    masks = tile_wise(group, float(Fraction(str(sparsity)) + Fraction(percent, 100)), height)
    lost = [
        (layer, i, j)
        for layer, mask in enumerate(masks)
        for i, row in enumerate(mask)
        for j, kept in enumerate(row)
        if not kept
    ]
    gone = cut([(group[layer][i][j], 1) for layer, i, j in lost], target(sparsity, size(group)))
    for index, (layer, i, j) in enumerate(lost):
        masks[layer][i][j] = index not in gone
    return masks


def grown_columns(mask, rows):
    """Columns of a block: the most shared ones, until they exceed 1.5 times what any row leaves over."""
    order = sorted(range(len(mask[0])), key=lambda j: (-sum(mask[i][j] for i in rows), j))
    for width in range(1, len(order) + 1):
        if all(2 * width > 3 * sum(mask[i][j] for j in order[width:]) for i in rows):
            return set(order[:width])
    raise AssertionError("the whole width leaves nothing over")


def dense_blocks(matrix, sparsity, blocks, grown):
    """Columns that did not grow go first, then lower means; later ones first among equals."""
    m, k = len(matrix), len(matrix[0])
    pieces = [
        (j in columns, sum(matrix[i][j] for i in rows) / len(rows), -block, -j)
        for block, (rows, columns) in enumerate(zip(blocks, grown, strict=True))
        for j in range(k)
    ]
    mask = [[any(i in rows for rows in blocks)] * k for i in range(m)]
    pruned = sum(not kept for row in mask for kept in row)
    for *_, block, j in sorted(pieces):
        if pruned >= target(sparsity, m * k):
            break
        for i in blocks[-block]:
            mask[i][-j] = False
            pruned += 1
    return mask


def apriori(group, sparsity, height, percent):
    """Segments decided by what unstructured pruning leaves of them, the others by their norm."""
    single = unstructured(group, sparsity)
    cells, scores, shares = [], [], []
    for layer, matrix in enumerate(group):
        for rows in tiles_of(len(matrix), height):
            for j in range(len(matrix[0])):
                cells.append((layer, [(i, j) for i in rows]))
                scores.append(segment_score([matrix[i][j] for i in rows]))
                shares.append(Fraction(sum(single[layer][i][j] for i in rows), len(rows)))
    order = sorted(range(len(cells)), key=lambda index: (shares[index], scores[index], -index))
    ends = len(cells) * percent // 100
    first, last = set(order[:ends]), set(order[len(order) - ends :])
    decided = [
        (0 if index in first or scores[index] == 0 else 2 if index in last else 1, scores[index])
        for index in range(len(cells))
    ]
    return prune_cells(group, cells, decided, target(sparsity, size(group)))


def assigned(lead, sizes):
    """The group of each row: pairs of row and group in order, if the row has none and the group has room."""
    groups, room = [None] * len(lead), list(sizes)
    pairs = [(row, group) for row in range(len(lead)) for group in range(len(sizes))]
    for row, group in sorted(pairs, key=lambda pair: -lead[pair[0]][pair[1]]):
        if groups[row] is None and room[group]:
            groups[row], room[group] = group, room[group] - 1
    return groups
