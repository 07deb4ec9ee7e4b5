"""Rewrites of a model graph: the fusions, splits and transposes of runtimes. Each maps a graph to a graph.

A rewrite changes which launch does which work, but never the work: flops, weights and the tensors between the
remaining operations stay. Each docstring shows the pattern before and after. The list of the rewrites of a
runtime, in order, is in `runtimes.py`.
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
"""Number of tokens up to which X has a transposing launch. Kind: definition, `prunecast.torch.ops`."""
LEAST_TURNED_APART = 1 << 20
"""Elements of X from which it has a transposing launch. Kind: definition, `prunecast.torch.ops`."""
LEAST_ADDED = 6 << 20
"""Elements of C from which its product adds it to the residual. Kind: definition, `prunecast.torch.ops`."""
IN_PLACE = ("relu", "relu epilogue", "elementwise")
"""Kinds that work in place, on the first tensor that they read."""
BORDER = 1
"""Zeros around images, in pixels. Kind: choice, `prunecast.torch.SparseConv2d`."""


def fold_first_norm(model: ModelGraph) -> ModelGraph:
    """Fold the first norm into the embedding lookup, or into the convolution of patches.

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
    """Fold the rotary embedding and the cache update into attention, which reads q and k and writes k and v.

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
    """Fold an activation of one product's output into the epilogue of that product.

    product -> activation -> reader  becomes  product -> reader
    """
    into = {}
    for o in model:
        sources = model.sources(o.name)
        if o.kind == "activation" and len(sources) == 1 and sources[0].kind == "gemm":
            into[o.name] = sources[0].name
    return model.merged(into, {})


def generalise_kinds(model: ModelGraph) -> ModelGraph:
    """Replace kinds that an engine does not time separately by the general ones.

    gated unit, rms norm  become  elementwise, normalise
    """
    general = {"gated unit": "elementwise", "rms norm": "normalise"}
    return model.changed(lambda o: replace(o, kind=general[o.kind]) if o.kind in general else o)


def join_qkv(model: ModelGraph) -> ModelGraph:
    """Join queries, keys and values of a layer into one product.

    x -> query, x -> key, x -> value  become  x -> qkv
    """
    return _joined(model, ("query", "key", "value"), "qkv")


def join_gate_and_up(model: ModelGraph) -> ModelGraph:
    """Join gate and up of a feed-forward part into one product.

    x -> gate, x -> up  become  x -> gate_up
    """
    return _joined(model, ("gate", "up"), "gate_up")


def _joined(model: ModelGraph, parts: Collection[str], joint: str) -> ModelGraph:
    """Return the graph with products of one layer that read the same tensor stacked along M."""
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
    """Mark convolutions without overlap as `patches`: they stay dense, in a library kernel with its own
    layouts.

    image -> product  becomes  image -> patches
    """
    return model.changed(lambda o: replace(o, kind="patches") if is_patches(o) else o)


def is_patches(o: Operation) -> bool:
    """Return whether a product is a convolution whose filters do not overlap."""
    conv = o.convolution
    return o.kind == "gemm" and conv is not None and conv.stride == conv.kernel_h == conv.kernel_w > 1


def mark_sparse(model: ModelGraph, sparse: Collection[str], ungated: Collection[str] = ()) -> ModelGraph:
    """Mark the products that a sparse kernel runs; `ungated` ones run in a kernel without gated units."""
    return model.changed(
        lambda o: (
            replace(o, is_sparse=True, gates=o.name not in ungated)
            if o.kind == "gemm" and o.name in sparse
            else o
        )
    )


def fuse_activations(model: ModelGraph) -> ModelGraph:
    """Make an activation between sparse products the epilogue of the first, which writes C in the layout of
    X.

    A gated unit is fused too if its gate and up are one product.

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
    """Return whether an activation can be the epilogue of the product before it.

    A stacked product of gate and up from a file has separate tiles for each, so that its gated unit stays a
    kernel.
    """
    products = model.sources(o.name)
    return o.kind in EPILOGUES and len(products) == 1 and not products[0].members


