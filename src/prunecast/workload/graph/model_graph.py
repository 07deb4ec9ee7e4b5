"""`ModelGraph`: the operations of a model and their dependencies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.plan.conv_shape import ConvShape
from prunecast.workload.graph.experts import ExpertPart
from prunecast.workload.graph.shapes import MOST_TOKENS

if TYPE_CHECKING:
    import networkx as nx


COLLECTIVES = ("all reduce", "all gather")
"""Kinds of operations that combine a tensor over the GPUs that share a model."""
EXPERT_KINDS = ("expert sort", "expert unit", "expert sum")
"""Kinds of the launches of torch around the products of sparse experts. No rewrite produces them yet, because
the launches of models with experts in torch are not known."""
KINDS = (
    *("input", "gemm", "attention", "normalise", "elementwise", "pool", "depthwise", "unknown"),
    *COLLECTIVES,
    *("rms norm", "activation", "gated unit", "head norm", "rotary", "cache", "relu", "position bias"),
    *("patches", "convolution", "transpose", "quantise", "rotary in place"),
    *EXPERT_KINDS,
    *("transpose epilogue", "gelu epilogue", "silu epilogue", "relu epilogue"),
)
"""Kinds of operations. `gemm` multiplies with a weight matrix; `depthwise` is a convolution in groups, which
no sparse kernel runs; `unknown` is costed as memory traffic. The kinds after `COLLECTIVES` are fused or timed
separately by runtimes; `relu` is a ReLU, after a convolution with its bias, and `position bias` the numbers
that attention adds to the scores of all pairs of positions. The kinds after `position bias` are produced by
rewrites: `patches` and `convolution` are convolutions before the layers of a transformer, without and with
overlap, which no sparse kernel runs, `transpose` is a change of layout, `quantise` writes a tensor in fp8,
`rotary in place` overwrites queries and keys, and the others are work in the epilogue of the product before
it."""

LAYOUTS = ("features", "tokens")
"""features: the tokens of one feature are contiguous, (K, N) row-major, as the sparse kernels need it.
tokens: the features of one token are contiguous, as attention needs it."""


class Moved(NamedTuple):
    """Extra elements that an operation moves, in the epilogue of its kernel or by a separate launch."""

    copied: int = 0
    """Elements read plus elements written, each tensor contiguous."""
    in_l2: int = 0
    """Elements that are written to L2 only."""
    one_way: int = 0
    """Elements that are only read from DRAM."""
    is_launch: bool = True
    """True if a separate launch moves the elements, False if the operation's own kernel does."""


