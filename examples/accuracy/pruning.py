"""Masks of a case, and what they say before any training: kept importance, balance, tile maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from settings import Case

from prunecast.codesign.schedule_masks import tiles_of
from prunecast.patterns import ElementMap, NestedMap, TileMap, imbalance, parse_pattern
from prunecast.patterns.importance import magnitude

Weights = Mapping[str, npt.NDArray[np.float32]]


class Pruned(NamedTuple):
    """A case applied to all layers."""

    masks: dict[str, npt.NDArray[np.bool_]]
    maps: dict[str, TileMap | ElementMap | NestedMap]


def prune(weights: Weights, case: Case) -> Pruned:
    """Masks by magnitude, each layer at the sparsity."""
    pattern = parse_pattern(case.pattern)
    masks = pattern.prune(importance_of(weights), case.sparsity)
    return Pruned(masks, {name: pattern.map(mask) for name, mask in masks.items()})


def importance_of(weights: Weights) -> dict[str, npt.NDArray[np.float32]]:
    """Magnitude."""
    return {name: magnitude(matrix) for name, matrix in weights.items()}


def statistics(importance: Weights, pruned: Pruned) -> dict[str, Any]:
    """Of all layers together: sparsity and kept share of the importance; imbalance of the worst and the mean.

    Imbalance is told of patterns with tiles: the most elements of a tile over the mean of its layer's tiles.
    """
    masks = pruned.masks
    kept = sum(float(scores.sum(where=masks[n], dtype=np.float64)) for n, scores in importance.items())
    total = sum(float(scores.sum(dtype=np.float64)) for scores in importance.values())
    density = sum(int(mask.sum()) for mask in masks.values()) / sum(mask.size for mask in masks.values())
    uneven = [imbalance(tiles) for tiles in tiles_of(pruned.maps).values()]
    return {
        "sparsity": round(1.0 - density, 5),
        "retained_importance": round(kept / total, 5),
        "worst_imbalance": round(max(uneven), 4) if uneven else None,
        "mean_imbalance": round(float(np.mean(uneven)), 4) if uneven else None,
    }
