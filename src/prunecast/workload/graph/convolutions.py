"""Rewrites of convolutional networks: kernels of cuDNN, and images in planes for this project's kernels.

Planes are the layout of `plan.conv_grid`: one zero-padded plane of pixels for each channel. Kernels of cuDNN
read channels-last images, which are called images here. As in `fusions.py`, a rewrite changes which launch
does which work, but never the work.
"""

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import replace
from typing import TypeVar

from prunecast.plan.conv_shape import ConvShape
from prunecast.workload.graph.model_graph import ModelGraph, Moved, Operation

Node = TypeVar("Node")
IN_PLACE = ("relu", "relu epilogue", "elementwise")
"""Kinds of operations that overwrite the first tensor that they read."""
BORDER = 1
"""Zeros around images, in pixels. Kind: choice, `prunecast.torch.SparseConv2d`."""


def convolve_patches(model: ModelGraph) -> ModelGraph:
    """Mark convolutions in transformers as `patches`, or as `convolution` if their filters overlap.

    Marked convolutions stay dense and run in a library kernel with its own layouts. Graphs without attention
    do not change.

    image -> product  becomes  image -> patches
    sound -> product -> product  becomes  sound -> convolution -> convolution
    """
    if all(o.kind != "attention" for o in model):
        return model

    def marked(o: Operation) -> Operation:
        if o.kind != "gemm" or o.convolution is None:
            return o
        return replace(o, kind="patches" if is_patches(o) else "convolution")

    return model.changed(marked)


def keep_feature_major(model: ModelGraph) -> ModelGraph:
    """Make the residual stream after overlapping convolutions feature-major, as in dense compiled graphs.

    Norms then read with strides, and attention copies its queries, keys, values and output.
    """
    if all(o.kind != "convolution" for o in model):
        return model

    def feature_major(o: Operation) -> Operation:
        if o.kind == "attention":
            return o.with_extra_moves(Moved(copied=2 * (o.elements_in + o.elements_out)))
        return replace(o, layout="features") if o.kind == "normalise" else o

    return model.changed(feature_major)


def make_token_major(model: ModelGraph) -> ModelGraph:
    """Undo `keep_feature_major`: graphs with sparse products copy the residual stream once at its start."""
    if all(o.kind != "convolution" for o in model):
        return model

    def token_major(o: Operation) -> Operation:
        if o.kind == "attention":
            return replace(o, extra_moves=())
        return replace(o, layout=None) if o.kind == "normalise" else o

    return model.changed(token_major)


def is_patches(o: Operation) -> bool:
    """Return True if a product is a convolution whose filters do not overlap."""
    conv = o.convolution
    return o.kind == "gemm" and conv is not None and conv.stride == conv.kernel_h == conv.kernel_w > 1


def separate_bias(model: ModelGraph) -> ModelGraph:
    """Add a separate kernel for bias and activation after a dense convolution, as torch.compile runs them.

    No kernel is added if the only reader is a sum or a ReLU, which then includes them.

    convolution -> reader  becomes  convolution, bias and activation -> reader
    """

    def biased(o: Operation) -> Operation:
        readers = model.readers(o.name)
        is_included = len(readers) == 1 and readers[0].kind in IN_PLACE
        if o.kind != "gemm" or o.convolution is None or is_included:
            return o
        return o.with_extra_moves(_bias_pass(o))

    return model.changed(biased)


def _bias_pass(o: Operation) -> Moved:
    return Moved(copied=2 * o.elements_out)


def concatenate_upsampled(model: ModelGraph) -> ModelGraph:
    """Add the data movement by which torch.compile runs an upsampling and the concatenation that reads it.

    torch.compile fuses the two and adds a copy. The fused kernel upsamples and writes all channels, one
    channel after the other. Neighbouring threads then read the channels-last images with a stride, and the
    kernel moves its tensors at half the rate. A second kernel copies the result to channels-last, which needs
    as long as a concatenation.

    x -> upsampling -> concatenation  becomes  x, others -> upsampling and concatenation -> copy
    """

    def charged(o: Operation) -> Operation:
        readers = model.readers(o.name)
        if o.kind != "elementwise" or o.elements_out <= o.elements_in or len(readers) != 1:
            return o
        (after,) = readers
        result = after.elements_out
        if after.kind != "elementwise" or after.elements_in != result or len(model.sources(after.name)) == 1:
            return o  # no concatenation
        moved = o.elements_in + (result - o.elements_out) + result
        extra = 2 * moved - o.elements_in - o.elements_out
        return o.with_extra_moves(Moved(copied=extra, is_launch=False))

    return model.changed(charged)


