"""Steps of the torch.compile pass that change the strides of tensors, but not their values.

    attention(clone(heads of linear(x)))  ->  attention(heads of linear(x))
    clone(residual) where it is read first    ->  all later sums are token-major
    columns(attention(..))                ->  attention(..) that writes columns

Fused attention kernels can read queries, keys and values where the product wrote them. Models such as Whisper
copy them first. Attention then also returns another memory order, and its result is copied back. If queries
are multiplied by a power of two, this factor moves into the scale of attention, without a rounding error.

In an encoder that begins with a convolution, the residual stream is feature-major while products write
token-major. Every norm then reads with large strides, and no residual add can be fused into an epilogue. One
copy at the beginning makes the stream token-major.

The attention kernel of this package can write the columns that the next sparse product reads.

Graphs without sparse products are not changed.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch._dynamo.utils import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.node import map_arg

import prunecast.torch.masked_attention  # noqa: F401  # defines an operator

_aten = torch.ops.aten
VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)
LOOKS = (*VIEWS, _aten.permute.default, _aten.slice.Tensor, _aten.transpose.int)
ATTENTION = tuple(
    getattr(_aten, name).default
    for name in (
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
    )
)


def call(graph: Graph, value: Any, target: Any, *args: Any, **options: Any) -> Node:
    """Insert a call of the operator `target`, whose result is the fake tensor `value`; return its node."""
    node = graph.call_function(target, args, options)
    node.meta["val"] = value
    return node


def exchange(graph: Graph, old: Node, new: Node) -> None:
    """Let all readers of the node `old` read `new` instead, and remove `old` from the graph."""
    old.replace_all_uses_with(new)
    graph.erase_node(old)


def source_of_view(y: Any) -> Any:
    """Return the node of which y is a view, directly or through further views; y itself if it is no view.

    The search stops at a view that has more than one reader.
    """
    while isinstance(y, Node) and y.target in VIEWS and len(y.users) == 1:
        y = y.args[0]
    return y


def lay_out(graph: Graph, sums: Iterable[tuple[Node, Node]], changed: Iterable[Node] = ()) -> None:
    """Apply the steps of this module to a graph, in place.

    Parameters
    ----------
    sums : pairs of a sparse product and the residual to which its result is added
    changed : nodes of which an operand has other strides than when they were traced
    """
    products = (torch.ops.prunecast.linear.default, torch.ops.prunecast.fp8_linear.default)
    if not any(graph.find_nodes(op="call_function", target=target) for target in products):
        return
    _attend_in_columns(graph)
    changed = [*changed, *(each for target in ATTENTION for each in _read_in_place(graph, target))]
    for product, residual in sums:
        if not residual.meta["val"].is_contiguous() and product.meta["val"].is_contiguous():
            changed.append(_token_major(graph, residual))
            break  # later sums get their strides from this one
    if changed:
        _drop_copies(graph, _renewed(graph, changed))


def _attend_in_columns(graph: Graph) -> None:
    """Let the attention kernel of this package write columns if nothing else reads its result."""
    own = torch.ops.prunecast.attention.default
    for columns in graph.find_nodes(op="call_function", target=torch.ops.prunecast.columns.default):
        flat, tokens = columns.args
        y = source_of_view(flat)
        if y.target is not own or len(y.users) != 1:
            continue
        sequences, queries, heads, width = y.meta["val"].shape
        is_whole = flat.meta["val"].shape == (sequences * queries, heads * width)
        if isinstance(queries, int) and queries % 8 == 0 and is_whole and tokens == sequences * queries:
            with graph.inserting_before(columns):
                made = call(graph, columns.meta["val"], own, *y.args[:-1], True)
            exchange(graph, columns, made)


def _read_in_place(graph: Graph, target: Any) -> list[Node]:
    """Let calls of attention read queries, keys and values through views instead of copies.

    Return the calls that were changed.
    """
    changed = []
    for attention in graph.find_nodes(op="call_function", target=target):
        operands, scale = list(attention.args), attention.kwargs.get("scale")
        for number in range(3):
            copy = operands[number]
            if copy.target is not _aten.clone.default or copy.meta["val"].dim() != 4:
                continue
            source, factor = (copy.args[0], 1.0) if number else _without_factor(graph, copy.args[0])
            if source.meta["val"].stride(-1) == 1:
                operands[number] = source
                if factor != 1.0:
                    width = source.meta["val"].shape[-1]
                    scale = factor * (1.0 / math.sqrt(width) if scale is None else scale)
        if operands != list(attention.args):
            attention.args = tuple(operands)
            attention.kwargs = {**attention.kwargs, "scale": scale}
            changed.append(attention)
    return changed


def _without_factor(graph: Graph, view: Node) -> tuple[Node, float]:
    """Return the same view of x, and the factor, if `view` is a view of x * factor.

    Return the given view and 1 if it is no such view, or if the factor is not a power of two.
    """
    looks, node = [], view
    while isinstance(node, Node) and node.target in LOOKS:
        looks.append(node)
        node = node.args[0]
    if not looks or node.target is not _aten.mul.Tensor or not isinstance(node.args[1], float):
        return view, 1.0
    source, factor = node.args
    if math.frexp(factor)[0] != 0.5:
        return view, 1.0
    with graph.inserting_before(view):
        for look in reversed(looks):
            made = graph.call_function(look.target, (source, *look.args[1:]), look.kwargs)
            fake_run(made)
            source = made
    return source, factor


def _token_major(graph: Graph, residual: Node) -> Node:
    """Insert a contiguous copy of the residual, let all readers of the residual read the copy, and return
    it.
    """
    with graph.inserting_after(residual):
        form = {"memory_format": torch.contiguous_format}
        copy = graph.call_function(_aten.clone.default, (residual,), form)
    residual.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)
    return copy


def _drop_copies(graph: Graph, renewed: set[Node]) -> None:
    """Remove contiguous copies of tensors that the changes have made contiguous."""
    for copy in graph.find_nodes(op="call_function", target=_aten.clone.default):
        source = copy.args[0]
        wants = copy.kwargs.get("memory_format", torch.preserve_format)
        if wants is torch.contiguous_format and source in renewed and source.meta["val"].is_contiguous():
            exchange(graph, copy, source)


def _renewed(graph: Graph, changed: list[Node]) -> set[Node]:
    """Recompute the strides of the nodes in `changed`, and of all nodes that depend on them.

    Return the nodes in `changed` and all nodes whose strides differ from before.
    """
    stale = set(changed)
    for node in graph.nodes:
        if node.op != "call_function" or not (node in stale or stale.intersection(node.all_input_nodes)):
            continue
        before = _strides(node)
        fake_run(node)
        if _strides(node) != before:
            stale.add(node)
    return stale


def fake_run(node: Node) -> None:
    """Compute the fake value of a node (shape, dtype, strides, without data) from those of its operands."""
    values = map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    mode = detect_fake_mode(values)
    assert mode is not None
    with mode:
        node.meta["val"] = node.target(*values[0], **values[1])


def _strides(node: Node) -> Any:
    value = node.meta.get("val")
    each = value if isinstance(value, tuple | list) else [value]
    return [one.stride() if isinstance(one, torch.Tensor) else None for one in each]
