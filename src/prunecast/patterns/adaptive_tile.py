"""Adaptive tile pruning (ATP): tiles of evened work, by hierarchical tile pruning (HTP).

"Adaptive Tile Pruning for Efficient Inference of the Imbalanced DNNs on GPU" (Li and Ino, IEICE Transactions
on Information and Systems, 2025) keeps the workloads of tiles flexibly balanced. Only abstracts have been
read, no code is public, and they give no steps. The procedure is therefore our own:

1. Rows form tiles of `height`: neighbours, or rows from anywhere that keep alike (`shuffled`), which a kernel
   undoes as it writes. With `rows_first` whole rows go before, as in `tile_wise_2d`.
2. In each tile columns rank by their mean importance: the sum is what is retained. (`rms` ranks as
   `tile_wise` does.)
3. Each tile gets a count of columns: on a quantum (16, one step of the tensor cores) or K, and within an
   interval around the mean of the layer, 97 to 103 %. The two multiples next to the mean are always allowed.
   Equal bounds of 100 % give strict balance.
4. Inside the interval, steps of one quantum go to the tiles where they retain most. With a quantum of 1, the
   interval 0-inf and `rms` this is `tile_wise` (`tile_wise_2d` with `rows_first`).

Of layers ranked together, each first gets the share that one ranking of all columns would give it.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from prunecast.patterns.cut import CountArray, elements_to_prune, keep_highest
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.segments import row_sums
from prunecast.patterns.shuffled_block import group_rows
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.tile_quanta import best_columns, best_counts, count_range
from prunecast.patterns.tile_wise import SANE, segment_scores
from prunecast.patterns.tile_wise_2d import Survivors, keep_rows, spread_tiles, survivors_of

__all__ = ["HIGH", "LOW", "QUANTUM", "UNBOUNDED", "AdaptiveRule", "ColumnScore", "prune_adaptive_tile"]

QUANTUM = 16
LOW = 97
HIGH = 103
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
    """The same, at least 100."""
    rows_first: bool = False
    """Whole rows go first, as in TW-2D; tiles have `height` surviving rows."""
    shuffled: bool = False
    """Rows from anywhere form a tile, those that keep alike."""
    score: ColumnScore = "mean"


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
    total = sum(scores.size for scores in importances.values())
    layers = _tiles(importances, sparsity, total, rule)
    scored = {name: _column_scores(importances[name], layer, rule) for name, layer in layers.items()}
    dead = sum(
        (scores.shape[0] - layers[name].rows.size) * scores.shape[1] for name, scores in importances.items()
    )
    shares = _shares(scored, layers, elements_to_prune(sparsity, total) - dead)
    kept = {name: _even_out(scored[name], layers[name].heights, shares[name], rule) for name in importances}
    return {name: spread_tiles(kept[name], layers[name], importances[name]) for name in importances}


def _tiles(
    importances: Mapping[str, ImportanceArray], sparsity: float, total: int, rule: AdaptiveRule
) -> dict[str, Survivors]:
    """Layer -> its rows in the order of tiles."""
    target = elements_to_prune(1.0 - math.sqrt(1.0 - sparsity), total) if rule.rows_first else 0
    alive = keep_rows(importances, target, SANE)
    layers = {name: survivors_of(alive[name], rule.height, SANE) for name in importances}
    if not rule.shuffled:
        return layers
    left = 1.0 - math.sqrt(1.0 - sparsity) if rule.rows_first else sparsity
    return {name: _shuffled(layers[name], importances[name], left, rule.height) for name in importances}


def _shuffled(layer: Survivors, scores: ImportanceArray, sparsity: float, height: int) -> Survivors:
    """The same tiles with other rows: those that keep alike stand together."""
    if layer.starts.size < 2:
        return layer
    groups = group_rows(scores[layer.rows], sparsity, height=height)
    return layer._replace(rows=layer.rows[np.argsort(groups, kind="stable")])


def _column_scores(scores: ImportanceArray, layer: Survivors, rule: AdaptiveRule) -> ImportanceArray:
    """(tiles, K) float64: score of each column of a tile, per row."""
    rows = scores[layer.rows]
    if rule.score == "rms":
        return segment_scores(rows, layer.starts, layer.heights, SANE)
    return row_sums(rows, layer.starts, power=1) / layer.heights[:, None]


def _shares(
    scored: Mapping[str, ImportanceArray], layers: Mapping[str, Survivors], target: int
) -> dict[str, int]:
    """Layer -> elements that it has to prune, if the columns of all were ranked together."""
    if len(scored) == 1:
        return dict.fromkeys(scored, max(target, 0))
    elements = {name: layer.heights[:, None] for name, layer in layers.items()}
    kept = keep_highest(scored, elements, target)
    return {name: int((~kept[name] * elements[name]).sum()) for name in scored}


def _even_out(scores: ImportanceArray, heights: CountArray, to_prune: int, rule: AdaptiveRule) -> MaskArray:
    """(tiles, K) flags of the kept columns of one layer's tiles."""
    rows, k = int(heights.sum()), scores.shape[1]
    if rows == 0:
        return np.zeros(scores.shape, dtype=np.bool_)
    allowed = count_range(rows * k - to_prune, rows, k, quantum=rule.quantum, low=rule.low, high=rule.high)
    return best_columns(scores, best_counts(scores, heights, to_prune, allowed, rule.quantum))