def lay_images(model: ModelGraph) -> ModelGraph:
    """Choose image layouts: planes for convolutions by this project's kernels, channels-last for others.

    A convolution in planes runs bias and ReLU in its epilogue. If a residual sum follows, it also reads the
    other operand as a second input and adds it. Other operations share one copy of the planes as images.

    convolution in planes -> sum -> relu  becomes  convolution in planes (adds) -> relu epilogues
    planes -> dense convolution  becomes  planes -> (images,) dense convolution
    """
    planes = in_planes(model)
    adders = {name: o.name for o in model if (name := _adder(model, o, planes)) is not None}

    def laid(o: Operation) -> Operation:
        if o.name not in planes:
            return o.with_extra_moves(*_copies_of_planes(model, o, planes))
        if o.convolution is not None:
            sum_after = model[adders[o.name]] if o.name in adders else None
            o = _in_kernel(model, o, planes, sum_after)
        elif o.name in adders.values() or o.kind == "relu":
            o = replace(o, kind="relu epilogue")
        elif o.extra_moves:  # of channels-last images only
            o = replace(o, extra_moves=())
        is_result = not model.readers(o.name)
        return o.with_extra_moves(Moved(copied=4 * o.elements_out)) if is_result else o

    return model.changed(laid)


def _in_kernel(
    model: ModelGraph, o: Operation, planes: Collection[str], sum_after: Operation | None
) -> Operation:
    """Return a convolution in planes with the extra data movement of its kernel and of a copy before it."""
    assert o.convolution is not None
    own = tuple(moved for moved in o.extra_moves if moved != _bias_pass(o))
    laid = (
        o
        if own == o.extra_moves and o.layout == "features"
        else replace(o, extra_moves=own, layout="features")
    )
    moved: list[Moved] = []
    if sum_after is not None:
        # DRAM delivers the second input, and L2 its rows to the k-steps of the identity
        moved.append(Moved(one_way=o.elements_out, in_l2=o.elements_out, is_launch=False))
        others = [s for s in model.sources(sum_after.name) if s.name != o.name]
        moved += [Moved(copied=2 * o.elements_out) for s in others if not _has_planes(model, s, planes)]
    # Zeros between the planes of the output, which the kernel writes; its plan counts those of lines
    conv = o.convolution
    border = max(conv.padding, BORDER) if conv.stride == 1 else BORDER
    zeros = o.m * border * (conv.width_out + border) * conv.batch
    moved.append(Moved(one_way=zeros, is_launch=False))
    if not o.is_sparse and not any(_has_planes(model, s, planes, o) for s in model.sources(o.name)):
        moved.append(copy_into_planes(o.convolution, o.elements_in))
    return laid.with_extra_moves(*moved)


