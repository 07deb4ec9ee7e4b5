"""Who is compared: how each one's masks are found for a share of the dense model's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from narrow import Narrowing, find_narrow, narrow_masks
from predicted import Predictor, fitting

from prunecast.choice import PrunedMap
from prunecast.codesign.search.prune_model import masks_of
from prunecast.codesign.search.target import prune_to_targets
from prunecast.codesign.search.targets import Targets
from prunecast.patterns import Pattern, parse_pattern
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray

Importance = Mapping[str, ImportanceArray]
EVALUATIONS = 4
CLOSE = 0.003
MIXTURES, CLOSE_MIXTURE = 3, 0.01
"""A mixture takes at most what it is asked for, and patterns come in steps: it is asked again."""
GRID = (0.1, 0.3, 0.5, 0.65, 0.8, 0.9, 0.96)
"""Sparsities of the curve on which a search for a sparsity begins."""
NESTED_GRID = (0.5, 0.6, 0.7, 0.8, 0.9, 0.96)
"""Of patterns with 2:4 inside of tiles."""


LEAST_SAVED = 0.002
"""Share of the model's time that pruning a layer must save where only those are pruned that do."""


class Contestant(NamedTuple):
    """A pattern, how layers share its sparsity, and whether torch runs it fast."""

    pattern: str
    scope: str = "layer"
    is_fast: bool = True
    """Else nothing in torch runs it fast, and it has the sparsity of `LIKE`."""
    spread: float = 1.0
    """Power of a layer's mean importance that is left where layers compete; with 0 all layers are alike."""
    is_measured: bool = False
    """Layers compete by the loss that was measured with each of them pruned alone."""
    is_remeasured: bool = False
    """Layers compete by the loss measured with all other layers pruned as `FIRST` prunes them."""
    of_tiles: bool = False
    """The importance is that of columns of tiles instead of single weights."""
    spares: bool = False
    """Layers whose pruned products save no time stay dense."""
    families: tuple[str, ...] = ("atp", "guided")
    """What a mixture is offered beside dense layers."""
    is_narrow: bool = False
    """Units are removed whole; `pattern` is what the weights that are left may have inside."""


MIXTURE = "prune --latency"
FIRST = f"{MIXTURE} measured"
"""The contestant around whose masks the costs of layers are measured again."""
LIKE, TWO_OF_FOUR = "atp:128", "2:4"
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
    FIRST: Contestant("", is_measured=True),
    f"{MIXTURE} measured twice": Contestant("", is_measured=True, is_remeasured=True),
    f"{MIXTURE} measured of tiles": Contestant("", is_measured=True, of_tiles=True),
    "tile-wise:128 of tiles": Contestant("tile-wise:128", of_tiles=True),
    "tile-wise:128 measured": Contestant("tile-wise:128", "global", is_measured=True),
    "atp:128 guided of tiles": Contestant("atp:128:guided", of_tiles=True),
    "atp:64 guided": Contestant("atp:64:guided"),
    f"{MIXTURE} measured 2:4": Contestant("", is_measured=True, families=("atp", "guided", "2:4", "tvw")),
    TWO_OF_FOUR: Contestant(TWO_OF_FOUR),
    "tile-wise:128 global": Contestant("tile-wise:128", "global"),
    "block:64": Contestant("block:64x64"),
    "shuffled-block:64": Contestant("shuffled-block:64", is_fast=False),
    "unstructured": Contestant("unstructured", is_fast=False),
    "block:32": Contestant("block:32x32"),
    "dense-block": Contestant("dense-block:8", is_fast=False),
    "tvw:128": Contestant("tvw:128"),
    "tvw:128 where it saves": Contestant("tvw:128", spares=True),
    "atp:128 guided where it saves": Contestant("atp:128:guided", spares=True),
    "balanced:64": Contestant("balanced:64", is_fast=False),
    "narrow": Contestant("dense", is_narrow=True),
    "narrow 2:4": Contestant("2:4 inside", is_narrow=True),
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
    narrowing: Narrowing | None = None,
) -> Masks:
    """The masks of a contestant.

    Parameters
    ----------
    share : predicted time over the dense model's
    sparsity : of contestants that nothing runs
    costs : layer -> loss that a unit of importance is worth, for contestants that are measured
    narrowing : what may be removed whole, for contestants that are narrower
    """
    contestant = CONTESTANTS[name]
    if contestant.is_measured:
        importance = {
            layer: scores * np.float32((costs or {})[layer]) for layer, scores in importance.items()
        }
    if contestant.spread != 1.0:
        importance = {layer: _spread(scores, contestant.spread) for layer, scores in importance.items()}
    if name.startswith(MIXTURE):
        return _mixture(importance, share, predictor, contestant.families)
    if contestant.is_narrow:
        assert narrowing is not None, "this study has nothing that can be removed whole"
        return _narrow(importance, share, predictor, narrowing, contestant.pattern != "dense")
    pattern = _timed(parse_pattern(contestant.pattern), predictor)
    if contestant.pattern == TWO_OF_FOUR:
        return _masks(pattern, importance, None, contestant.scope, predictor)
    if not contestant.is_fast:
        return _masks(pattern, importance, sparsity, contestant.scope, None)
    if not contestant.spares:
        return _of_share(pattern, contestant.scope, importance, share, predictor)
    saving = _saving(_of_share(pattern, contestant.scope, importance, share, predictor), predictor)
    found = _of_share(
        pattern, contestant.scope, {name: importance[name] for name in saving}, share, predictor
    )
    whole = {name: np.ones(scores.shape, bool) for name, scores in importance.items()} | found.kept
    return found._replace(kept=whole, sparsity=_removed(whole))


