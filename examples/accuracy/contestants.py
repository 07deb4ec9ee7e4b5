"""Who is compared: how each one's masks are found for a share of the dense model's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from predicted import Predictor

from prunecast.codesign.search.prune_model import masks_of
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.search.targets import Targets
from prunecast.patterns import Pattern, TileMap, parse_pattern
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray

Importance = Mapping[str, ImportanceArray]
EVALUATIONS = 4
CLOSE = 0.003
MIXTURES, CLOSE_MIXTURE = 3, 0.01
"""A mixture takes at most what it is asked for, and patterns come in steps: it is asked again."""
GRID = (0.1, 0.3, 0.5, 0.65, 0.8, 0.9, 0.96)
"""Sparsities of the curve on which a search for a sparsity begins."""


class Contestant(NamedTuple):
    """A pattern, how layers share its sparsity, and what runs a model with it in torch."""

    pattern: str
    scope: str = "layer"
    runtime: str | None = "sparsify"
    """`sparsify`, `2:4` (cuSPARSELt), or None: nothing fast in torch; then it has the sparsity of `LIKE`."""
    spread: float = 1.0
    """Power of a layer's mean importance that is left where layers compete; with 0 all layers are alike."""
    is_measured: bool = False
    """Layers compete by the loss that was measured with each of them pruned alone."""


MIXTURE = "prune --latency"
LIKE = "atp:128"
CONTESTANTS = {
    "tile-wise:128": Contestant("tile-wise:128"),
    "atp:128": Contestant("atp:128"),
    "atp:128 guided": Contestant("atp:128:guided"),
    "atp:128 guided half alike": Contestant("atp:128:guided", "global", spread=0.5),
    "atp:128 guided alike": Contestant("atp:128:guided", "global", spread=0.0),
    "atp:128 guided competing": Contestant("atp:128:guided", "global"),
    "atp:128 guided measured": Contestant("atp:128:guided", "global", is_measured=True),
    MIXTURE: Contestant(""),
    f"{MIXTURE} alike": Contestant("", spread=0.0),
    f"{MIXTURE} measured": Contestant("", is_measured=True),
    "2:4": Contestant("2:4", runtime="2:4"),
    "tile-wise:128 global": Contestant("tile-wise:128", "global"),
    "block:64": Contestant("block:64x64"),
    "shuffled-block:64": Contestant("shuffled-block:64", runtime=None),
    "unstructured": Contestant("unstructured", runtime=None),
    "block:32": Contestant("block:32x32"),
    "dense-block": Contestant("dense-block:8", runtime=None),
    "tvw:128": Contestant("tvw:128", runtime=None),
    "balanced:64": Contestant("balanced:64", runtime=None),
}
"""Name -> contestant, what matters most first."""


class Masks(NamedTuple):
    """What each layer keeps, and what was said of the time."""

    kept: dict[str, MaskArray]
    patterns: dict[str, str]
    """Layer -> pattern that its mask has."""
    sparsity: float
    """Share of weights removed, over all layers that may be pruned."""
    predicted_share: float | None
    """Predicted time over that of the dense model; None where nothing runs it."""


def find_masks(
    name: str,
    importance: Importance,
    share: float,
    predictor: Predictor,
    sparsity: float | None = None,
    costs: Mapping[str, float] | None = None,
) -> Masks:
    """The masks of a contestant.

    Parameters
    ----------
    share : predicted time over the dense model's
    sparsity : of contestants that nothing runs
    costs : layer -> loss that a unit of importance is worth, for contestants that are measured
    """
    contestant = CONTESTANTS[name]
    if contestant.is_measured:
        importance = {
            layer: scores * np.float32((costs or {})[layer]) for layer, scores in importance.items()
        }
    if contestant.spread != 1.0:
        importance = {layer: _spread(scores, contestant.spread) for layer, scores in importance.items()}
    if name.startswith(MIXTURE):
        return _mixture(importance, share, predictor)
    pattern = _timed(parse_pattern(contestant.pattern), predictor)
    if contestant.runtime != "sparsify":
        told = None if contestant.runtime else sparsity
        return _masks(pattern, importance, told, contestant.scope, None)
    return _of_share(pattern, contestant.scope, importance, share, predictor)


def _spread(scores: ImportanceArray, power: float) -> ImportanceArray:
    scaled: ImportanceArray = scores * np.float32(max(float(scores.mean()), 1e-30) ** (power - 1.0))
    return scaled


def _timed(pattern: Pattern, predictor: Predictor) -> Pattern:
    return pattern.timed_by(predictor.layer_seconds) if pattern.needs_times else pattern


def _masks(
    pattern: Pattern, importance: Importance, told: float | None, scope: str, predictor: Predictor | None
) -> Masks:
    kept = pattern.prune(importance, told, scope)
    removed = 1.0 - sum(int(m.sum()) for m in kept.values()) / sum(m.size for m in kept.values())
    share = None if predictor is None else predictor.share(maps_of(pattern, kept))
    return Masks(kept, dict.fromkeys(kept, pattern.canonical), removed, share)


def maps_of(pattern: Pattern, kept: Mapping[str, MaskArray]) -> dict[str, TileMap]:
    """Tiles of layers that have zeros at all."""
    maps = {name: pattern.map(mask) for name, mask in kept.items() if not mask.all()}
    return {name: tiles for name, tiles in maps.items() if isinstance(tiles, TileMap)}


def _of_share(
    pattern: Pattern, scope: str, importance: Importance, share: float, predictor: Predictor
) -> Masks:
    """The pattern at the sparsity whose predicted time is a share: a cheap curve, corrected each time."""
    height = max(pattern.parameters.get("height", 128), 32)
    curve, aim = predictor.curve(f"atp:{height}", importance, GRID), share
    best: Masks | None = None
    for _ in range(EVALUATIONS):
        told = float(np.interp(-aim, [-each for each in curve], GRID))
        found = _masks(pattern, importance, told, scope, predictor)
        if best is None or _off(found, share) < _off(best, share):
            best = found
        if _off(found, share) < CLOSE:
            break
        aim *= share / (found.predicted_share or share)
    assert best is not None
    return best


def _off(masks: Masks, share: float) -> float:
    return abs((masks.predicted_share or share) / share - 1.0)


def _mixture(importance: Importance, share: float, predictor: Predictor) -> Masks:
    """What `prunecast prune --latency SHARE --runtime torch` chooses, layer by layer."""
    search, aim = predictor.search(importance), share
    for _ in range(MIXTURES):
        result = prune_to_targets(search, Targets(latency_share=aim))
        pruned = masks_of(search, result)
        patterns = {layer.layer: layer.pattern for layer in result.layers if layer.pattern != "dense"}
        maps = {name: parse_pattern(patterns[name]).map(mask) for name, mask in pruned.items()}
        found = predictor.share({name: tiles for name, tiles in maps.items() if isinstance(tiles, TileMap)})
        if abs(found / share - 1.0) < CLOSE_MIXTURE:
            break
        aim *= share / found
    kept = {name: np.ones(scores.shape, bool) for name, scores in importance.items()} | pruned
    return Masks(kept, patterns, result.sparsity, found)