def _copies_of_planes(model: ModelGraph, o: Operation, planes: Collection[str]) -> list[Moved]:
    """Return the copies from planes to images before `o`, for inputs that no earlier operation has copied.

    Pools read planes directly, and so does a linear layer after a pool, at little cost.
    """
    found = []
    for source in model.sources(o.name) if o.kind != "pool" else ():
        readers = [each for each in model.readers(source.name) if each.name not in planes]
        is_flat = source.kind == "pool" and o.kind == "gemm" and o.convolution is None
        if source.name in planes and readers[0].name == o.name and not is_flat:
            found.append(Moved(copied=4 * (source.elements_out // source.tensors_out)))
    return found


def _adder(model: ModelGraph, o: Operation, planes: Collection[str]) -> str | None:
    """Return the name of the convolution whose kernel runs the residual sum `o`; None if no kernel can.

    The output of the convolution is one operand of the sum. Its kernel reads the other operand as a second
    input and adds it before C is stored.
    """
    sources = model.sources(o.name)
    if o.kind not in ("elementwise", "relu epilogue") or len(sources) != 2 or o.name not in planes:
        return None
    return next((each.name for each in reversed(sources) if _may_add(model, each, planes)), None)


def _may_add(model: ModelGraph, o: Operation, ours: Collection[str]) -> bool:
    """Return True if a convolution in planes can add a second input: stride 1, and only the sum reads it."""
    conv = o.convolution
    return o.name in ours and conv is not None and conv.stride == 1 and len(model.readers(o.name)) == 1


def in_planes(model: ModelGraph) -> frozenset[str]:
    """Return the names of the operations that write images in planes, one zero-padded plane per channel.

    These are sparse convolutions, dense ones that this project's kernels run before them, and pools and
    element-wise work on planes.
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
    """Return True if an operation (a pool or element-wise work) works on planes if its inputs are planes."""
    return o.kind in (*IN_PLACE, "pool") and o.layout != "tokens"


def _convolutions_in_planes(model: ModelGraph) -> frozenset[str]:
    """Return the names of the convolutions that run in planes, see `join_dense_convolutions`."""
    sparse = {o.name: o.convolution for o in model if o.is_sparse and o.convolution is not None}
    border = border_of(conv.padding for conv in sparse.values())

    def fits(name: str) -> bool:
        o, conv = model[name], model[name].convolution
        if o.kind != "gemm" or conv is None or not conv.keeps_size:
            return False
        reads_image = [source.kind for source in model.sources(name)] == ["input"]
        return fits_planes(o.m, conv.stride, conv.padding, border, reads_image=reads_image)

    return frozenset(
        join_dense_convolutions(
            [o.name for o in model],
            set(sparse),
            readers=lambda name: [each.name for each in model.readers(name)],
            is_pass=lambda name: _is_pass(model[name]),
            fits=fits,
        )
    )


def border_of(paddings: Iterable[int]) -> int:
    """Return the width in pixels of the zero border that sparse convolutions with these paddings share."""
    return max([BORDER, *paddings])


def fits_planes(filters: int, stride: int, padding: int, border: int, *, reads_image: bool) -> bool:
    """Return True if this project's kernels can run a dense convolution with odd, square filters in planes.

    The number of filters must be a multiple of 8, and filters must not reach further than the zero border.
    Only a convolution with a stride that reads the network's input, such as the first one of a ResNet, may
    have larger filters: the input is copied with the border that it needs.
    """
    return filters % 8 == 0 and (padding <= border or (reads_image and stride > 1))


def join_dense_convolutions(
    nodes: Sequence[Node],
    sparse: Set[Node],
    *,
    readers: Callable[[Node], Iterable[Node]],
    is_pass: Callable[[Node], bool],
    fits: Callable[[Node], bool],
) -> set[Node]:
    """Return the convolutions that run in planes: sparse ones, and dense ones whose output these read.

    Between a dense convolution and the convolution in planes that uses its output there may be element-wise
    work and pools. Predicted graphs and torch modules both use this rule.

    Parameters
    ----------
    nodes : all operations, each after those that it reads
    sparse : sparse convolutions
    readers : returns the operations that read the result of an operation
    is_pass : returns whether an operation (a pool or element-wise work) can work on planes
    fits : returns whether a dense operation is a convolution that can run in planes, see `fits_planes`
    """
    ours, read = set(sparse), set[Node]()
    for node in reversed(nodes) if sparse else ():
        if any(each in ours or (each in read and is_pass(each)) for each in readers(node)):
            read.add(node)
            if fits(node):
                ours.add(node)
    return ours


def _has_planes(
    model: ModelGraph, o: Operation, planes: Collection[str], but: Operation | None = None
) -> bool:
    """Return True if the output of `o` exists in planes: `o` writes planes, or a reader needs such a copy.

    Parameters
    ----------
    planes : names of operations that write planes
    but : if given, copies for dense convolutions do not count
    """
    return o.name in planes or any(
        each.convolution is not None and each.name in planes and (but is None or each.is_sparse)
        for each in model.readers(o.name)
    )


def copy_into_planes(conv: ConvShape, elements: int) -> Moved:
    """Return the elements that a copy of images into zero-padded planes reads and writes."""
    larger = (conv.height + BORDER) * (conv.width + BORDER) / (conv.height * conv.width)
    return Moved(copied=round((1.0 + larger) * elements))