def _narrow(
    importance: Importance, share: float, predictor: Predictor, narrowing: Narrowing, is_halved: bool
) -> Masks:
    """Units of least importance are removed, and of what is left some weights have 2:4 inside."""
    insides = [each for each in narrowing.inside if each] if is_halved else [()]
    found = find_narrow(
        narrowing,
        importance,
        share,
        lambda counts, inside: predictor.narrow_share(narrowing.graph(counts), inside),
        insides,
    )
    kept = narrow_masks(narrowing, importance, found)
    patterns = {
        name: TWO_OF_FOUR if any(part in name for part in found.inside) else "dense" for name in importance
    }
    return Masks(kept, patterns, _removed(kept), found.predicted_share)


def _saving(masks: Masks, predictor: Predictor) -> list[str]:
    """Layers without whose pruning the model would take longer."""
    maps = maps_of(masks.patterns, masks.kept)
    whole = predictor.share(maps)
    return [
        name
        for name in maps
        if predictor.share({other: each for other, each in maps.items() if other != name}) - whole
        > LEAST_SAVED
    ]


def _spread(scores: ImportanceArray, power: float) -> ImportanceArray:
    scaled: ImportanceArray = scores * np.float32(max(float(scores.mean()), 1e-30) ** (power - 1.0))
    return scaled


def _timed(pattern: Pattern, predictor: Predictor) -> Pattern:
    return pattern.timed_by(predictor.layer_seconds) if pattern.needs_times else pattern


def _masks(
    pattern: Pattern, importance: Importance, told: float | None, scope: str, predictor: Predictor | None
) -> Masks:
    """Matrices with fewer rows than a tile have tiles of their height, and share a sparsity of their own."""
    kept: dict[str, MaskArray] = {}
    patterns = {
        name: fitting(pattern.canonical, len(scores)).canonical for name, scores in importance.items()
    }
    for text in sorted(set(patterns.values())):
        rule = pattern if text == pattern.canonical else parse_pattern(text)
        own = {name: scores for name, scores in importance.items() if patterns[name] == text}
        kept |= (rule if predictor is None else _timed(rule, predictor)).prune(own, told, scope)
    share = None if predictor is None else predictor.share(maps_of(patterns, kept))
    return Masks(kept, patterns, _removed(kept), share)


def _removed(kept: Mapping[str, MaskArray]) -> float:
    return 1.0 - sum(int(mask.sum()) for mask in kept.values()) / sum(mask.size for mask in kept.values())


def maps_of(patterns: Mapping[str, str], kept: Mapping[str, MaskArray]) -> dict[str, PrunedMap]:
    """What is kept of layers that have zeros at all."""
    return {name: parse_pattern(patterns[name]).map(mask) for name, mask in kept.items() if not mask.all()}


def _of_share(
    pattern: Pattern, scope: str, importance: Importance, share: float, predictor: Predictor
) -> Masks:
    """The pattern at the sparsity whose predicted time is a share: a cheap curve, corrected each time."""
    height = max(pattern.parameters.get("height", 128), 32)
    is_nested = pattern.keeps == "elements in tiles"
    like, grid = (pattern.canonical, NESTED_GRID) if is_nested else (f"atp:{height}", GRID)
    curve, aim = predictor.curve(like, importance, grid), share
    best: Masks | None = None
    for _ in range(EVALUATIONS):
        told = float(np.interp(-aim, [-each for each in curve], grid))
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


def _mixture(importance: Importance, share: float, predictor: Predictor, families: Sequence[str]) -> Masks:
    """What `prunecast prune --latency SHARE --runtime torch` chooses, layer by layer."""
    search, aim = predictor.search(importance, families), share
    for _ in range(MIXTURES):
        result = prune_to_targets(search, Targets(latency_share=aim))
        pruned = masks_of(search, result)
        patterns = {
            n: layer.pattern for layer in result.layers if layer.pattern != "dense" for n in layer.names
        }
        found = predictor.share(maps_of(patterns, pruned))
        if abs(found / share - 1.0) < CLOSE_MIXTURE:
            break
        aim *= share / found
    kept = {name: np.ones(scores.shape, bool) for name, scores in importance.items()} | pruned
    return Masks(kept, patterns, result.sparsity, found)
