"""Adaptive tile pruning (ATP): tiles of evened work, by hierarchical tile pruning (HTP).

"Adaptive Tile Pruning for Efficient Inference of the Imbalanced DNNs on GPU" (Li and Ino, IEICE Transactions
on Information and Systems, 2025) keeps the workloads of tiles flexibly balanced. Only abstracts have been
read, no code is public, and they give no steps. The procedure is therefore our own:

1. Rows form tiles of `height`: neighbours, or rows from anywhere that keep alike (`shuffled`, where that
   retains more), which a kernel undoes as it writes. With `rows_first` whole rows go before, as in
   `tile_wise_2d`.
2. In each tile columns rank by their mean importance: the sum is what is retained. (`rms` ranks as
   `tile_wise` does.)
3. Each tile gets a count of columns: on a quantum (16, one step of the tensor cores) or K, and within an
   interval around the mean of the layer. The two multiples next to the mean are always allowed. Equal bounds
   of 100 % give strict balance. Where no interval is asked for it follows the importance (`flexible`): 97 to
   103 %, and where that would lose more than 2 % of what tiles without limits retain, no lower limit and the
   least upper one that does not. A tile that keeps little delays nobody, one that keeps much may: so the
   upper limit alone is worth importance, and it is as low as the importance allows.
4. Inside the interval, steps of one quantum go to the tiles where they retain most. With a quantum of 1, the
   interval 0-inf and `rms` this is `tile_wise` (`tile_wise_2d` with `rows_first`).

Of layers ranked together, each first gets the share that one ranking of all columns would give it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from prunecast.patterns.cut import CountArray, elements_to_prune, keep_highest, row_sums
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.shuffled_block import group_rows
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.tile_sums import TileSums, best_columns, best_counts, count_range
from prunecast.patterns.tile_wise import segment_scores
from prunecast.patterns.tile_wise_2d import Survivors, keep_rows, spread_tiles, survivors_of

QUANTUM = 16
LOW = 97
HIGH = 103
ENOUGH = 0.98
"""Share of what tiles without limits retain that a flexible interval keeps. Own choice: with quanta, 0.97
would keep less than 97 % of tile-wise pruning's importance; 0.99 costs unsplit tiles 5 % (2026-11-23)."""
UNBOUNDED = 10**9
"""Percent of the mean that no tile reaches: `inf` in a pattern string."""

ColumnScore = Literal["mean", "rms"]


class AdaptiveRule(NamedTuple):
    """What the tiles of a layer obey, and how they are found."""

    height: int
    """Rows of a tile, the last one of a layer possibly fewer."""
    quantum: int = QUANTUM
    """Step of the counts."""
    low: int = LOW
    """Percent of the layer's mean count, at most 100."""
    high: int = HIGH
    """Upper bound of kept columns in percent of the mean, at least 100."""
    rows_first: bool = False
    """Whole rows go first, as in TW-2D; tiles have `height` surviving rows."""
    shuffled: bool = False
    """Rows from anywhere form a tile, those that keep alike."""
    score: ColumnScore = "mean"
    flexible: bool = False
    """The interval is widened as importance asks for it."""


def prune_adaptive_tile(
    importances: Mapping[str, ImportanceArray], sparsity: float, rule: AdaptiveRule
) -> dict[str, MaskArray]:
    """Masks (M, K) whose tiles keep counts of columns on a quantum, within an interval around the mean.

    Parameters
    ----------
    importances : layer -> importance (M, K)
    sparsity : of the group; at least that is reached
    rule : see `AdaptiveRule`
    """
    masks = _masks(importances, sparsity, rule)
    if not rule.shuffled:
        return masks
    plain = _masks(importances, sparsity, rule._replace(shuffled=False))
    return max(masks, plain, key=lambda found: _retained(importances, found))


def _retained(importances: Mapping[str, ImportanceArray], masks: Mapping[str, MaskArray]) -> float:
    return sum(float((scores * masks[name]).sum(dtype=np.float64)) for name, scores in importances.items())


def _masks(
    importances: Mapping[str, ImportanceArray], sparsity: float, rule: AdaptiveRule
) -> dict[str, MaskArray]:
    """Masks of tiles of one kind: all of neighbours, or all of rows from anywhere."""
    total = sum(scores.size for scores in importances.values())
    layers = _tiles(importances, sparsity, rule)
    scored = {name: _column_scores(importances[name], layer, rule) for name, layer in layers.items()}
    dead = sum(
        (scores.shape[0] - layers[name].rows.size) * scores.shape[1] for name, scores in importances.items()
    )
    shares = _shares(scored, layers, elements_to_prune(sparsity, total) - dead, rule)
    kept = {name: _even_out(scored[name], layers[name].heights, shares[name], rule) for name in importances}
    return {name: spread_tiles(kept[name], layers[name], importances[name]) for name in importances}


def tile_orders(
    importances: Mapping[str, ImportanceArray], sparsity: float, rule: AdaptiveRule
) -> dict[str, tuple[Survivors, ...]]:
    """Layer -> its rows in the order of tiles: neighbours and, if shuffled, also rows that keep alike."""
    plain = _tiles(importances, sparsity, rule._replace(shuffled=False))
    if not rule.shuffled:
        return {name: (layer,) for name, layer in plain.items()}
    return {
        name: (layer, _by_first_row(_shuffled(layer, importances[name], sparsity, rule.height)))
        for name, layer in plain.items()
    }