def add_residuals(model: ModelGraph) -> ModelGraph:
    """Add a large C to the residual in the sparse product, so that the norm after it reads only the sum.

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
    """Return the norms that add the output of a product to the residual, if the output is large."""
    return [
        each
        for each in model.readers(o.name)
        if each.kind in NORMS
        and each.elements_out // each.tensors_out >= LEAST_ADDED
        and each.elements_in > each.elements_out // each.tensors_out
    ]


def after_sum(norm: Operation) -> Operation:
    """Return the norm of a sum that a product has written."""
    each = norm.elements_out // norm.tensors_out
    return replace(norm, elements_in=each, elements_out=each, tensors_out=1)


def added_elements(norm: Operation) -> Moved:
    """Return the residual elements that a product reads to add its output to them."""
    return Moved(one_way=norm.elements_out // norm.tensors_out, is_launch=False)


def separate_bias(model: ModelGraph) -> ModelGraph:
    """Give a dense convolution its bias and activation as a separate kernel, as torch.compile does.

    A sum or ReLU of the graph that is the only reader includes them.

    convolution -> reader  becomes  convolution, bias and activation -> reader
    """

    def biased(o: Operation) -> Operation:
        readers = model.readers(o.name)
        is_included = len(readers) == 1 and readers[0].kind in IN_PLACE
        if o.kind != "gemm" or o.convolution is None or is_included:
            return o
        return _with_beside(o, _bias_pass(o))

    return model.changed(biased)


def _bias_pass(o: Operation) -> Moved:
    return Moved(copied=2 * o.elements_out)


def lay_images(model: ModelGraph) -> ModelGraph:
    """Choose image layouts: planes for the convolutions of our kernels, channels-last for others.

    Convolutions in planes have bias and ReLU as epilogue, and a sum after one of them is its second input.
    Other operations read a copy of planes as images, which they share.

    convolution in planes -> sum -> relu  becomes  convolution in planes (adds) -> relu epilogues
    planes -> dense convolution  becomes  planes -> (images,) dense convolution
    """
    planes = in_planes(model)
    adders = {name: o.name for o in model if (name := _adder(model, o, planes)) is not None}

    def laid(o: Operation) -> Operation:
        if o.name not in planes:
            return _with_beside(o, *_copies_of_planes(model, o, planes))
        if o.convolution is not None:
            sum_after = model[adders[o.name]] if o.name in adders else None
            o = _in_kernel(model, o, planes, sum_after)
        elif o.name in adders.values() or o.kind == "relu":
            o = replace(o, kind="relu epilogue")
        is_result = not model.readers(o.name)
        return _with_beside(o, Moved(copied=4 * o.elements_out)) if is_result else o

    return model.changed(laid)


def _in_kernel(
    model: ModelGraph, o: Operation, planes: Collection[str], sum_after: Operation | None
) -> Operation:
    """Return a convolution in planes with the elements that its kernel, or a copy before it, moves."""
    assert o.convolution is not None
    own = tuple(moved for moved in o.beside if moved != _bias_pass(o))
    laid = o if own == o.beside and o.layout == "features" else replace(o, beside=own, layout="features")
    moved: list[Moved] = []
    if sum_after is not None:
        # DRAM delivers the second input, and L2 its rows to the k-steps of the identity
        moved.append(Moved(one_way=o.elements_out, in_l2=o.elements_out, is_launch=False))
        others = [s for s in model.sources(sum_after.name) if s.name != o.name]
        moved += [Moved(copied=2 * o.elements_out) for s in others if not _has_planes(model, s, planes)]
    if not o.is_sparse and not any(_has_planes(model, s, planes, o) for s in model.sources(o.name)):
        moved.append(_between_zeros(o.convolution, o.elements_in))
    return _with_beside(laid, *moved)


def _copies_of_planes(model: ModelGraph, o: Operation, planes: Collection[str]) -> list[Moved]:
    """Return the copies of planes as images that an operation is the first to read.

    Means read planes, and a linear layer reads them after a pool at little cost.
    """
    found = []
    for source in model.sources(o.name) if o.kind != "pool" else ():
        readers = [each for each in model.readers(source.name) if each.name not in planes]
        is_flat = source.kind == "pool" and o.kind == "gemm" and o.convolution is None
        if source.name in planes and readers[0].name == o.name and not is_flat:
            found.append(Moved(copied=4 * (source.elements_out // source.tensors_out)))
    return found


def _adder(model: ModelGraph, o: Operation, planes: Collection[str]) -> str | None:
    """Return the convolution that adds the other operand of a sum, or None."""
    sources = model.sources(o.name)
    if o.kind not in ("elementwise", "relu epilogue") or len(sources) != 2 or o.name not in planes:
        return None
    return next((each.name for each in reversed(sources) if _may_add(model, each, planes)), None)


def _may_add(model: ModelGraph, o: Operation, ours: Collection[str]) -> bool:
    """Return whether a convolution in planes can have a second input: its output has no other reader."""
    conv = o.convolution
    return o.name in ours and conv is not None and conv.stride == 1 and len(model.readers(o.name)) == 1


def in_planes(model: ModelGraph) -> frozenset[str]:
    """Return the operations that write images in planes.

    These are sparse convolutions, dense ones that our kernels run between them, and pools and elementwise
    work on planes.
    """
    ours = _convolutions_in_planes(model)
    found: set[str] = set()
    copied: set[str] = set()
    for o in model:
        before = list(model.graph.predecessors(o.name))
        if o.name in ours:
            copied.update(before)
        elif not before or not _is_pass(o):
            continue
        elif not found.union(copied).issuperset(before):
            sums = len(before) == 2 and o.kind in ("elementwise", "relu epilogue")
            if not sums or not any(_may_add(model, model[name], ours) for name in before):
                continue
        found.add(o.name)
    return frozenset(found)


def _is_pass(o: Operation) -> bool:
    """Return whether an operation works on planes if its tensors are planes."""
    return o.kind in (*IN_PLACE, "pool") and o.layout != "tokens"


def _convolutions_in_planes(model: ModelGraph) -> frozenset[str]:
    """Return the convolutions that our kernels run: sparse ones, and dense ones that these read, at once or
    after passes.

    Filters of dense ones reach no further than the border, or read the image.
    """
    ours = {o.name for o in model if o.is_sparse and o.convolution is not None}
    border = max([BORDER, *(conv.padding for name in ours if (conv := model[name].convolution) is not None)])
    read: set[str] = set()
    for o in reversed(list(model)) if ours else ():
        if any(each.name in ours or (_is_pass(each) and each.name in read) for each in model.readers(o.name)):
            read.add(o.name)
            if _runs_in_planes(model, o, border):
                ours.add(o.name)
    return frozenset(ours)


def _runs_in_planes(model: ModelGraph, o: Operation, border: int) -> bool:
    """Return whether our kernels run a convolution: odd filters that reach as far as the border."""
    conv = o.convolution
    if o.kind != "gemm" or conv is None or o.m % 8 or not conv.keeps_size:
        return False
    is_first = conv.stride > 1 and [source.kind for source in model.sources(o.name)] == ["input"]
    return conv.padding <= border or is_first


def _has_planes(
    model: ModelGraph, o: Operation, planes: Collection[str], but: Operation | None = None
) -> bool:
    """Return whether an output exists in planes: it was written so, or copied for a convolution.

    Parameters
    ----------
    but : a dense convolution, which makes no copy for itself
    """
    return o.name in planes or any(
        each.convolution is not None and each.name in planes and (but is None or each.is_sparse)
        for each in model.readers(o.name)
    )


def _with_beside(o: Operation, *moved: Moved) -> Operation:
    new = tuple(each for each in moved if each not in o.beside)
    return replace(o, beside=(*o.beside, *new)) if new else o


def transpose_inputs(model: ModelGraph) -> ModelGraph:
    """Transpose X of a sparse product, unless an epilogue wrote it feature-major or it has one token.

    maker -> sparse products  becomes  maker -> transpose -> sparse products
    """
    planes = in_planes(model)
    found: dict[str, _Transposed] = {}
    for name in sorted(name for name, product in model.products.items() if product.is_sparse):
        reader = model[name]
        maker = next(iter(model.sources(name)), None)
        if maker is None:  # a matrix outside of the graph, such as a pooler
            continue
        if maker.kind in (*TRANSPOSES, *EPILOGUES.values()) or reader.n == 1:
            continue
        if maker.name in planes and reader.convolution is not None:
            continue
        readers = found[maker.name].readers if maker.name in found else frozenset[str]()
        found[maker.name] = _Transposed(transpose_for(maker, reader), readers | {name})
    return _with_transposes(model, found)


def transpose_for(maker: Operation, reader: Operation) -> Operation:
    """Return the transpose of X for a sparse product.

    It is a launch, or for a small X the end of the norm that writes it. For a convolution it writes zeros
    around images too.
    """
    x = reader.elements_in
    is_small = reader.n > FEW_TURNED_APART and x < LEAST_TURNED_APART and maker.kind in NORMS
    conv = reader.convolution
    return Operation(
        name=f"{maker.name} transposed",
        kind="transpose epilogue" if is_small else "transpose",
        elements_in=x,
        elements_out=x if conv is None else _between_zeros(conv, x).copied - x,
        copies=reader.copies,
        idle=reader.idle,
    )


def _between_zeros(conv: ConvShape, elements: int) -> Moved:
    """Return the elements of a copy of images into planes, with zeros around them."""
    larger = (conv.height + BORDER) * (conv.width + BORDER) / (conv.height * conv.width)
    return Moved(copied=round((1.0 + larger) * elements))


def transpose_at_the_cut(model: ModelGraph) -> ModelGraph:
    """Transpose tensors between feature-major and token-major operations where that moves the fewest
    elements.

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
    """The transpose of a tensor, and the names of its readers."""

    operation: Operation
    readers: frozenset[str]


def _with_transposes(model: ModelGraph, transposed: Mapping[str, _Transposed]) -> ModelGraph:
    """Return the graph with transposes after the operations that write these tensors."""
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
