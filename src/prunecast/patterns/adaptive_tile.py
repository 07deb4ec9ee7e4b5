"""Adaptive tile pruning (ATP): tiles of nearly equal work, found by hierarchical tile pruning (HTP).

"Adaptive Tile Pruning for Efficient Inference of the Imbalanced DNNs on GPU" (Li and Ino, IEICE Transactions
on Information and Systems, 2025) balances the work of the tiles within a range. Only the abstracts were
available; no code is public, and the abstracts give no steps. The procedure is therefore our own:

1. Rows form tiles of `height` rows. These are neighbouring rows or, with `shuffled` and where that retains
   more importance, rows from anywhere with similar kept columns; the kernel undoes this permutation when it
   stores C. With `rows_first`, whole rows are pruned before, as in `tile_wise_2d`.
2. In each tile, columns rank by their mean importance, because the sum of importance is what is retained.
   (`rms` ranks columns as `tile_wise` does.)
3. Each tile gets a number of columns: a multiple of the quantum (16, the K of one tensor-core instruction) or
   K, within an interval around the mean of the layer. The two multiples next to the mean are always allowed.
   Equal bounds of 100 % give strict balance. If no interval is given (`flexible`), it depends on the
   importance. It is 97 to 103 % unless this would lose more than 2 % of the importance that tiles without
   limits retain. In that case there is no lower limit, and the upper limit is the lowest that loses at most
   2 %. A tile with few columns delays no other tile, but a tile with many may become the straggler.
   Therefore only the upper limit may cost importance.
4. Inside the interval, steps of one quantum go to the tiles where they retain most. With a quantum of 1, the
   interval 0-inf and `rms`, the result is that of `tile_wise` (`tile_wise_2d` with `rows_first`).

If several layers are pruned together, one ranking of the columns of all layers first determines how many
elements each layer keeps.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from prunecast.patterns.cut import CountArray, keep_highest
from prunecast.patterns.element_map import retained_sum
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import GuidedPattern
from prunecast.patterns.row_tiles import missing_elements
from prunecast.patterns.shuffled_block import group_rows
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.tile_sums import best_columns, best_counts, count_range
from prunecast.patterns.tile_wise_2d import surviving_tiles
from prunecast.patterns.tiling import RowTiles

QUANTUM = 16
LOW = 97
HIGH = 103
ENOUGH = 0.98
"""A flexible interval must retain at least this fraction of the importance that tiles without limits retain.
Own choice: with quanta, 0.97 would keep less than 97 % of tile-wise pruning's importance; 0.99 costs unsplit
tiles 5 % (2026-11-23).
"""
UNBOUNDED = 10**9
"""Upper limit, in percent of the mean column count, that no tile reaches; `inf` in a pattern string."""

ColumnScore = Literal["mean", "rms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRule(GuidedPattern):
    """Parameters of adaptive tile pruning: constraints on the tiles of a layer, and options of the search."""

    rows_first: ClassVar[bool] = False
    """True to prune whole rows first, as in TW-2D; tiles then have `height` surviving rows."""

    height: int
    """Rows of a tile; the last tile of a layer may have fewer."""
    quantum: int = QUANTUM
    """Tiles keep a multiple of this number of columns, or all K columns."""
    low: int = LOW
    """Lower bound of kept columns in percent of the layer's mean count, at most 100."""
    high: int = HIGH
    """Upper bound of kept columns in percent of the layer's mean count, at least 100."""
    shuffled: bool = False
    """True if a tile may consist of any rows with similar kept columns, not only of neighbours."""
    score: ColumnScore = "mean"
    """Ranking of columns in a tile: by the mean or the root mean square of their importance."""
    flexible: bool = True
    """True to widen the interval if `low` to `high` % would retain too little importance (`ENOUGH`)."""


def prune_adaptive_tile(
    importances: Mapping[str, ImportanceArray], sparsity: float, rule: AdaptiveRule
) -> dict[str, MaskArray]:
    """Return masks (M, K) whose tiles keep nearly equal numbers of columns, in multiples of `rule.quantum`.

    With `rule.shuffled`, tiles of neighbouring rows are tried too, and the masks that retain more importance
    are returned.

    Parameters
    ----------
    importances : layer -> importance (M, K)
    sparsity : least fraction of all elements of the group of layers that is pruned
    rule : constraints on the tiles
    """
    found = []
    for own in (rule, replace(rule, shuffled=False)) if rule.shuffled else (rule,):
        tiles = _tiles(importances, sparsity, own)
        kept = nearly_equal(importances, tiles, sparsity, own)
        found.append({name: tiles[name].spread(kept[name], len(x)) for name, x in importances.items()})
    if len(found) == 1:
        return found[0]
    return max(
        found,
        key=lambda masks: sum(retained_sum(scores, masks[name]) for name, scores in importances.items()),
    )