class Member(NamedTuple):
    """One of several matrices that are stacked along M in one product."""

    name: str
    m: int
    """Rows of the matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a model graph, such as a product with weights, attention or a norm.

    Parameters
    ----------
    name : unique in its graph, e.g. `encoder.0.query`
    kind : one of `KINDS`
    m, k, n : sizes of C (M, N) = A (M, K) @ B (K, N) for `gemm`; for an `input` with an embedding table, m
        and k are the sizes of the table; else 0
    convolution : the convolution that the product computes, or None for a linear layer
    flops : floating-point operations of kinds other than `gemm`, on tensor cores except for `depthwise`;
        those of a `gemm` follow from m, k, n
    attention : sizes of fused attention; None for other operations and for attention that is not fused
    elements_in, elements_out : elements read and written, without weights
    elements_cached : elements read that no operation of this pass wrote: keys and values of earlier tokens
    elements_kept : elements of all tokens in the cache after the pass, if they do not follow from
        `attention`; else 0
    copies : number of equal operations that this one represents, such as experts, or layers of a large model.
        All sizes are those of one copy
    idle : mean number of copies that a pass skips, such as experts without a token
    tensors_out : number of tensors of equal size in `elements_out`; a reader reads one of them. Those of a
        norm are its results, and the residual sum if it writes it
    layout : one of `LAYOUTS`, or None if both are accepted
    features : elements of a token that a norm normalises together; 0 if they are not known
    members : matrices stacked along M in this product, see `joins.py`; empty for one matrix
    extra_moves : extra data movement of the operation, which rewrites add
    experts : part of a fused MoE layer that the operation computes; None outside of experts
    is_sparse : True if a sparse kernel runs the product
    fuses : True if the epilogue of the product's kernel can run gated units and residual adds; of a rotary
        embedding, True if the heads in the result of the product can be rotated in place
    in_fp8 : True if the product reads X (tokens, K) in fp8, see `transposes.quantise_inputs`
    gpus : number of GPUs whose tensors a collective combines

    Raises
    ------
    BadInput : an unknown kind or layout, or a product without a size
    """

    name: str
    kind: str
    m: int = 0
    k: int = 0
    n: int = 0
    convolution: ConvShape | None = None
    flops: float = 0.0
    attention: Attention | None = None
    elements_in: int = 0
    elements_out: int = 0
    elements_cached: int = 0
    elements_kept: int = 0
    copies: int = 1
    idle: float = 0
    tensors_out: int = 1
    layout: str | None = None
    features: int = 0
    members: tuple[Member, ...] = ()
    extra_moves: tuple[Moved, ...] = ()
    experts: ExpertPart | None = None
    is_sparse: bool = False
    fuses: bool = True
    in_fp8: bool = False
    gpus: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"{self.name}: kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.layout not in (None, *LAYOUTS):
            raise BadInput(f"{self.name}: layout must be one of {', '.join(LAYOUTS)}, got {self.layout!r}")
        if self.kind == "gemm" and min(self.m, self.k, self.n) < 1:
            raise BadInput(
                f"{self.name}: a product needs m, k, n of at least 1, got {self.m}, {self.k}, {self.n}"
            )
        if self.kind == "gemm" and self.n > MOST_TOKENS:
            raise BadInput(f"{self.name}: a product has at most {MOST_TOKENS} tokens, got {self.n}")

    def with_extra_moves(self, *moved: Moved) -> "Operation":
        """Return the operation with `moved` added to its extra moves, without duplicates."""
        new = tuple(each for each in moved if each not in self.extra_moves)
        return replace(self, extra_moves=(*self.extra_moves, *new)) if new else self

    @property
    def tensors_in(self) -> int:
        """Tensors of the size of an output that are read: a norm of more than one normalises their sum."""
        return self.elements_in * self.tensors_out // max(self.elements_out, 1)

    @property
    def weights(self) -> int:
        """Elements of A, summed over all copies."""
        return self.m * self.k * self.copies

    @property
    def runs(self) -> float:
        """Mean number of copies that a pass runs."""
        return self.copies - self.idle


def linear(name: str, m: int, k: int, n: int, **others: Any) -> Operation:
    """Return the product C (m, n) = A (m, k) @ B (k, n); `others` are further fields of the operation."""
    sizes = {"m": m, "k": k, "n": n, "elements_in": k * n, "elements_out": m * n}
    return Operation(name=name, kind="gemm", **(sizes | others))


def convolved(name: str, filters: int, conv: ConvShape) -> Operation:
    """Return the convolution of a batch of images with `filters` filters."""
    pixels = conv.channels * conv.height * conv.width * conv.batch
    return linear(name, filters, conv.k, conv.n, convolution=conv, elements_in=pixels)


def plain_convolution(
    images: Sequence[int],
    filters: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
) -> ConvShape | None:
    """Return the convolution of `images` (batch, channels, height, width) with `filters` (height, width).

    Return None if `ConvShape` cannot describe it: filters that are not square, dilation, or a stride or
    padding that differs between the axes or between the two ends of an axis.
    """
    is_plain = len({*filters}) == len({*strides}) == len({*paddings}) == 1 and {*dilations} == {1}
    if not is_plain:
        return None
    sizes = dict(zip(("batch", "channels", "height", "width"), images, strict=True))
    kernel = {"kernel_h": filters[0], "kernel_w": filters[1]}
    return ConvShape(**sizes, **kernel, stride=strides[0], padding=paddings[0])


