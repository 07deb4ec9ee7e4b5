"""Layouts of operations, feature-major or token-major, and the transposes that move the fewest elements.

A sparse product needs feature-major tensors and attention needs token-major ones; all other operations accept
both. The cheapest set of transposes is a minimum cut between the two groups, which networkx finds exactly.

A dense linear product can read one layout and write the other at no cost: libraries accept each operand
transposed, and the transposed product gives the transposed result.
"""

from collections.abc import Mapping
from typing import NamedTuple

from prunecast.workload.graph.model_graph import ModelGraph, Operation

_FEATURES, _TOKENS = ("camp", "features"), ("camp", "tokens")
_READING = "reading"


class Transpose(NamedTuple):
    """A tensor whose layout changes between its writer and a reader."""

    source: str
    target: str
    elements: int


class LayoutChoice(NamedTuple):
    """The layouts that every operation reads and writes, and the transposes between them."""

    reads: dict[str, str]
    writes: dict[str, str]
    transposes: tuple[Transpose, ...]


def may_change_layout(operation: Operation, wanted: Mapping[str, str]) -> bool:
    """Return True if an operation may write another layout than it reads.

    This holds for transposes and dense linear products.
    """
    is_linear = operation.kind == "gemm" and operation.convolution is None
    if operation.kind == "transpose":
        return True
    return is_linear and operation.layout is None and operation.name not in wanted


def choose_layouts(model: ModelGraph, wanted: Mapping[str, str]) -> LayoutChoice:
    """Return the layouts for which transposes move the fewest elements.

    Parameters
    ----------
    wanted : name of an operation -> layout that it must have, which overrides `Operation.layout`; e.g.
        `features` for every pruned product
    """
    import networkx as nx  # slow to import

    reading: dict[str, object] = {
        o.name: (_READING, o.name) if may_change_layout(o, wanted) else o.name for o in model
    }
    cut: nx.DiGraph[object] = nx.DiGraph()
    cut.add_nodes_from((_FEATURES, _TOKENS, *reading.values(), *reading))
    for operation in model:
        needed = wanted.get(operation.name, operation.layout)
        if needed is not None:
            # An edge without a capacity, which the minimum cut cannot contain
            edge = (_FEATURES, operation.name) if needed == "features" else (operation.name, _TOKENS)
            cut.add_edge(*edge)
    for source, target, elements in model.graph.edges(data="elements"):
        for one, other in ((source, reading[target]), (reading[target], source)):
            cut.add_edge(one, other, capacity=elements * model[source].runs)
    feature_side: set[object] = set()
    if "features" in wanted.values():
        _, (feature_side, _) = nx.minimum_cut(cut, _FEATURES, _TOKENS)
    reads = {name: _layout(node, feature_side) for name, node in reading.items()}
    writes = {name: _layout(name, feature_side) for name in reading}
    transposes = (
        Transpose(source, target, elements)
        for source, target, elements in model.graph.edges(data="elements")
        if writes[source] != reads[target]
    )
    return LayoutChoice(reads, writes, tuple(transposes))


def transposed_by_dense(model: ModelGraph, transposes: tuple[Transpose, ...]) -> dict[str, tuple[str, ...]]:
    """Return product -> writers of the tensors that need no transpose if only this product becomes dense.

    Parameters
    ----------
    transposes : transposes of the model in which these products are sparse
    """
    readers: dict[str, set[str]] = {}
    for change in transposes:
        readers.setdefault(change.source, set()).add(change.target)
    turned: dict[str, tuple[str, ...]] = {}
    for source, targets in readers.items():
        for name in (source, *(targets if len(targets) == 1 else ())):
            if may_change_layout(model[name], {}):
                turned[name] = (*turned.get(name, ()), source)
    return turned


def _layout(node: object, feature_side: set[object]) -> str:
    return "features" if node in feature_side else "tokens"