def nearly_equal(
    importances: Mapping[str, ImportanceArray],
    tiles: Mapping[str, RowTiles],
    sparsity: float,
    rule: AdaptiveRule,
) -> dict[str, MaskArray]:
    """Return (tiles, K) flags of the columns that each tile of each layer keeps under the rule.

    Parameters
    ----------
    importances : layer -> importance (M, K)
    tiles : layer -> rows of each tile
    sparsity : least fraction of all elements of the group of layers that is pruned
    rule : constraints on the numbers of columns; its grouping of rows is not used
    """
    score = RowTiles.root_mean_squares if rule.score == "rms" else RowTiles.sums
    scored = {name: score(own, importances[name]) for name, own in tiles.items()}
    shares = _shares(scored, tiles, missing_elements(importances, tiles, sparsity), rule)
    return {name: even_out(scored[name], tiles[name].heights, shares[name], rule) for name in importances}


def tile_orders(
    importances: Mapping[str, ImportanceArray], sparsity: float, rule: AdaptiveRule
) -> dict[str, tuple[RowTiles, ...]]:
    """Return the divisions of each layer into tiles: neighbouring rows and, if shuffled, similar rows."""
    plain = _tiles(importances, sparsity, replace(rule, shuffled=False))
    if not rule.shuffled:
        return {name: (layer,) for name, layer in plain.items()}
    return {
        name: (layer, _shuffled(layer, importances[name], sparsity, rule.height).by_first_row())
        for name, layer in plain.items()
    }


def _tiles(
    importances: Mapping[str, ImportanceArray], sparsity: float, rule: AdaptiveRule
) -> dict[str, RowTiles]:
    """Return layer -> division of its rows into tiles of `rule.height` rows, grouped as the rule requires."""
    step = 1.0 - math.sqrt(1.0 - sparsity) if rule.rows_first else 0.0
    layers = surviving_tiles(importances, step, rule.height)
    if not rule.shuffled:
        return layers
    left = 1.0 - (1.0 - sparsity) / (1.0 - step)
    return {name: _shuffled(layers[name], importances[name], left, rule.height) for name in importances}


def _shuffled(layer: RowTiles, scores: ImportanceArray, sparsity: float, height: int) -> RowTiles:
    """Return the tiles with rows regrouped, so that rows with similar kept columns share a tile."""
    if layer.starts.size < 2:
        return layer
    groups = group_rows(scores[layer.rows], sparsity, height=height)
    return layer._replace(rows=layer.rows[np.argsort(groups, kind="stable")])


def _shares(
    scored: Mapping[str, ImportanceArray], layers: Mapping[str, RowTiles], target: int, rule: AdaptiveRule
) -> dict[str, int]:
    """Divide `target` elements to prune among the layers, by one ranking of the columns of all tiles."""
    if len(scored) == 1:
        return dict.fromkeys(scored, max(target, 0))
    elements = {name: layer.heights[:, None] for name, layer in layers.items()}
    per_row = scored if rule.score == "rms" else {name: scored[name] / elements[name] for name in scored}
    kept = keep_highest(per_row, elements, target)
    return {name: int((~kept[name] * elements[name]).sum()) for name in scored}


def even_out(scores: ImportanceArray, heights: CountArray, to_prune: int, rule: AdaptiveRule) -> MaskArray:
    """Return (tiles, K) flags of the columns that the tiles of a layer keep after pruning.

    Parameters
    ----------
    scores : (tiles, K) score of each column of each tile
    heights : (tiles,) rows of each tile
    to_prune : elements to prune
    rule : constraints on the numbers of columns
    """
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
    """Return column counts (tiles,) in the rule's interval if they retain enough importance (`ENOUGH`).

    Otherwise, return counts without a lower limit, under the lowest upper limit that retains enough.
    """
    rows = np.ones_like(heights) if rule.score == "mean" else heights
    before = np.cumsum(ranked * rows[:, None], axis=1)

    def retained(counts: CountArray) -> float:
        return float(before[np.arange(counts.size), counts - 1].sum(where=counts > 0))

    counts, free = counts_of(rule), counts_of(replace(rule, low=0, high=UNBOUNDED))
    enough = ENOUGH * retained(free)
    if retained(counts) >= enough:
        return counts
    mean = max(int(heights @ free) / int(heights.sum()), 1.0)
    # Bisect the upper limit: tiles never retain less under a higher one, and the first `high` limits none
    low, high = 100, math.ceil(100 * free.max() / mean)
    while low < high:
        middle = (low + high) // 2
        found = counts_of(replace(rule, low=0, high=middle))
        low, high = (low, middle) if retained(found) >= enough else (middle + 1, high)
    return counts_of(replace(rule, low=0, high=high))
