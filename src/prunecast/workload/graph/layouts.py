"""Layouts of operations, feature-major or token-major, with the cheapest transposes between them.

A sparse product wants feature-major tensors, attention token-major ones, everything else takes both. The
cheapest set of transposes is a minimum cut between the two camps, which networkx finds exactly.

A dense linear product reads in one layout and writes in the other as well as not: libraries take each operand
transposed, and the transposed product gives the transposed result.

`ImageForm`: what torch launches around convolutions, dense ones of cuDNN and sparse ones in planes. A bias
and ReLU are a pass over memory behind a dense convolution, and the epilogue of a sparse one. A sparse one
reads planes that another one wrote, or a sum added to in place; channels-last images come into planes by two
launches: they are turned as a matrix, then laid between zeros. One more clears the borders of what each
sparse one writes. A dense one behind planes, and a sum of tensors in both layouts, move one element of a
sector at a time.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from prunecast.hardware import GpuSpec, MemoryPass
from prunecast.hardware.spec import SECTOR_BYTES
from prunecast.workload.graph.model_graph import ModelGraph, Operation

if TYPE_CHECKING:
    import networkx as nx

_FEATURES, _TOKENS = ("camp", "features"), ("camp", "tokens")
_READING = "reading"


class Transpose(NamedTuple):
    """A tensor whose layout changes between its writer and a reader."""

    source: str
    target: str
    elements: int


class LayoutChoice(NamedTuple):
    """The layouts of what every operation reads and writes, and the transposes in between."""

    reads: dict[str, str]
    writes: dict[str, str]
    transposes: tuple[Transpose, ...]


def turns(operation: Operation, wanted: Mapping[str, str]) -> bool:
    """Whether an operation may write another layout than it reads: a dense linear product."""
    is_linear = operation.kind == "gemm" and operation.convolution is None
    return is_linear and operation.layout is None and operation.name not in wanted


def choose_layouts(model: ModelGraph, wanted: Mapping[str, str]) -> LayoutChoice:
    """The layouts with the fewest elements transposed.

    Parameters
    ----------
    wanted : layouts that operations must have beside their own, e.g. `features` for every pruned product
    """
    import networkx as nx  # slow to import

    reading: dict[str, object] = {o.name: (_READING, o.name) if turns(o, wanted) else o.name for o in model}
    cut: nx.DiGraph[object] = nx.DiGraph()
    cut.add_nodes_from((_FEATURES, _TOKENS, *reading.values(), *reading))
    for operation in model:
        needed = wanted.get(operation.name, operation.layout)
        if needed is not None:
            cut.add_edge(*_tie(operation.name, needed))
    for source, target, elements in model.graph.edges(data="elements"):
        _connect(cut, source, reading[target], elements * model[source].runs)
    feature_side: set[object] = set()
    if "features" in wanted.values():
        _, (feature_side, _) = nx.minimum_cut(cut, _FEATURES, _TOKENS)
    reads = {name: _layout(node, feature_side) for name, node in reading.items()}
    writes = {name: _layout(name, feature_side) for name in reading}
    return LayoutChoice(reads, writes, _transposes(model, reads, writes))


def turned_by_dense(model: ModelGraph, transposes: tuple[Transpose, ...]) -> dict[str, tuple[str, ...]]:
    """Sparse product -> writers of the tensors that need no transpose if it alone becomes dense.

    Parameters
    ----------
    transposes : those of the model with these products sparse
    """
    readers: dict[str, set[str]] = {}
    for change in transposes:
        readers.setdefault(change.source, set()).add(change.target)
    turned: dict[str, tuple[str, ...]] = {}
    for source, targets in readers.items():
        for name in (source, *(targets if len(targets) == 1 else ())):
            if turns(model[name], {}):
                turned[name] = (*turned.get(name, ()), source)
    return turned


def _layout(node: object, feature_side: set[object]) -> str:
    return "features" if node in feature_side else "tokens"


def _tie(name: str, needed: str) -> tuple[object, object]:
    """An edge without capacity: it cannot be cut."""
    return (_FEATURES, name) if needed == "features" else (name, _TOKENS)


def _connect(cut: "nx.DiGraph[object]", source: object, target: object, elements: int) -> None:
    for one, other in ((source, target), (target, source)):
        cut.add_edge(one, other, capacity=elements)


def _transposes(
    model: ModelGraph, reads: Mapping[str, str], writes: Mapping[str, str]
) -> tuple[Transpose, ...]:
    return tuple(
        Transpose(source, target, elements)
        for source, target, elements in model.graph.edges(data="elements")
        if writes[source] != reads[target]
    )


PASSES = ("relu", "elementwise")
"""Kinds that work in place, on the first tensor that they read."""
BORDER = 1
"""Zeros around images, in pixels. Kind: choice, `prunecast.torch.TileSparseConv2d`."""
_ELEMENT_BYTES = 2


class ImageForm(NamedTuple):
    """A pass over images with some of its convolutions sparse."""

    model: ModelGraph
    sparse: frozenset[str]
    gpu: GpuSpec

    def in_planes(self, name: str) -> bool:
        """Whether an operation writes planes."""
        o = self.model[name]
        if o.kind == "gemm":
            return name in self.sparse
        sources = self._sources(o)
        return o.kind in PASSES and bool(sources) and self.in_planes(sources[0])

    def passing(self, o: Operation) -> float:
        """Seconds of a sum, or of a bias and ReLU."""
        sources, lies = self._sources(o), self.in_planes(o.name)
        if o.kind == "relu" and lies:
            return 0.0
        strange = sum(self.model[name].elements_out for name in sources if lies not in self._layouts(name))
        return self._moving(o.elements_in + o.elements_out, scattered=strange)

    def beside(self, o: Operation) -> float:
        """Seconds of the launch beside a convolution: borders are cleared, or images leave their planes."""
        if o.convolution is None:
            return 0.0
        if o.name in self.sparse:
            cleared = MemoryPass(l2_bytes=self._border_bytes(o), start_s=self.gpu.graph_launch_s)
            return cleared.seconds(self.gpu)
        if not any(map(self.in_planes, self._sources(o))):
            return 0.0
        return self._moving(2 * o.elements_in, scattered=o.elements_in)

    def laid(self, o: Operation) -> float:
        """Seconds of laying turned images between zeros, for a convolution that reads them."""
        conv = o.convolution
        if conv is None:
            return 0.0
        larger = (conv.height + BORDER) * (conv.width + BORDER) / (conv.height * conv.width)
        return self._moving(round((1.0 + larger) * o.elements_in))

    def _layouts(self, name: str) -> set[bool]:
        """Whether images lie in planes: in both ways where they came into them for a reader."""
        turned = not self.sparse.isdisjoint(self.model.graph.successors(name))
        return {self.in_planes(name), turned or self.in_planes(name)}

    def _moving(self, elements: int, *, scattered: int = 0) -> float:
        """Return the seconds of a launch; each of `scattered` elements fetches a sector."""
        return MemoryPass(
            copied_bytes=elements * _ELEMENT_BYTES,
            l2_bytes=scattered * (SECTOR_BYTES - _ELEMENT_BYTES),
            start_s=self.gpu.graph_launch_s,
        ).seconds(self.gpu)

    def _border_bytes(self, o: Operation) -> int:
        conv = o.convolution
        assert conv is not None
        between = BORDER * (conv.width_out + BORDER) + BORDER
        return (o.m + 1) * between * o.n // (conv.height_out * conv.width_out) * _ELEMENT_BYTES

    def _sources(self, o: Operation) -> list[str]:
        return list(self.model.graph.predecessors(o.name))
