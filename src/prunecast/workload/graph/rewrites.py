"""Rewrites of a model's graph: what runtimes fuse, split and transpose. Each maps a graph to a graph.

A rewrite changes who launches what, never the work: flops and weights stay, and so do the tensors that come
from outside and those that nobody reads. Applied twice it changes nothing more. Arrows in docstrings show the
pattern before and after; which rewrites a runtime applies, in order, is a list in `runtimes.py`.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from prunecast.plan.conv_shape import ConvShape
from prunecast.workload.graph.layouts import choose_layouts
from prunecast.workload.graph.model_graph import ModelGraph, Moved, Operation, linear

NORMS = ("normalise", "rms norm")
EPILOGUES = {"activation": "gelu epilogue", "gated unit": "silu epilogue"}
"""Kind of a kernel -> kind in the epilogue of the product before it."""
TRANSPOSES = ("transpose", "transpose epilogue")
FEW_TURNED_APART = 64
"""Tokens up to which X has a transposing launch. Kind: definition, `prunecast.torch.ops`."""
LEAST_TURNED_APART = 1 << 20
"""Elements from which it has one. Kind: definition, `prunecast.torch.ops`."""
LEAST_ADDED = 6 << 20
"""Elements of C from which its product adds it to the residual. Kind: definition, `prunecast.torch.ops`."""
IN_PLACE = ("relu", "relu epilogue", "elementwise")
"""Kinds that work in place, on the first tensor that they read."""
BORDER = 1
"""Zeros around images, in pixels. Kind: choice, `prunecast.torch.TileSparseConv2d`."""


def fold_first_norm(model: ModelGraph) -> ModelGraph:
    """The lookup of the embedding, or the convolution of patches, normalises what it writes.

    input -> norm -> reader  becomes  input -> reader
    """
    into = {}
    for norm in model:
        sources = model.sources(norm.name)
        if (
            norm.kind in NORMS
            and len(sources) == 1
            and (sources[0].kind == "input" or is_patches(sources[0]))
        ):
            into[norm.name] = sources[0].name
    return model.merged(into, {})


def fold_rotary(model: ModelGraph) -> ModelGraph:
    """Attention turns queries and keys as it reads them, and writes new keys and values into the cache.

    q, k, v -> rotary (-> cache) -> attention  becomes  q, k, v -> attention
    """
    into: dict[str, str] = {}
    for attention in (o for o in model if o.kind == "attention"):
        before = model.sources(attention.name)
        while len(before) == 1 and before[0].kind in ("rotary", "cache"):
            into[before[0].name] = attention.name
            before = model.sources(before[0].name)
    return model.merged(into, {})


def fold_activations(model: ModelGraph) -> ModelGraph:
    """A function of one product's output is the epilogue of that product.

    product -> activation -> reader  becomes  product -> reader
    """
    into = {}
    for o in model:
        sources = model.sources(o.name)
        if o.kind == "activation" and len(sources) == 1 and sources[0].kind == "gemm":
            into[o.name] = sources[0].name
    return model.merged(into, {})


def generalise_kinds(model: ModelGraph) -> ModelGraph:
    """Kinds that an engine does not time apart become the general ones.

    gated unit, rms norm  become  elementwise, normalise
    """
    general = {"gated unit": "elementwise", "rms norm": "normalise"}
    return model.changed(lambda o: replace(o, kind=general[o.kind]) if o.kind in general else o)


def join_qkv(model: ModelGraph) -> ModelGraph:
    """Queries, keys and values of a layer are one product.

    x -> query, x -> key, x -> value  become  x -> qkv
    """
    return _joined(model, ("query", "key", "value"), "qkv")


def join_gate_and_up(model: ModelGraph) -> ModelGraph:
    """Gate and up of a feed-forward part are one product.

    x -> gate, x -> up  become  x -> gate_up
    """
    return _joined(model, ("gate", "up"), "gate_up")


def _joined(model: ModelGraph, parts: Collection[str], joint: str) -> ModelGraph:
    """Products of one layer that read the same tensor as one, their rows below each other."""
    into: dict[str, str] = {}
    operations: dict[str, Operation] = {}
    for first in model.products:
        layer, _, own = first.rpartition(".")
        names = [f"{layer}.{part}" for part in parts]
        if own not in parts or first in into or not all(model.has_product(name) for name in names):
            continue
        members = [model[name] for name in names]
        if len({tuple(model.graph.predecessors(name)) for name in names}) == 1:
            name = f"{layer}.{joint}"
            into |= dict.fromkeys(names, name)
            rows = sum(member.m for member in members)
            operations[name] = replace(
                linear(name, rows, members[0].k, members[0].n), copies=members[0].copies
            )
    return model.merged(into, operations)


def convolve_patches(model: ModelGraph) -> ModelGraph:
    """A convolution without overlap stays dense: its kernel is the library's, with its own layouts.

    image -> product  becomes  image -> patches
    """
    return model.changed(lambda o: replace(o, kind="patches") if is_patches(o) else o)


def is_patches(o: Operation) -> bool:
    """Whether a product is a convolution whose filters stand side by side."""
    conv = o.convolution
    return o.kind == "gemm" and conv is not None and conv.stride == conv.kernel_h == conv.kernel_w > 1


def mark_sparse(model: ModelGraph, sparse: Collection[str], ungated: Collection[str] = ()) -> ModelGraph:
    """Products that a sparse kernel runs are marked; `ungated` ones by a kernel without gated units."""
    return model.changed(
        lambda o: (
            replace(o, is_sparse=True, gates=o.name not in ungated)
            if o.kind == "gemm" and o.name in sparse
            else o
        )
    )


def fuse_activations(model: ModelGraph) -> ModelGraph:
    """An activation between sparse products is the epilogue of the first one, which writes C as the second
    one reads it. So is a gated unit whose gate and up are one product.

    sparse product -> activation -> sparse product  becomes  sparse product -> epilogue -> sparse product
    """

    def fused(o: Operation) -> Operation:
        if not may_be_epilogue(model, o):
            return o
        (maker,) = model.sources(o.name)
        readers = model.readers(o.name)
        is_between = maker.is_sparse and any(reader.is_sparse for reader in readers)
        if not is_between or (o.kind == "gated unit" and not maker.gates):
            return o
        return replace(o, kind=EPILOGUES[o.kind])

    return model.changed(fused)


def may_be_epilogue(model: ModelGraph, o: Operation) -> bool:
    """Whether an activation follows one product. Gate and up of a file have tiles of their own, one below the
    other: their gated unit stays a kernel.
    """
    products = model.sources(o.name)
    return o.kind in EPILOGUES and len(products) == 1 and not products[0].members


def add_residuals(model: ModelGraph) -> ModelGraph:
    """A sparse product adds a large C to the residual, and the norm after it reads the sum only.

    sparse product, residual -> norm (adds)  becomes  sparse product (adds) -> norm
    """
    norms = {norm.name: norm for o in model.products.values() if o.is_sparse for norm in sums_after(model, o)}

    def added(o: Operation) -> Operation:
        if o.name in norms:
            return after_sum(o)
        beside = [added_elements(norm) for norm in sums_after(model, o)] if o.is_sparse else []
        return _with_beside(o, *beside)

    return model.changed(added)


def sums_after(model: ModelGraph, o: Operation) -> list[Operation]:
    """Norms that add a product's output, where it is large, to the residual."""
    return [
        each
        for each in model.readers(o.name)
        if each.kind in NORMS
        and each.elements_out // each.tensors_out >= LEAST_ADDED
        and each.elements_in > each.elements_out // each.tensors_out
    ]