def _by_first_row(layer: Survivors) -> Survivors:
    """Tiles in the order in which a map of the mask has them."""
    order = np.argsort(layer.rows[layer.starts], kind="stable")
    heights, tiles = layer.heights[order], np.split(layer.rows, layer.starts[1:])
    return Survivors(np.concatenate([tiles[tile] for tile in order]), np.cumsum(heights) - heights, heights)


def kept_of_sums(sums: TileSums, sparsity: float, rule: AdaptiveRule) -> MaskArray:
    """(tiles, K) flags of what `prune_adaptive_tile` keeps of a layer, from the sums of its tiles alone.

    For tiles of neighbours whose columns rank by mean; `sums` are of tiles as high as the rule's.
    """
    to_prune = elements_to_prune(sparsity, sums.m * sums.k)
    return _even_out(sums.sums, sums.heights, to_prune, rule)


def _tiles(
    importances: Mapping[str, ImportanceArray], sparsity: float, rule: AdaptiveRule
) -> dict[str, Survivors]:
    """Layer -> its rows in the order of tiles."""
    step = 1.0 - math.sqrt(1.0 - sparsity) if rule.rows_first else 0.0
    total = sum(scores.size for scores in importances.values())
    alive = keep_rows(importances, elements_to_prune(step, total))
    layers = {name: survivors_of(alive[name], rule.height) for name in importances}
    if not rule.shuffled:
        return layers
    left = 1.0 - (1.0 - sparsity) / (1.0 - step)
    return {name: _shuffled(layers[name], importances[name], left, rule.height) for name in importances}


def _shuffled(layer: Survivors, scores: ImportanceArray, sparsity: float, height: int) -> Survivors:
    """A tile map with rows regrouped, so that rows with similar kept columns share a tile."""
    if layer.starts.size < 2:
        return layer
    groups = group_rows(scores[layer.rows], sparsity, height=height)
    return layer._replace(rows=layer.rows[np.argsort(groups, kind="stable")])


def _column_scores(scores: ImportanceArray, layer: Survivors, rule: AdaptiveRule) -> ImportanceArray:
    """(tiles, K) float64: score of each column of a tile: its sum, or per row with `rms`."""
    rows = scores[layer.rows]
    if rule.score == "rms":
        return segment_scores(rows, layer.starts, layer.heights)
    return row_sums(rows, layer.starts, power=1)


def _shares(
    scored: Mapping[str, ImportanceArray], layers: Mapping[str, Survivors], target: int, rule: AdaptiveRule
) -> dict[str, int]:
    """Layer -> elements that it has to prune, if the columns of all were ranked together."""
    if len(scored) == 1:
        return dict.fromkeys(scored, max(target, 0))
    elements = {name: layer.heights[:, None] for name, layer in layers.items()}
    per_row = scored if rule.score == "rms" else {name: scored[name] / elements[name] for name in scored}
    kept = keep_highest(per_row, elements, target)
    return {name: int((~kept[name] * elements[name]).sum()) for name in scored}


def _even_out(scores: ImportanceArray, heights: CountArray, to_prune: int, rule: AdaptiveRule) -> MaskArray:
    """(tiles, K) flags of the kept columns of one layer's tiles."""
    rows, k = int(heights.sum()), scores.shape[1]
    if rows == 0:
        return np.zeros(scores.shape, dtype=np.bool_)
    ranked = -np.sort(-scores, axis=1)

    def counts_of(rule: AdaptiveRule) -> CountArray:
        allowed = count_range(
            rows * k - to_prune, rows, k, quantum=rule.quantum, low=rule.low, high=rule.high
        )
        return best_counts(ranked, heights, to_prune, allowed, rule.quantum, summed=rule.score == "mean")

    counts = _flexible(ranked, heights, counts_of, rule) if rule.flexible else counts_of(rule)
    return best_columns(scores, counts)


def _flexible(
    ranked: ImportanceArray,
    heights: CountArray,
    counts_of: Callable[[AdaptiveRule], CountArray],
    rule: AdaptiveRule,
) -> CountArray:
    """Counts in the rule's interval, or below the least upper limit that retains enough."""
    rows = np.ones_like(heights) if rule.score == "mean" else heights
    before = np.cumsum(ranked * rows[:, None], axis=1)

    def retained(counts: CountArray) -> float:
        return float(before[np.arange(counts.size), counts - 1].sum(where=counts > 0))

    counts, free = counts_of(rule), counts_of(rule._replace(low=0, high=UNBOUNDED))
    enough = ENOUGH * retained(free)
    if retained(counts) >= enough:
        return counts
    mean = max(int(heights @ free) / int(heights.sum()), 1.0)
    low, high = 100, math.ceil(100 * free.max() / mean)
    while low < high:
        middle = (low + high) // 2
        found = counts_of(rule._replace(low=0, high=middle))
        low, high = (low, middle) if retained(found) >= enough else (middle + 1, high)
    return counts_of(rule._replace(low=0, high=high))
