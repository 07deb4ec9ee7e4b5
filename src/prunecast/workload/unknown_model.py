"""Graph of a model of unknown type: its matrix products in sequence, and one read of all other weights."""

import re
from collections.abc import Iterator, Mapping

from prunecast.patterns.sources.read import matrix_sizes
from prunecast.patterns.sources.roles import is_lookup
from prunecast.patterns.sources.stored_tensor import StoredTensor
from prunecast.workload.graph.config import node_of
from prunecast.workload.graph.model_graph import ModelGraph, Operation, linear
from prunecast.workload.graph.shapes import Pass
from prunecast.workload.layers import Skipped, is_pruned

NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
"""Number of a layer in the name of a module."""


def unknown_graph(name: str, stored: Mapping[str, StoredTensor], run: Pass) -> ModelGraph:
    """Return a graph in which each matrix multiplies all tokens of the pass, one matrix after the other.

    The output head multiplies only the last token of each sequence unless the pass needs all logits. Every
    other module reads its weights once, before the matrices. The work of these modules on activations is not
    known and not counted.
    """
    graph = ModelGraph(name=name)
    for table, (m, k) in _tables(stored).items():
        graph.add(Operation(name=table, kind="input", m=m, k=k, elements_out=k * run.columns))
    for module, elements in unknown_parts(stored).items():
        graph.add(Operation(name=module, kind="unknown", elements_in=elements))
    before: tuple[str, ...] = ()
    for matrix, (m, k) in _matrices(stored).items():
        is_head = not is_pruned(node_of(matrix) or matrix)
        tokens = run.batch if is_head and not run.all_logits else run.columns
        before = (graph.add(linear(matrix, m, k, tokens), before),)
    return graph


def unknown_parts(stored: Mapping[str, StoredTensor]) -> dict[str, int]:
    """Return module -> elements of its tensors, except matrices, embedding tables and biases of matrices."""
    matrices, tables = _matrices(stored), _tables(stored)
    found: dict[str, int] = {}
    for name, tensor in stored.items():
        module = name.rpartition(".")[0] or name
        if not {name, f"{module}.weight"} & {*matrices, *tables}:
            found[module] = found.get(module, 0) + tensor.elements
    return found


def parts_skipped(stored: Mapping[str, StoredTensor]) -> Iterator[Skipped]:
    """Yield one note for each group of unknown modules whose names differ only in the layer number."""
    alike: dict[str, list[int]] = {}
    for module, elements in unknown_parts(stored).items():
        alike.setdefault(NUMBER.sub("*", module), []).append(elements)
    for module, sizes in alike.items():
        reason = f"not known: counts as the memory of its {sizes[0]:,} weights"
        count = f" ({len(sizes)} alike)" if len(sizes) > 1 else ""
        yield Skipped(layer=module, reason=reason + count)


def _matrices(stored: Mapping[str, StoredTensor]) -> dict[str, tuple[int, int]]:
    """Return name -> (M, K) of matrices called `weight`; other matrices count as parts of their modules."""
    return {
        name: sizes
        for name, sizes in matrix_sizes(stored).items()
        if name.endswith(".weight") and len(stored[name].shape) == 2 and not is_lookup(name)
    }


def _tables(stored: Mapping[str, StoredTensor]) -> dict[str, tuple[int, int]]:
    """Return name -> (rows, features) of embedding tables."""
    return {
        name: (tensor.shape[0], tensor.shape[1])
        for name, tensor in stored.items()
        if is_lookup(name) and len(tensor.shape) == 2
    }
