"""`fuse_pointwise`: fuse the element-wise operations of a graph with their neighbours.

A graph from an ONNX file or a traced module has a node for each operator, for which memory traffic would be
overestimated. Compilers run biases and activations with the product before them, and a residual sum with its
norm.
"""

from dataclasses import replace

from prunecast.workload.graph.model_graph import ModelGraph, Operation


def fuse_pointwise(model: ModelGraph, *, into_products: bool = True) -> ModelGraph:
    """Return the graph with element-wise operations fused. Products, attention and unknown operations stay.

    Parameters
    ----------
    into_products : also fuse element-wise work into the product before it, as inference engines do
    """
    import networkx as nx

    fused = ModelGraph(name=model.name, graph=model.graph.copy())
    for name in list(nx.lexicographical_topological_sort(fused.graph)):
        _join_pointwise(fused, name)
    for o in [each for each in fused if each.kind == "normalise"]:
        _join_norm(fused, o)
    for o in [each for each in fused if each.kind == "elementwise"] if into_products else ():
        _join_product(fused, o)
    return ModelGraph(name=model.name, graph=fused.graph.copy())  # whose edges are in the order of operations


def _join_pointwise(model: ModelGraph, name: str) -> None:
    """Merge an element-wise operation into one whose output it reads and that also reads its other inputs."""
    o, before = model[name], {source.name for source in model.sources(name)}
    for other in [model[each] for each in sorted(before)] if o.kind == "elementwise" else ():
        reads = {source.name for source in model.sources(other.name)}
        if (
            other.kind == "elementwise"
            and other.layout in ("tokens", o.layout)
            and before <= reads | {other.name}
            and o.elements_out == other.elements_out
        ):
            _merge(model, o, into=replace(other, elements_out=_written(model, o, other)))
            return


def _join_norm(model: ModelGraph, o: Operation) -> None:
    """Merge a norm and the sum before it into one kernel.

    The kernel also writes the sum if other operations read it.
    """
    sources = model.sources(o.name)
    if len(sources) == 1 and sources[0].kind == "elementwise" and sources[0].elements_out == o.elements_out:
        out = _written(model, o, sources[0])
        _merge(model, o, into=replace(sources[0], elements_out=out, kind="normalise"))


def _join_product(model: ModelGraph, o: Operation) -> None:
    """Merge an element-wise operation into the product that is its only input and has no other reader."""
    sources = model.sources(o.name)
    if len(sources) != 1 or sources[0].kind != "gemm" or sources[0].elements_out != o.elements_out:
        return
    if len(model.readers(sources[0].name)) == 1:
        _merge(model, o, into=sources[0])


def _written(model: ModelGraph, o: Operation, other: Operation) -> int:
    """Return the elements that one kernel for `other` and then `o` writes.

    These are the output of `o`, and that of `other` only if further operations read it.
    """
    is_read = len(model.readers(other.name)) > 1
    return o.elements_out + (other.elements_out if is_read else 0)


def _merge(model: ModelGraph, o: Operation, *, into: Operation) -> None:
    for reader in model.readers(o.name):
        model.graph.add_edge(into.name, reader.name, elements=o.elements_out)
    model.graph.remove_node(o.name)
    model.graph.nodes[into.name]["operation"] = into
