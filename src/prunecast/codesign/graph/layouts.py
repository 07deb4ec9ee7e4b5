"""Which operations work feature-major and which token-major, with the cheapest transposes between them.

A sparse product wants feature-major tensors, attention token-major ones, everything else takes both. The
cheapest set of transposes is a minimum cut between the two camps, which networkx finds exactly.
"""

from collections.abc import Mapping
from typing import NamedTuple

import networkx as nx

from prunecast.codesign.graph.model_graph import ModelGraph

__all__ = ["LayoutChoice", "Transpose", "choose_layouts"]

_FEATURES, _TOKENS = ("camp", "features"), ("camp", "tokens")


class Transpose(NamedTuple):
    """A tensor whose layout changes between its writer and a reader."""

    source: str
    target: str
    elements: int


class LayoutChoice(NamedTuple):
    """The layout of every operation, and the transposes in between."""

    layouts: dict[str, str]
    transposes: tuple[Transpose, ...]


def choose_layouts(model: ModelGraph, wanted: Mapping[str, str]) -> LayoutChoice:
    """The layouts with the fewest elements transposed.

    Parameters
    ----------
    wanted : layouts that operations must have beside their own, e.g. `features` for every pruned product
    """
    cut = nx.DiGraph()
    cut.add_nodes_from((_FEATURES, _TOKENS))
    for operation in model:
        needed = wanted.get(operation.name, operation.layout)
        if needed is not None:
            cut.add_edge(*_tie(operation.name, needed))
    for source, target, elements in model.graph.edges(data="elements"):
        _connect(cut, source, target, elements)
    _, (feature_side, _) = nx.minimum_cut(cut, _FEATURES, _TOKENS)
    layouts = {o.name: "features" if o.name in feature_side else "tokens" for o in model}
    if not any(layout == "features" for layout in wanted.values()):
        layouts = dict.fromkeys(layouts, "tokens")
    return LayoutChoice(layouts, _transposes(model, layouts))


def _tie(name: str, needed: str) -> tuple[object, object]:
    """An edge without capacity: it cannot be cut."""
    return (_FEATURES, name) if needed == "features" else (name, _TOKENS)


def _connect(cut: "nx.DiGraph[object]", source: str, target: str, elements: int) -> None:
    for one, other in ((source, target), (target, source)):
        cut.add_edge(one, other, capacity=elements)


def _transposes(model: ModelGraph, layouts: Mapping[str, str]) -> tuple[Transpose, ...]:
    return tuple(
        Transpose(source, target, elements)
        for source, target, elements in model.graph.edges(data="elements")
        if layouts[source] != layouts[target]
    )
