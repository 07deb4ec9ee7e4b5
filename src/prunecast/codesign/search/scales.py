"""How far the times of menus are off for a model's own layers: by what was seen of those that were pruned."""

from collections.abc import Callable, Mapping

import numpy as np

from prunecast.codesign.search.model_search import ModelSearch, Tried

__all__ = ["Scales", "probe", "seen_scales", "sparse_layers", "with_likely"]

Scales = dict[str, dict[tuple[str, str], float]]
"""Layer -> kernel, pattern -> seconds seen over those of the menu."""
PROBES = 3
"""Choices that are looked at before all layers are pruned for one; the third has no new pattern."""


def sparse_layers(search: ModelSearch, choice: Mapping[str, int]) -> frozenset[str]:
    """Layers that do not stay dense."""
    return frozenset(name for name, place in choice.items() if search.options[name][place].pattern != "dense")


def seen_scales(search: ModelSearch, choice: Mapping[str, int], tried: Mapping[str, Tried]) -> Scales:
    """Scales of the layers of a choice that were pruned."""
    found = {}
    for name in sparse_layers(search, choice):
        option = search.options[name][choice[name]]
        found[name] = {option.run_as: tried[name].seconds / option.seconds}
    return found


def with_likely(search: ModelSearch, seen: Mapping[str, Mapping[tuple[str, str], float]]) -> Scales:
    """`seen`, and for a kernel on a pattern that a layer has not had, the mean over layers of its shape."""
    of_shape: dict[tuple[int, int, int], dict[tuple[str, str], list[float]]] = {}
    for name, scales in seen.items():
        ways = of_shape.setdefault(_shape(search, name), {})
        for way, scale in scales.items():
            ways.setdefault(way, []).append(scale)
    likely = {
        shape: {way: float(np.mean(scales)) for way, scales in ways.items()}
        for shape, ways in of_shape.items()
    }
    return {name: {**likely[_shape(search, name)], **scales} for name, scales in seen.items()}


def probe(search: ModelSearch, choose: Callable[[Scales], dict[str, int]], scales: Scales) -> None:
    """Prune one layer of each shape and pattern that would be chosen, and add what is seen to `scales`.

    A round of a model with billions of weights takes minutes; this takes seconds and spares most of them.
    """
    for _ in range(PROBES):
        choice = choose(with_likely(search, scales))
        known = {(_shape(search, name), way) for name, seen in scales.items() for way in seen}
        of_kind: dict[tuple[tuple[int, int, int], tuple[str, str]], str] = {}
        for name in sorted(sparse_layers(search, choice)):
            of_kind.setdefault((_shape(search, name), search.options[name][choice[name]].run_as), name)
        some = {name: choice[name] for kind, name in of_kind.items() if kind not in known}
        for name, seen in seen_scales(search, some, search.realise(some)).items():
            scales[name].update(seen)


def _shape(search: ModelSearch, name: str) -> tuple[int, int, int]:
    """(M, K, N) of a layer."""
    return (*search.layers.shapes[name], search.layers.tokens[name])
