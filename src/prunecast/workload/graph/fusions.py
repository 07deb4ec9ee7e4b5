"""Rewrites of a model graph: the fusions and joined products of runtimes. Each maps a graph to a graph.

A rewrite changes which launch does which work, but never the work: flops, weights and the tensors between the
remaining operations stay. Each docstring shows the graph before and after. `runtimes.py` lists the rewrites
of each runtime in order. Rewrites of convolutions are in `convolutions.py`, and those that add transposes are
in `transposes.py`.
"""

from collections.abc import Collection
from dataclasses import replace

from prunecast.workload.graph.convolutions import is_patches
from prunecast.workload.graph.model_graph import ModelGraph, Moved, Operation, linear

NORMS = ("normalise", "rms norm")
EPILOGUES = {"activation": "gelu epilogue", "relu": "relu epilogue", "gated unit": "silu epilogue"}
"""Kind of an activation as a separate kernel -> its kind in the epilogue of the product before it."""

RESIDUAL_EPILOGUE_ELEMENTS = 6 << 20
"""Elements of C from which a compiled graph of torch does the residual add in the epilogue of the product.

Kind: measured, H200, with the add in the epilogue instead of in the norm: four Llama-7B blocks with 2048
tokens (8 Mi elements) need 1922 us instead of 1976, four ViT-L blocks (6.2 Mi) 998 instead of 1030, two
Llama-7B blocks (4 Mi) 502 instead of 503, BERT-base (3 Mi, whose tensors stay in L2) 975 instead of 960."""


def fold_first_norm(model: ModelGraph) -> ModelGraph:
    """Fold the first norm into the embedding lookup, or into the convolution of patches.

    input -> norm -> reader  becomes  input -> reader
    """
    into = {}
    for norm in model:
        sources = model.sources(norm.name)
        is_first = len(sources) == 1 and (sources[0].kind == "input" or is_patches(sources[0]))
        if norm.kind in NORMS and is_first:
            into[norm.name] = sources[0].name
    return model.merged(into, {})


def fold_rotary(model: ModelGraph) -> ModelGraph:
    """Fold the rotary embedding and the cache update into attention, which reads q and k and writes k and v.

    q, k, v (-> head norm) (-> rotary) (-> cache) -> attention  becomes  q, k, v -> attention
    """
    into: dict[str, str] = {}
    for attention in (o for o in model if o.kind == "attention"):
        before = model.sources(attention.name)
        while len(before) == 1 and before[0].kind in ("head norm", "rotary", "cache"):
            into[before[0].name] = attention.name
            before = model.sources(before[0].name)
    return model.merged(into, {})


def fold_activations(model: ModelGraph) -> ModelGraph:
    """Fold an activation into the epilogue of the product whose output it reads.

    product -> activation -> reader  becomes  product -> reader
    """
    into = {}
    for o in model:
        sources = model.sources(o.name)
        if o.kind in ("activation", "relu") and len(sources) == 1 and sources[0].kind == "gemm":
            into[o.name] = sources[0].name
    return model.merged(into, {})


def generalise_kinds(model: ModelGraph) -> ModelGraph:
    """Give the general kind to operations whose special kind the runtime `engine` does not time separately.

    gated unit, rms norm  become  elementwise, normalise
    """
    general = {"gated unit": "elementwise", "rms norm": "normalise"}
    return model.changed(lambda o: replace(o, kind=general[o.kind]) if o.kind in general else o)