def _empty() -> "nx.DiGraph[str]":
    import networkx as nx  # slow to import, and only whole models need it

    return nx.DiGraph()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelGraph:
    """Operations of one forward pass of a model and their dependencies, for one number of tokens or images.

    Parameters
    ----------
    name : e.g. `bert-base`
    graph : a `networkx.DiGraph` of operation names; each node holds its `operation`, each edge the `elements`
        of the tensor that it passes on
    runtime : `engine` (operations fused as in an inference engine) or `torch`, see `runtimes.py`
    """

    name: str
    graph: "nx.DiGraph[str]" = field(default_factory=_empty)
    runtime: str = "engine"

    def add(self, operation: Operation, after: Sequence[str] = ()) -> str:
        """Append an operation that reads the outputs of `after`, and return its name.

        Raises
        ------
        BadInput : a name that is already used, or an unknown name in `after`
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
        """Iterate over the operations in the order in which they were added, a valid order of execution."""
        return (self[name] for name in self.graph)

    def __len__(self) -> int:
        return len(self.graph)

    @property
    def products(self) -> dict[str, Operation]:
        """The operations with weights, by name, in order."""
        return {operation.name: operation for operation in self if operation.kind == "gemm"}

    def sources(self, name: str) -> list[Operation]:
        """Return the operations whose tensors an operation reads."""
        return [self[source] for source in self.graph.predecessors(name)]

    def readers(self, name: str) -> list[Operation]:
        """Return the operations that read the output of an operation."""
        return [self[reader] for reader in self.graph.successors(name)]

    def changed(self, change: Callable[[Operation], Operation]) -> "ModelGraph":
        """Return the graph with `change` applied to every operation. Names and edges stay."""
        operations = {o.name: change(o) for o in self}
        if all(own is self[name] for name, own in operations.items()):
            return self
        return self.divided(lambda o: [operations[o.name]])

    def divided(self, parts: Callable[[Operation], Sequence[Operation]]) -> "ModelGraph":
        """Return the graph with each operation replaced by its `parts`, which may have other names.

        Each part reads all parts of the operation's sources, in order: work in place overwrites the first.
        """
        found = ModelGraph(name=self.name, runtime=self.runtime)
        names: dict[str, list[str]] = {}
        for o in self:
            sources = [name for source in self.graph.predecessors(o.name) for name in names[source]]
            names[o.name] = [found.add(part, sources) for part in parts(o)]
        return found

    def merged(self, into: Mapping[str, str], operations: Mapping[str, Operation]) -> "ModelGraph":
        """Return the graph with several operations merged into one.

        Parameters
        ----------
        into : operation -> name of the operation that it is merged into: an operation of the graph or a new
            one of `operations`. The result reads all inputs that its parts read from other operations
        operations : name -> operation, for operations that are new or different in the result
        """
        if not into:
            return self
        found = ModelGraph(name=self.name, runtime=self.runtime)
        reads: dict[str, dict[str, None]] = {}
        for one in self.graph:
            own = into.get(one, one)
            before = (into.get(source, source) for source in self.graph.predecessors(one))
            reads.setdefault(own, {}).update(dict.fromkeys(source for source in before if source != own))
        for one in self.graph:
            own = into.get(one, one)
            if own not in found.graph and all(source in found.graph for source in reads[own]):
                found.add(operations.get(own) or self[own], list(reads[own]))
        return found

    def free_name(self, name: str) -> str:
        """Return the name, with a number appended if an operation has it already."""
        numbered = (f"{name}#{number}" for number in count(2))
        return next(each for each in chain([name], numbered) if each not in self.graph)

    def has_product(self, name: str) -> bool:
        """Return True if an operation of this name exists and multiplies with weights."""
        return name in self.graph and self[name].kind == "gemm"

    @property
    def weights(self) -> int:
        """Number of elements of all weight matrices."""
        return sum(operation.weights for operation in self.products.values())

    @property
    def looked_up(self) -> int:
        """Number of elements of all embedding tables, whose rows are looked up and not multiplied."""
        return sum(operation.weights for operation in self if operation.kind == "input")

    @property
    def most_live(self) -> int:
        """Peak number of activation elements that exist at once.

        A tensor exists from its writer to its last reader. Operations that represent several layers count
        once, since layers follow each other.
        """
        readers = {name: len(self.graph.succ[name]) for name in self.graph}
        live = most = 0
        for operation in self:
            live += operation.elements_out
            most = max(most, live)
            for source in self.graph.predecessors(operation.name):
                readers[source] -= 1
                live -= 0 if readers[source] else self[source].elements_out
        return most
