"""Guided adaptive tile pruning: tiles that retain enough importance at the least predicted time.

The target is the importance that tile-wise pruning retains at the requested sparsity. The number of kept
weights, and thus the sparsity, results from it. The caller passes a function that plans each layout anew and
predicts its time, including split-K and redistribution, since this package contains nothing about GPUs.

A candidate layout has a step of 1, 2, 4 or 8 quanta of columns and an upper limit on the columns of a tile.
It keeps the steps with the most importance per weight until the target is reached. A low limit balances the
tiles, which suits a kernel with one thread block per tile. A high limit keeps fewer weights in total, which
suits a kernel that splits tiles. Long steps give work items of equal length, which fill waves. The tiles of
tile-wise pruning are a candidate too, so that the result is never predicted to be slower than they are. A
second, slower prediction of the time confirms this (`fastest_confirmed`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from prunecast.patterns.cut import CountArray
from prunecast.patterns.element_map import retained_sum
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import LayerSeconds
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tile_sums import CountRange, step_edges, step_scores
from prunecast.patterns.tile_wise import TileWisePattern
from prunecast.patterns.tiling import RowTiles, tile_map_from_mask

TileSeconds = Callable[[TileMap], float]
"""Function that predicts the seconds of a layer from its tile map."""

QUANTA = (1, 2, 4, 8)
"""Lengths of a step that are tried, in quanta."""
LIMITS = 24
"""Approximate number of upper limits on the columns of a tile that are tried for each step."""
ROUNDING = 1e-12
"""Relative difference of a sum of importance that another order of summation may cause."""


MOST_CONFIRMED = 4
"""Maximum number of layouts whose time the second prediction confirms. Kind: choice, each costs a
simulation."""


def fastest_confirmed(
    own: TileMap, others: Iterable[TileMap], seconds: TileSeconds, confirm: TileSeconds | None
) -> TileMap:
    """Return the fastest layout that is, by both predictions, not slower than `own`.

    Of two layouts with the same time, the one that keeps fewer weights is preferred. Only the
    `MOST_CONFIRMED` fastest layouts by the first prediction are confirmed. If none of them passes, the result
    is `own`.

    Parameters
    ----------
    own : layout without guidance
    others : layouts that retain at least as much importance
    seconds : function that predicts the seconds of the layer from its tiles
    confirm : function that returns a second prediction of the seconds; None to use only the first prediction
    """
    cost = seconds(own), own.kept_count
    timed = (((seconds(tiles), tiles.kept_count), tiles) for tiles in others)
    faster = sorted((one for one in timed if one[0] < cost), key=lambda one: one[0])
    ranked = [tiles for _, tiles in faster]
    if confirm is None or not ranked:
        return ranked[0] if ranked else own
    limit = confirm(own)
    return next((tiles for tiles in ranked[:MOST_CONFIRMED] if confirm(tiles) <= limit), own)


def prune_guided(
    importances: Mapping[str, ImportanceArray],
    sparsity: float,
    tilings: Mapping[str, tuple[RowTiles, ...]],
    seconds: LayerSeconds,
    *,
    height: int,
    quantum: int,
    confirm: LayerSeconds | None = None,
) -> dict[str, MaskArray]:
    """Return the fastest masks (M, K) found whose layers retain as much importance as with tile-wise pruning.

    Parameters
    ----------
    importances : layer -> importance (M, K)
    sparsity : sparsity of the tile-wise pruning that sets the target importance of each layer
    tilings : layer -> one or more divisions of its rows into tiles
    seconds : function that predicts the seconds of a layer from its name and tiles
    height, quantum : rows of a tile, step of the column counts
    confirm : second function like `seconds`; masks for which it predicts more time than with tile-wise
        pruning are rejected. None to skip this check
    """
    found = {}
    tile_wise = TileWisePattern(height=height).masks(importances, sparsity)
    for name, scores in importances.items():
        enough = retained_sum(scores, tile_wise[name]) * (1.0 - ROUNDING)
        own = tile_map_from_mask(tile_wise[name], height=height, pattern=f"tile-wise:{height}")
        others = _candidates(scores, enough, tilings[name], own.pattern, quantum)
        confirm_own = confirm and partial(confirm, name)
        found[name] = fastest_confirmed(own, others, partial(seconds, name), confirm_own).mask()
    return found


def _candidates(
    scores: ImportanceArray, enough: float, tilings: tuple[RowTiles, ...], pattern: str, quantum: int
) -> Iterator[TileMap]:
    """Yield layouts of all divisions into tiles that retain at least `enough` importance."""
    for layer in tilings:
        sums = layer.sums(scores)
        order = np.argsort(-sums, axis=1, kind="stable")
        place = np.argsort(order, axis=1, kind="stable")
        for counts in layouts(np.take_along_axis(sums, order, axis=1), layer.heights, enough, quantum):
            yield layer.tile_map(place < counts[:, None], len(scores), pattern)


def layouts(
    ranked: ImportanceArray, heights: CountArray, enough: float, quantum: int
) -> Iterator[CountArray]:
    """Yield different layouts, as column counts (tiles,) int64, that retain at least `enough` importance.

    Parameters
    ----------
    ranked : (tiles, K) sums of the columns of each tile, highest first
    heights : (tiles,) rows of each tile
    enough : importance that a layout must retain
    quantum : step of the counts
    """
    found = set()
    for quanta in QUANTA:
        for counts in _limited(ranked, heights, enough, quanta * quantum):
            if counts.tobytes() not in found:
                found.add(counts.tobytes())
                yield counts


def _limited(ranked: ImportanceArray, heights: CountArray, enough: float, step: int) -> Iterator[CountArray]:
    """Yield column counts (tiles,) in steps of `step`, under falling upper limits that retain `enough`."""
    edges = step_edges(CountRange(0, ranked.shape[1]), step)
    gains = np.add.reduceat(ranked, edges[:-1], axis=1).ravel()
    order = np.argsort(-step_scores(ranked, heights, edges), axis=None, kind="stable")
    ends = edges[1:][order % (edges.size - 1)]
    limit, fall = int(edges[-1]), 0
    # Terminates: no count exceeds the limit, and each round lowers it by at least `step` below the largest
    # count.
    while True:
        taken = order[ends <= limit]
        retained = np.cumsum(gains[taken])
        if retained.size == 0 or retained[-1] < enough:
            return
        taken = taken[: np.searchsorted(retained, enough) + 1]
        counts = edges[np.bincount(taken // (edges.size - 1), minlength=heights.size)]
        yield counts
        # Lower the limit each time by about 1 / `LIMITS` of the largest count minus the mean
        fall = fall or max(round(float(counts.max() - counts.mean()) / LIMITS / step), 1) * step
        limit = int(counts.max()) - fall
