"""`fuse_pointwise`: fuse the element-wise operations of a graph with their neighbours.

A graph from an ONNX file or a traced module has a node for each operator, for which memory traffic would be
overestimated. Compilers run biases and activations with the product before them, and a residual sum with its
norm.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from prunecast.workload.graph.model_graph import ModelGraph, Operation

if TYPE_CHECKING:
    import networkx as nx


def fuse_pointwise(model: ModelGraph, *, into_products: bool = True) -> ModelGraph:
    """Return the graph with element-wise operations fused. Products, attention and unknown operations stay.

    Parameters
    ----------
    into_products : also fuse element-wise work into the product before it, as inference engines do
    """
    import networkx as nx

    graph: nx.DiGraph[str] = model.graph.copy()
    for name in list(nx.lexicographical_topological_sort(graph)):
        _join_pointwise(graph, name)
    for name in list(graph):
        _join_norm(graph, name)
    for name in list(graph) if into_products else ():
        _join_product(graph, name)
    return _rebuilt(model, graph)


def _kind(graph: "nx.DiGraph[str]", name: str) -> str:
    return _operation(graph, name).kind


def _operation(graph: "nx.DiGraph[str]", name: str) -> Operation:
    operation: Operation = graph.nodes[name]["operation"]
    return operation


def _join_pointwise(graph: "nx.DiGraph[str]", name: str) -> None:
    """Merge an element-wise operation into one before it that reads all its other inputs."""
    if _kind(graph, name) != "elementwise":
        return
    before = set(graph.predecessors(name))
    for other in sorted(before):
        reads = set(graph.predecessors(other))
        if (
            _kind(graph, other) == "elementwise"
            and _operation(graph, other).layout in ("tokens", _operation(graph, name).layout)
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
    """Merge a norm and the sum before it into one kernel.

    The kernel also writes the sum if other operations read it.
    """
    if name not in graph or _kind(graph, name) != "normalise" or graph.in_degree(name) != 1:
        return
    (other,) = graph.predecessors(name)
    if _kind(graph, other) == "elementwise" and _same_size(graph, name, other):
        stays = set(graph.successors(other)) - {name}
        out = _operation(graph, name).elements_out + (_operation(graph, other).elements_out if stays else 0)
        _merge(graph, name, into=other, elements_out=out)
        graph.nodes[other]["operation"] = replace(_operation(graph, other), kind="normalise")


def _join_product(graph: "nx.DiGraph[str]", name: str) -> None:
    """Merge an element-wise operation into a product that is its only input and that it alone reads."""
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
    for operation in model:  # keep their order
        if operation.name in graph:
            fused.graph.add_node(operation.name, operation=_operation(graph, operation.name))
    fused.graph.add_edges_from(graph.edges(data=True))
    return fused
