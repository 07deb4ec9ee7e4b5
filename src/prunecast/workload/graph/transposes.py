"""Rewrites that add passes over X: transposes, and quantisation for products in fp8.

Transposes are needed since sparse products read feature-major tensors and other operations write token-major
ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from prunecast.plan.misaligned import FEW_TOKENS
from prunecast.workload.graph.convolutions import copy_into_planes, in_planes
from prunecast.workload.graph.fusions import EPILOGUES, NORMS
from prunecast.workload.graph.layouts import choose_layouts
from prunecast.workload.graph.model_graph import ModelGraph, Operation

TRANSPOSES = ("transpose", "transpose epilogue")
SEPARATE_TRANSPOSE_TOKENS = 64
"""Number of tokens up to which a compiled graph of torch transposes a small X in a separate launch.

The reason is that a reduction over few rows that writes X transposed has few thread blocks.

Kind: measured, H200: 3 to 17 us instead of 2.7 for a normalisation of 16 tokens x 4096."""
SEPARATE_TRANSPOSE_ELEMENTS = 1 << 20
"""Elements of X from which a compiled graph of torch transposes X in a separate launch, after its producer.

Kind: measured, H200: a normalisation of 2048 tokens x 4096 that writes X transposed itself needs 29 to 46 us,
one that writes X row by row needs 13; BERT-base with 4096 tokens needs 987 us instead of 1026."""


def transpose_inputs(model: ModelGraph) -> ModelGraph:
    """Transpose X of each sparse product, unless X is feature-major already or has only one token.

    Products in fp8 read token-major X.

    writer of X -> sparse products  becomes  writer of X -> transpose -> sparse products
    """
    planes = in_planes(model)

    def needs_none(maker: Operation, reader: Operation) -> bool:
        if reader.n == 1 or reader.in_fp8 or not reader.is_sparse:
            return True
        is_of_planes = maker.kind == "relu epilogue" and maker.name in planes
        if maker.kind in (*TRANSPOSES, *EPILOGUES.values()) and not is_of_planes:
            return True
        if maker.name in planes and reader.convolution is not None:
            return True
        return maker.attention is not None and maker.attention.writes_columns

    return _with_copied_inputs(
        model, lambda maker, reader: None if needs_none(maker, reader) else transpose_for(maker, reader)
    )


def mark_fp8(model: ModelGraph) -> ModelGraph:
    """Mark the products that torch runs in fp8: linear layers, not experts, with more than `FEW_TOKENS`."""

    def is_fp8(o: Operation) -> bool:
        is_linear = o.kind == "gemm" and o.convolution is None and o.experts is None
        return is_linear and o.n > FEW_TOKENS

    return model.changed(lambda o: replace(o, in_fp8=True) if is_fp8(o) else o)


def quantise_inputs(model: ModelGraph) -> ModelGraph:
    """Quantise X of products in fp8 by a separate launch if a product, its epilogue or attention wrote X.

    One kernel computes and quantises an RMS norm that only sparse products read. Other kernels of
    torch.compile write X in fp8 themselves; their time is still that of writing 16 bits.

    product, attention -> products in fp8  becomes  product, attention -> quantise -> products in fp8
    rms norm -> sparse products in fp8     becomes  quantise -> sparse products in fp8
    """
    makers = ("gemm", "attention", *EPILOGUES.values())

    def in_one_kernel(o: Operation) -> Operation:
        return quantised_norm(model, o) if all(reader.is_sparse for reader in model.readers(o.name)) else o

    def quantised(maker: Operation, reader: Operation) -> Operation | None:
        return quantise_for(maker, reader) if reader.in_fp8 and maker.kind in makers else None

    return _with_copied_inputs(model.changed(in_one_kernel), quantised)


def quantised_norm(model: ModelGraph, o: Operation) -> Operation:
    """Return an RMS norm whose readers are products in fp8 as one launch that also quantises.

    Return any other operation unchanged.
    """
    readers = model.readers(o.name)
    if o.kind != "rms norm" or o.tensors_out > 1 or not readers or not all(each.in_fp8 for each in readers):
        return o
    return replace(o, kind="quantise", elements_out=o.elements_out // 2)


def quantise_for(maker: Operation, reader: Operation) -> Operation:
    """Return the launch that quantises X, the output of `maker`, for `reader`, a product in fp8."""
    return Operation(
        name=f"{maker.name} quantised",
        kind="quantise",
        elements_in=reader.elements_in,
        elements_out=reader.elements_in // 2,  # a byte is half an element
        copies=reader.copies,
        idle=reader.idle,
    )


def transpose_for(maker: Operation, reader: Operation) -> Operation:
    """Return the transpose of X for a sparse product.

    The transpose is a separate launch, or for a small X part of the norm that writes X. For a convolution it
    also writes the zeros around images.
    """
    x = reader.elements_in
    is_small = (
        reader.n > SEPARATE_TRANSPOSE_TOKENS and x < SEPARATE_TRANSPOSE_ELEMENTS and maker.kind in NORMS
    )
    conv = reader.convolution
    return Operation(
        name=f"{maker.name} transposed",
        kind="transpose epilogue" if is_small else "transpose",
        elements_in=x,
        elements_out=x if conv is None else copy_into_planes(conv, x).copied - x,
        copies=reader.copies,
        idle=reader.idle,
    )


def transpose_at_the_cut(model: ModelGraph) -> ModelGraph:
    """Add transposes between feature-major and token-major operations, where they move the fewest elements.

    feature-major -> token-major  becomes  feature-major -> transpose -> token-major
    """
    wanted = {name: "features" for name, product in model.products.items() if product.is_sparse}
    copies = []
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
        copies.append(_Copy(change.source, change.target, transpose))
    return _with_copies(model, copies)


class _Copy(NamedTuple):
    """A transposed or quantised copy of the tensor that `maker` writes, and one of its readers."""

    maker: str
    reader: str
    operation: Operation


def _with_copied_inputs(
    model: ModelGraph, copy: Callable[[Operation, Operation], Operation | None]
) -> ModelGraph:
    """Return the graph with a copy of X before products.

    `copy(writer of X, product)` returns the operation that makes the copy, or None if no copy is needed.
    Products without an input are matrices outside of the graph, such as a pooler.
    """
    copies = []
    for name in sorted(model.products):
        for maker in model.sources(name)[:1]:
            copied = copy(maker, model[name])
            copies += [] if copied is None else [_Copy(maker.name, name, copied)]
    return _with_copies(model, copies)


def _with_copies(model: ModelGraph, copies: Sequence[_Copy]) -> ModelGraph:
    """Return the graph with each copy inserted after its maker; its reader reads the copy instead of X."""
    if not copies:
        return model
    copy_of = {copy.maker: copy.operation for copy in copies}
    instead = {(copy.maker, copy.reader): copy.operation.name for copy in copies}
    found = ModelGraph(name=model.name, runtime=model.runtime)
    for o in model:
        sources = model.graph.predecessors(o.name)
        found.add(o, [instead.get((source, o.name), source) for source in sources])
        if o.name in copy_of:
            found.add(copy_of[o.name], [o.name])
    return found
