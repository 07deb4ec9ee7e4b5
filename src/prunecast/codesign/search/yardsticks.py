"""Reference points for a solution: one sparsity in all layers, and the chosen kernels without pruning.

The search maximises the kept sum of magnitudes over all layers, which is not accuracy. In the study of a
language model (docs/studies/language.md), one sparsity in all layers lost less accuracy. A solution is
therefore compared with a model that has one sparsity in all layers.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from prunecast.codesign.search.floor import fastest_among
from prunecast.codesign.search.model_search import ModelSearch, SparseLayers
from prunecast.codesign.search.options import kernels_of_passes
from prunecast.codesign.search.targets import ChosenLayer, TargetResult
from prunecast.patterns import parse_pattern

STEP = 0.05
SHARES = np.round(np.arange(STEP, 0.951, STEP), 2)
"""Sparsities that are tried, ascending. Kind: choice."""
NEAR = 0.03
"""Largest difference between the sparsity of an option and a wanted sparsity for which the option is used.
Kind: choice, slightly more than half a step of `SHARES`."""
OTHER_KERNEL = 1.02
"""Least speedup of the chosen kernels without pruning that reports mention. Kind: choice, below the error of
any kernel."""


class UniformPoint(NamedTuple):
    """A model in which every layer whose pruning makes the pass faster has the same pattern and sparsity.

    Times are closed-form.
    """

    pattern: str
    """`2:4` or `tiles`."""
    removed: float
    """Sparsity of each pruned layer."""
    seconds: float
    retained_importance: float


def uniform_points(search: ModelSearch, most_s: float) -> tuple[UniformPoint, ...]:
    """Return the model pruned to 2:4, and to tiles of one sparsity in all layers.

    The sparsity of the tiles is the lowest one in `SHARES` with which the model needs at most `most_s`
    seconds. Either point is missing if no layer has an option of the pattern that is faster than dense. The
    point of tiles is also missing if no sparsity is fast enough.
    """
    points = [_point(search, "2:4", even_choice(search, "2:4", 0.5), 0.5)]
    choose = cache(partial(even_choice, search, "atp:.*"))
    first = first_share(lambda share: estimated_seconds(search, choose(share)) <= most_s)
    points += [_point(search, "tiles", choose(share), share) for share in SHARES[first : first + 1].tolist()]
    return tuple(point for point in points if point is not None)


def first_share(meets: Callable[[float], bool]) -> int:
    """Return the index of the lowest sparsity of `SHARES` that meets a time; their number if none does.

    Bisection: less time is needed at higher sparsity.
    """
    return bisect_left(SHARES.tolist(), True, key=meets)


def even_choice(search: ModelSearch, patterns: str, share: float) -> dict[str, int]:
    """Return layer -> index of its fastest option with a sparsity of about `share`, or 0 (dense).

    Layers are dense where the whole pass is then faster: near a dense layer, other layers need no transposes
    or have no fused epilogues. Options whose sparsity differs by more than `NEAR` are left out.

    Parameters
    ----------
    patterns : regular expression that the pattern strings of the options must match
    """
    seconds = {layer: options.seconds for layer, options in search.options.items()}
    return fastest_among(search, _even_places(search, patterns, share), seconds).choice


def own_choice(search: ModelSearch, patterns: str, share: float) -> dict[str, int]:
    """Return layer -> index of its fastest option with a sparsity of about `share`, or 0 (dense) if faster.

    Unlike `even_choice`, each layer is decided by its own time, without its effect on the rest of the pass.
    """
    return {
        name: own[int(np.argmin(search.options[name].seconds[list(own)]))]
        for name, own in _even_places(search, patterns, share).items()
    }


def _even_places(search: ModelSearch, patterns: str, share: float) -> dict[str, tuple[int, int]]:
    """Return layer -> index of the dense option, and of the fastest one with a sparsity of about `share`.

    The second index is 0 too if there is no such option. Parameters are those of `even_choice`.
    """
    places = {}
    for layer, options in search.options.items():
        allowed = np.abs(1.0 - options.kept / options.kept[0] - share) <= NEAR
        allowed &= options.matching(patterns)
        places[layer] = 0, int(np.argmin(np.where(allowed, options.seconds, np.inf))) if allowed.any() else 0
    return places


def estimated_seconds(search: ModelSearch, choice: Mapping[str, int]) -> float:
    """Return the estimated seconds of the whole model with a choice (layer -> option, 0 for dense)."""
    sparse = search.sparse(choice)
    seconds = {layer: float(search.options[layer].seconds[place]) for layer, place in choice.items()}
    seconds |= {layer: s for layer, s in search.dense_seconds().items() if layer not in sparse.names}
    return search.total(seconds, sparse)


def _point(search: ModelSearch, name: str, choice: Mapping[str, int], share: float) -> UniformPoint | None:
    """Return time and retained importance of a model with given options; None if all layers are dense.

    Parameters
    ----------
    choice : layer -> index of its option, 0 for dense
    share : sparsity of the layers that are not dense
    """
    if not any(choice.values()):
        return None
    kept = sum(search.options[layer].importance[place] for layer, place in choice.items())
    total_s = estimated_seconds(search, choice)
    return UniformPoint(name, share, total_s, float(kept / search.importance))


def unpruned_seconds(search: ModelSearch, result: TargetResult) -> float:
    """Return the model's seconds with no weight removed, and the faster of two kernels for each layer.

    These are cuBLAS and the chosen kernel. A gain over the dense model is then due to the kernel and not to
    pruning.
    Layers whose pattern has no tiles always run on cuBLAS, since only tile kernels can run all weights.
    """
    found = dict(_unpruned(search, result.layers))
    faster = {name: s for name, s in found.items() if s < search.dense_seconds()[name]}
    return search.total({**search.dense_seconds(), **faster}, SparseLayers(frozenset(faster)))


def _unpruned(search: ModelSearch, layers: tuple[ChosenLayer, ...]) -> Iterator[tuple[str, float]]:
    """Yield the name of each layer with a tile pattern, and its closed-form seconds with no weight removed.

    The time is that of the layer's chosen kernel.
    """
    known: dict[tuple[int, int, int, str, str], float] = {}
    for layer in layers:
        if layer.pattern == "dense" or parse_pattern(layer.pattern).keeps != "tiles":
            continue
        key = (layer.m, layer.k, layer.n, layer.pattern, layer.kernel)
        if key not in known:
            passes = sum(n > 0 for n in search.workload.layers[layer.layer].tokens)
            whole = parse_pattern(layer.pattern).map(np.ones((layer.m, layer.k), dtype=np.bool_))
            kernels = kernels_of_passes(layer.kernel, passes)
            known[key] = search.seconds(layer.layer, kernels, whole, search.engine.estimate)
        yield layer.layer, known[key]
