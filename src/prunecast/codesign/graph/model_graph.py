"""`ModelGraph`: the operations of a model and who waits for whom."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prunecast.codesign.graph.operation import Operation
from prunecast.errors import BadInput

if TYPE_CHECKING:
    import networkx as nx


def _empty() -> "nx.DiGraph[str]":
    import networkx as nx  # slow to import, and only whole models need it

    return nx.DiGraph()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelGraph:
    """A model for one number of tokens or images.

    Parameters
    ----------
    name : e.g. `bert-base`
    graph : a `networkx.DiGraph` of operation names; each node holds its `operation`, each edge the `elements`
        of the tensor that goes along it
    runtime : `engine`, operators as an inference engine would run them, or `torch`, see `torch_form`
    """

    name: str
    graph: "nx.DiGraph[str]" = field(default_factory=_empty)
    runtime: str = "engine"

    def add(self, operation: Operation, after: Sequence[str] = ()) -> str:
        """Append an operation that reads what `after` write; its name comes back.

        Raises
        ------
        BadInput : a name that is taken, or one in `after` that is not there
        """
        if operation.name in self.graph:
            raise BadInput(f"{self.name}: two operations are called {operation.name!r}")
        self.graph.add_node(operation.name, operation=operation)
        for source in after:
            if source not in self.graph:
                raise BadInput(f"{self.name}: {operation.name!r} comes after {source!r}, which is not there")
            read = self[source].elements_out // self[source].tensors_out
            self.graph.add_edge(source, operation.name, elements=read)
        return operation.name

    def __getitem__(self, name: str) -> Operation:
        operation: Operation = self.graph.nodes[name]["operation"]
        return operation

    def __iter__(self) -> Iterator[Operation]:
        """Operations in an order in which they can run."""
        import networkx as nx

        place = {name: place for place, name in enumerate(self.graph)}
        return (self[name] for name in nx.lexicographical_topological_sort(self.graph, key=place.__getitem__))

    def __len__(self) -> int:
        return len(self.graph)

    @property
    def products(self) -> dict[str, Operation]:
        """The operations with weights, by name, in order."""
        return {operation.name: operation for operation in self if operation.kind == "gemm"}

    def has_product(self, name: str) -> bool:
        """Whether an operation of this name has weights; `products` sorts the graph, this does not."""
        return name in self.graph and self[name].kind == "gemm"

    @property
    def weights(self) -> int:
        """Elements of all weight matrices."""
        return sum(operation.weights for operation in self.products.values())
