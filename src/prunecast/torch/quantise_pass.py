"""Part of the torch.compile pass: quantise the operand x of an fp8 product in one kernel.

    quantised(y)             ->  quantise(y)
    quantised(rms norm of y) ->  norm_quantise(y, weight, epsilon)

The code of torch.compile reads y once for each reduction over a token, and again to round it. A kernel of
`kernels/device/quantise` reads y once. It is used if a product or attention wrote y, or if nothing else reads
the RMS norm of y.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

import prunecast.torch.quantise  # noqa: F401  # defines operators
from prunecast.torch.layout_pass import call, source_of_view
from prunecast.torch.norm import NormNodes, norm_of

_aten = torch.ops.aten
_CONVERT = torch.ops.prims.convert_element_type.default


def quantise_at_once(graph: Graph, bits: Node, scales: Node, writers: Callable[[Node], bool]) -> None:
    """Let one kernel quantise x, if plain torch operations do so in the graph.

    If x is an RMS norm, the kernel reads the input of the norm. Otherwise x must be in memory already.

    Parameters
    ----------
    bits, scales : x in e4m3 and its scales, operands of an fp8 product
    writers : function that returns True for nodes whose result is in memory and contiguous
    """
    x = _quantised_by_torch(bits, scales)
    if x is None:
        return
    y = source_of_view(x)
    norm = norm_of(y) if isinstance(y, Node) and y is not x and len(y.users) == 1 else None
    epsilon = None if norm is None else _epsilon_of(norm)
    if norm is not None and epsilon is not None:
        target, width = torch.ops.prunecast.norm_quantise.default, norm.x.meta["val"].shape[-1]
        with graph.inserting_before(x.next):
            value = norm.x.meta["val"].reshape(-1, width)
            flat = call(graph, value, _aten.reshape.default, norm.x, [-1, width])
        given: tuple[Any, ...] = (flat, norm.weight, epsilon)
        after = flat
    elif writers(x):
        target, given, after = torch.ops.prunecast.quantise.default, (x,), x
    else:
        return
    with graph.inserting_before(after.next):
        both = call(graph, tuple(each.meta["val"] for each in (bits, scales)), target, *given)
        for place, each in enumerate((bits, scales)):
            each.replace_all_uses_with(call(graph, each.meta["val"], operator.getitem, both, place))


def _epsilon_of(norm: NormNodes) -> float | None:
    """Return epsilon if the norm is an RMS norm, x / sqrt(mean(x^2) + epsilon) * weight; else None."""
    if norm.shift is not None or norm.bias is not None or norm.weight is None:
        return None
    total = _operand(norm.scale, _aten.rsqrt.default)
    mean = _operand(total, _aten.add.Tensor) or _operand(total, _aten.add.Scalar)
    square = _operand(mean, _aten.mean.dim)
    values = _operand(square, _aten.pow.Tensor_Scalar)
    if values is None or values.target is not _CONVERT or values.args[0] is not norm.x:
        return None
    epsilon = total.args[1] if total is not None else None
    last = [norm.x.meta["val"].dim() - 1]
    is_mean = mean is not None and mean.args[1:] in (([-1], True), (last, True))
    is_square = square is not None and square.args[1] == 2
    is_whole = is_mean and is_square and norm.x.meta["val"].is_contiguous()
    return epsilon if is_whole and isinstance(epsilon, float) else None


def _quantised_by_torch(bits: Node, scales: Node) -> Node | None:
    """Return x in 16 bits if `bits` and `scales` are the result of `quantised(x)`; else None."""
    product = _operand(bits, _CONVERT)
    values, maximum = _operand(product, _aten.mul.Tensor), _operand(scales, _aten.select.int)
    for target, place in (
        (_aten.where.self, 1),
        (_aten.mul.Tensor, 0),
        (_aten.amax.default, 0),
        (_aten.abs.default, 0),
    ):
        maximum = _operand(maximum, target, place)
    return _operand(values, _CONVERT) if values is not None and maximum is values else None


def _operand(node: Node | None, target: Any, place: int = 0) -> Node | None:
    """Return the operand with index `place` of a node if the node calls `target`; else None."""
    if node is None or node.target is not target or not isinstance(node.args[place], Node):
        return None
    found: Node = node.args[place]
    return found
