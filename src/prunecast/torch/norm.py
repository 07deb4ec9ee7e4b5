"""Find norms in graphs of torch.compile, and move them into the transposes that follow them.

    columns((x - shift) * scale * weight + bias)  ->  norm_columns(x, shift, scale, weight, bias)

A kernel of torch.compile still computes the mean and deviation of each token, together with x. A norm is not
moved if its result is also a residual, as in BERT.
"""

from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from prunecast.torch.layout_pass import call, exchange, source_of_view
from prunecast.workload.graph.transposes import SEPARATE_TRANSPOSE_ELEMENTS

_aten = torch.ops.aten
_CONVERT = torch.ops.prims.convert_element_type.default


class NormNodes(NamedTuple):
    """Nodes of a norm, ((x - shift) * scale) * weight + bias.

    `rounds` is True if (x - shift) * scale is rounded to 16 bits before it is multiplied by the weight.
    """

    x: Node
    shift: Node | None
    scale: Node
    weight: Node | None
    bias: Node | None
    rounds: bool


def norm_in_transpose(graph: Graph, columns: Node) -> None:
    """Replace a transpose by `norm_columns` if its operand is the result of a norm that nothing else
    reads.
    """
    flat, tokens = columns.args
    rows, features = flat.meta["val"].shape
    if not (
        isinstance(rows, int) and isinstance(features, int) and rows * features >= SEPARATE_TRANSPOSE_ELEMENTS
    ):
        return
    y = source_of_view(flat)
    norm = norm_of(y) if len(y.users) == 1 else None
    if norm is None:
        return

    def reshaped(node: Node | None, width: int) -> Node | None:
        if node is None:
            return None
        return call(graph, node.meta["val"].reshape(rows, width), _aten.reshape.default, node, [rows, width])

    with graph.inserting_before(columns):
        shift, scale = (reshaped(each, 1) for each in (norm.shift, norm.scale))
        given = (reshaped(norm.x, features), shift, scale, norm.weight, norm.bias, norm.rounds, tokens)
        made = call(graph, columns.meta["val"], torch.ops.prunecast.norm_columns.default, *given)
    exchange(graph, columns, made)


def norm_of(y: Node) -> NormNodes | None:
    """Return the nodes of the norm that computes y; None if y is not the result of a norm.

    The norm may be rounded to 16 bits before it is multiplied by the weight, as in Llama, or at the end, as
    in LayerNorm.
    """
    dtype, width = y.meta["val"].dtype, y.meta["val"].shape[-1:]

    def is_row(node: Any) -> bool:
        return isinstance(node, Node) and node.meta["val"].shape == width and node.meta["val"].dtype == dtype

    def without(node: Node, target: Any) -> tuple[Node, Node | None]:
        """Return both operands of `node` if it calls `target` with a tensor and a row of weights or biases.

        Otherwise return the node and None.
        """
        if node.target is target and len(node.args) == 2 and not node.kwargs:
            for other, row in (node.args, reversed(node.args)):
                if is_row(row) and isinstance(other, Node):
                    return other, row
        return node, None

    if dtype not in (torch.float16, torch.bfloat16):
        return None
    late, weight = without(y, _aten.mul.Tensor)
    if late.target is not _CONVERT or late.meta["val"].dtype != dtype:
        return None
    sums, bias = (late.args[0], None) if weight is not None else without(late.args[0], _aten.add.Tensor)
    early = None
    if weight is None:
        sums, early = without(sums, _aten.mul.Tensor)
    if sums.target is not _aten.mul.Tensor:
        return None
    for moved, scale in (sums.args, reversed(sums.args)):
        if not (isinstance(moved, Node) and isinstance(scale, Node) and _is_per_token(scale, y)):
            continue
        shift = None
        if moved.target is _aten.sub.Tensor and isinstance(moved.args[1], Node):
            moved, shift = moved.args
        x = moved.args[0] if moved.target is _CONVERT else moved
        if (
            (shift is None or _is_per_token(shift, y))
            and isinstance(x, Node)
            and (x.meta["val"].dtype, x.meta["val"].shape) == (dtype, y.meta["val"].shape)
            and sums.meta["val"].dtype is torch.float32
        ):
            return NormNodes(x, shift, scale, early if weight is None else weight, bias, weight is not None)
    return None


def _is_per_token(node: Node, y: Node) -> bool:
    """Return whether the tensor has one fp32 value for each token of y."""
    value = node.meta["val"]
    return value.dtype is torch.float32 and value.shape == (*y.meta["val"].shape[:-1], 1)