def look_for_infinities(model: ModelGraph) -> ModelGraph:
    """Add the search for infinities to a T5 model, which clamps residual sums in half precision.

    A kernel before each norm of a sum writes the sum and searches it. A second kernel combines the results of
    all thread blocks. The biases of positions are written once for each layer.

    norm (adds)  becomes  sum and search, combination, norm
    """
    if all(o.kind != "position bias" for o in model):
        return model
    layers = sum(o.copies for o in model if o.attention is not None)

    def searched(o: Operation) -> Operation:
        if o.kind == "position bias":
            return o.with_extra_moves(Moved(copied=(layers - 1) * o.elements_out))
        if o.kind not in NORMS or o.tensors_in < 2:
            return o
        return o.with_extra_moves(Moved(copied=2 * (o.elements_out // o.tensors_out)), Moved(copied=1))

    return model.changed(searched)


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
    """Return the graph with the products `parts` of each layer stacked along M, if they read one tensor."""
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
            operations[name] = linear(name, rows, members[0].k, members[0].n, copies=members[0].copies)
    return model.merged(into, operations)


def mark_sparse(model: ModelGraph, sparse: Collection[str], unfused: Collection[str] = ()) -> ModelGraph:
    """Mark the products that a sparse kernel runs.

    The epilogue of the kernels of `unfused` products can run neither gated units nor residual adds.
    """
    return model.changed(
        lambda o: (
            replace(o, is_sparse=True, fuses=o.name not in unfused)
            if o.kind == "gemm" and o.name in sparse
            else o
        )
    )


def fuse_activations(model: ModelGraph) -> ModelGraph:
    """Move an activation between two sparse products into the epilogue of the first product.

    The first product then writes C in the layout that the second one reads. A gated unit is fused too if its
    gate and up are one product.

    sparse product -> activation -> sparse product  becomes  sparse product -> epilogue -> sparse product
    """

    def fused(o: Operation) -> Operation:
        if not may_be_epilogue(model, o):
            return o
        (maker,) = model.sources(o.name)
        readers = model.readers(o.name)
        is_between = maker.is_sparse and any(reader.is_sparse for reader in readers)
        if not is_between or (o.kind == "gated unit" and not maker.fuses):
            return o
        return replace(o, kind=EPILOGUES[o.kind])

    return model.changed(fused)


def may_be_epilogue(model: ModelGraph, o: Operation) -> bool:
    """Return True if an activation can be the epilogue of the product before it.

    Gate and up that are stacked as separate matrices of a file have separate tiles, so that their gated unit
    stays a separate kernel. `convolutions.lay_images` fuses a ReLU after a convolution.
    """
    products = model.sources(o.name)
    if o.kind not in EPILOGUES or len(products) != 1 or products[0].members:
        return False
    return o.kind != "relu" or (products[0].kind == "gemm" and products[0].convolution is None)


def add_residuals(model: ModelGraph) -> ModelGraph:
    """Move a large residual add from a norm into the epilogue of the sparse product before it.

    sparse product, residual -> norm (adds)  becomes  sparse product (adds) -> norm
    """
    norms = {norm.name: norm for o in model.products.values() if o.is_sparse for norm in sums_after(model, o)}

    def added(o: Operation) -> Operation:
        if o.name in norms:
            return after_sum(o)
        extra = [added_elements(norm) for norm in sums_after(model, o)] if o.is_sparse else []
        return o.with_extra_moves(*extra)

    return model.changed(added)


def rotate_in_place(model: ModelGraph) -> ModelGraph:
    """Apply rotary embedding in place if sparse products wrote large queries and keys.

    Otherwise torch.compile copies them.

    sparse product -> rotary  becomes  sparse product -> rotary in place
    """

    def rotated(o: Operation) -> Operation:
        return rotated_in_place(model, o) if all(each.is_sparse for each in model.sources(o.name)) else o

    return model.changed(rotated)


def rotated_in_place(model: ModelGraph, o: Operation) -> Operation:
    """Return a rotary embedding in place if it can be and only products with large C precede it; else `o`."""
    sources = model.sources(o.name)
    if o.kind != "rotary" or not o.fuses or not all(each.kind == "gemm" for each in sources):
        return o
    is_large = min(each.elements_out for each in sources) >= RESIDUAL_EPILOGUE_ELEMENTS
    return replace(o, kind="rotary in place") if is_large else o


def sums_after(model: ModelGraph, o: Operation) -> list[Operation]:
    """Return the norms after a product `o` whose sum could run in the epilogue of the product.

    The output must be large, and the epilogue of the product's kernel must be able to add. A product adds to
    a tensor that no sparse product wrote: of two sparse products in parallel, neither adds the other.
    `torch.residual` has this rule for graphs of torch; `tests/torch/test_residual.py` compares both.
    """
    return [
        each
        for each in model.readers(o.name)
        if o.fuses
        and each.kind in NORMS
        and each.elements_out // each.tensors_out >= RESIDUAL_EPILOGUE_ELEMENTS
        and each.tensors_in > 1
        and added_elements(each) not in o.extra_moves
        and not any(other.is_sparse for other in model.sources(each.name) if other.name != o.name)
    ]


def after_sum(norm: Operation) -> Operation:
    """Return a norm with one sum less, which a product has written.

    A norm of two tensors then only normalises. A norm of three tensors still adds two and writes their sum.
    """
    each = norm.elements_out // norm.tensors_out
    if norm.tensors_in > 2:
        return replace(norm, elements_in=norm.elements_in - each)
    return replace(norm, elements_in=each, elements_out=each, tensors_out=1)


def added_elements(norm: Operation) -> Moved:
    """Return the extra reads of a product that adds its output to the residual."""
    return Moved(one_way=norm.elements_out // norm.tensors_out, is_launch=False)
