"""What runs as one kernel: element-wise work joins its neighbours, as inference engines do it.

The standard models of `graph.workloads` are written that way: biases and activations belong to their product,
a residual sum to its norm. A file has a node for each, and would seem to move far more memory than it does.
"""

from collections.abc import Iterable
from dataclasses import replace

import networkx as nx

from prunecast.codesign.graph import ModelGraph, Operation

__all__ = ["fuse"]


def fuse(model: ModelGraph) -> ModelGraph:
    """The graph with fewer operations; products, attention and unknown ones all stay."""
    graph: nx.DiGraph[str] = model.graph.copy()
    for name in list(nx.lexicographical_topological_sort(graph)):
        _join_pointwise(graph, name)
    for name in list(graph):
        _join_norm(graph, name)
    for name in list(graph):
        _join_product(graph, name)
    return _rebuilt(model, graph)


def _kind(graph: "nx.DiGraph[str]", name: str) -> str:
    return _operation(graph, name).kind


def _operation(graph: "nx.DiGraph[str]", name: str) -> Operation:
    operation: Operation = graph.nodes[name]["operation"]
    return operation


def _join_pointwise(graph: "nx.DiGraph[str]", name: str) -> None:
    """Into the element-wise work before it, if that reads all that this one reads."""
    if _kind(graph, name) != "elementwise":
        return
    before = set(graph.predecessors(name))
    for other in sorted(before):
        reads = set(graph.predecessors(other))
        if (
            _kind(graph, other) == "elementwise"
            and before <= reads | {other}
            and _same_size(graph, name, other)
        ):
            stays = set(graph.successors(other)) - {name}
            out = _operation(graph, name).elements_out + (
                _operation(graph, other).elements_out if stays else 0
            )
            _merge(graph, name, into=other, elements_out=out)
            return


def _join_norm(graph: "nx.DiGraph[str]", name: str) -> None:
    """A norm into the sum before it: one pass over the data, which writes the sum too if others want it."""
    if name not in graph or _kind(graph, name) != "normalise" or graph.in_degree(name) != 1:
        return
    (other,) = graph.predecessors(name)
    if _kind(graph, other) == "elementwise" and _same_size(graph, name, other):
        stays = set(graph.successors(other)) - {name}
        out = _operation(graph, name).elements_out + (_operation(graph, other).elements_out if stays else 0)
        _merge(graph, name, into=other, elements_out=out)
        graph.nodes[other]["operation"] = replace(_operation(graph, other), kind="normalise")


def _join_product(graph: "nx.DiGraph[str]", name: str) -> None:
    """Element-wise work into the product before it, if neither reads or is read by anything else."""
    if name not in graph or _kind(graph, name) != "elementwise" or graph.in_degree(name) != 1:
        return
    (other,) = graph.predecessors(name)
    if _kind(graph, other) == "gemm" and graph.out_degree(other) == 1 and _same_size(graph, name, other):
        _merge(graph, name, into=other, elements_out=_operation(graph, other).elements_out)


def _same_size(graph: "nx.DiGraph[str]", one: str, other: str) -> bool:
    return _operation(graph, one).elements_out == _operation(graph, other).elements_out


def _merge(graph: "nx.DiGraph[str]", name: str, *, into: str, elements_out: int) -> None:
    for reader in list(graph.successors(name)):
        graph.add_edge(into, reader, elements=_operation(graph, name).elements_out)
    graph.remove_node(name)
    graph.nodes[into]["operation"] = replace(_operation(graph, into), elements_out=elements_out)


def _rebuilt(model: ModelGraph, graph: "nx.DiGraph[str]") -> ModelGraph:
    fused = ModelGraph(name=model.name)
    for name in _in_order(model, graph):
        fused.graph.add_node(name, operation=_operation(graph, name))
    fused.graph.add_edges_from(graph.edges(data=True))
    return fused


def _in_order(model: ModelGraph, graph: "nx.DiGraph[str]") -> Iterable[str]:
    return (operation.name for operation in model if operation.name in graph)