def after_sum(norm: Operation) -> Operation:
    """The norm of a sum that a product has written."""
    each = norm.elements_out // norm.tensors_out
    return replace(norm, elements_in=each, elements_out=each, tensors_out=1)


def added_elements(norm: Operation) -> Moved:
    """The residual that a product reads to add its output to it."""
    return Moved(one_way=norm.elements_out // norm.tensors_out, is_launch=False)


def lay_images(model: ModelGraph) -> ModelGraph:
    """Sparse convolutions read and write images in planes, dense ones channels-last.

    A sparse convolution has bias and ReLU as epilogue, and a launch clears the borders of what it writes. A
    dense one after planes, and a sum of tensors in both layouts, move one element of a sector at a time.

    sparse convolution -> relu  becomes  (borders,) sparse convolution -> relu epilogue
    planes -> dense convolution  becomes  planes -> (channels last,) dense convolution
    """
    planes = in_planes(model)

    def laid(o: Operation) -> Operation:
        sources = model.sources(o.name)
        if o.kind == "gemm" and o.convolution is not None:
            if o.is_sparse:
                return _with_beside(o, Moved(in_l2=_border_elements(o)))
            if any(source.name in planes for source in sources):
                return _with_beside(o, Moved(copied=2 * o.elements_in, scattered=o.elements_in))
        if o.kind == "relu" and o.name in planes:
            return replace(o, kind="relu epilogue")
        if o.kind in ("relu", "elementwise"):
            is_in_planes = o.name in planes
            strange = [s for s in sources if is_in_planes not in _layouts(model, s, planes)]
            if strange:
                scattered = sum(source.elements_out for source in strange)
                return _with_beside(o, Moved(scattered=scattered, is_launch=False))
        return o

    return model.changed(laid)


def in_planes(model: ModelGraph) -> frozenset[str]:
    """Operations that write images in planes."""
    found: set[str] = set()
    for o in model:
        first = next(iter(model.graph.predecessors(o.name)), None)
        if o.is_sparse or (o.kind in IN_PLACE and first in found):
            found.add(o.name)
    return frozenset(found)


def _layouts(model: ModelGraph, o: Operation, planes: Collection[str]) -> set[bool]:
    """Whether images are in planes: in both layouts where they were transposed for a sparse reader."""
    is_in_planes = o.name in planes
    return {is_in_planes, is_in_planes or any(reader.is_sparse for reader in model.readers(o.name))}


def _border_elements(o: Operation) -> int:
    conv = o.convolution
    assert conv is not None
    between = BORDER * (conv.width_out + BORDER) + BORDER
    return (o.m + 1) * between * o.n // (conv.height_out * conv.width_out)


def _with_beside(o: Operation, *moved: Moved) -> Operation:
    new = tuple(each for each in moved if each not in o.beside)
    return replace(o, beside=(*o.beside, *new)) if new else o


def transpose_inputs(model: ModelGraph) -> ModelGraph:
    """X of a sparse product is transposed, unless an epilogue wrote it feature-major or it is one token.

    maker -> sparse products  becomes  maker -> transpose -> sparse products
    """
    planes = in_planes(model)
    found: dict[str, _Transposed] = {}
    for name in sorted(name for name, product in model.products.items() if product.is_sparse):
        reader = model[name]
        maker = next(iter(model.sources(name)), None)
        if maker is None:  # a matrix that the graph does not know: a pooler
            continue
        if maker.kind in (*TRANSPOSES, *EPILOGUES.values()) or reader.n == 1:
            continue
        if maker.name in planes and reader.convolution is not None:
            continue
        readers = found[maker.name].readers if maker.name in found else frozenset[str]()
        found[maker.name] = _Transposed(transpose_for(maker, reader), readers | {name})
    return _with_transposes(model, found)


def transpose_for(maker: Operation, reader: Operation) -> Operation:
    """The transpose of X for a sparse product: a launch, or for a small X the end of the norm that writes it;
    for a convolution one more launch lays the images between zeros.
    """
    x = reader.elements_in
    is_small = reader.n > FEW_TURNED_APART and x < LEAST_TURNED_APART and maker.kind in NORMS
    beside = () if reader.convolution is None else (_between_zeros(reader.convolution, x),)
    return Operation(
        name=f"{maker.name} transposed",
        kind="transpose epilogue" if is_small else "transpose",
        elements_in=x,
        elements_out=x,
        beside=beside,
    )


def _between_zeros(conv: ConvShape, elements: int) -> Moved:
    larger = (conv.height + BORDER) * (conv.width + BORDER) / (conv.height * conv.width)
    return Moved(copied=round((1.0 + larger) * elements))


def transpose_at_the_cut(model: ModelGraph) -> ModelGraph:
    """Tensors between feature-major and token-major operations are transposed, where that moves least.

    feature-major -> token-major  becomes  feature-major -> transpose -> token-major
    """
    wanted = {name: "features" for name, product in model.products.items() if product.is_sparse}
    found: dict[str, _Transposed] = {}
    for change in choose_layouts(model, wanted).transposes:
        source = model[change.source]
        transpose = Operation(
            name=f"{source.name} transposed",
            kind="transpose",
            elements_in=change.elements,
            elements_out=change.elements,
            copies=source.copies,
            idle=source.idle,
        )
        readers = found[source.name].readers if source.name in found else frozenset[str]()
        found[source.name] = _Transposed(transpose, readers | {change.target})
    return _with_transposes(model, found)


class _Transposed(NamedTuple):
    """The transpose of a tensor, and who reads it."""

    operation: Operation
    readers: frozenset[str]


def _with_transposes(model: ModelGraph, transposed: Mapping[str, _Transposed]) -> ModelGraph:
    """The graph with transposes behind what writes these tensors."""
    if not transposed:
        return model
    found = ModelGraph(name=model.name, runtime=model.runtime)
    for o in model:
        found.add(
            o,
            [
                transposed[source].operation.name
                if source in transposed and o.name in transposed[source].readers
                else source
                for source in model.graph.predecessors(o.name)
            ],
        )
        if o.name in transposed:
            found.add(transposed[o.name].operation, [o.name])
    return found
