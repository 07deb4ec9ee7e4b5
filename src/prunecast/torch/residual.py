"""A torch.compile pass that fuses operations before and after sparse products into kernels.

    residual + linear(x)  ->  linear_add_(residual, x)

This moves a residual add into the epilogue of the product, in 16 bits or fp8. Other parts of the pass are in
`layout_pass.py` (order of stored tensors), `rotary.py` (rotary embedding in place), `norm.py` (norms in
transposes) and `quantise_pass.py` (fp8 operands in one kernel).

The pass changes Inductor's graph, so that the code of a model does not change. The residual is overwritten.
It must therefore have been computed in the graph, and nothing may read it after the sum. `sparsify` registers
the pass if a model's sums are large: see `docs/decisions/0016-epilogues-in-models.md`.
"""

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

import prunecast.torch.fp8
import prunecast.torch.ops  # noqa: F401  # both define operators
from prunecast.torch.epilogue import PLAIN, Fp8Call, LinearCall
from prunecast.torch.layout_pass import ATTENTION, VIEWS, call, exchange, lay_out, source_of_view
from prunecast.torch.norm import norm_in_transpose
from prunecast.torch.quantise_pass import quantise_at_once
from prunecast.torch.rotary import rotate_in_place
from prunecast.torch.weight_layouts import layout_of
from prunecast.workload.graph.fusions import RESIDUAL_EPILOGUE_ELEMENTS

_aten = torch.ops.aten
_ops = torch.ops.prunecast


class _Adding(NamedTuple):
    """Operator of a product that can add its result to a residual in place, and its arguments."""

    call: type[LinearCall | Fp8Call]
    """Arguments of the product."""
    operator: Any
    """Operator that adds the product to y in place; its arguments after y are named as those of `call`."""


_ADDING = {
    _ops.linear.default: _Adding(LinearCall, _ops.linear_add_.default),
    _ops.fp8_linear.default: _Adding(Fp8Call, _ops.fp8_linear_add_.default),
}
"""Operator of a product in a traced graph -> the operator that adds this product to a residual in place."""


class AddInEpilogue(CustomGraphPass):  # type: ignore[misc]
    """Compiler pass that fuses residual adds into products, and norms into transposes.

    It also replaces the quantisation of fp8 operands by one kernel.

    A residual add is fused if nothing else reads the result of the product, and nothing reads the residual
    later.
    """

    def __call__(self, graph: Graph) -> None:
        """Apply all steps of the pass to the graph, in place."""
        rotated = rotate_in_place(graph)
        lay_out(graph, ((each.product, each.residual) for each in _sums(graph)), rotated)
        for node in graph.find_nodes(op="call_function", target=torch.ops.prunecast.columns.default):
            norm_in_transpose(graph, node)
        for node in graph.find_nodes(op="call_function", target=_ops.fp8_linear.default):
            product = Fp8Call(*node.args)
            quantise_at_once(graph, product.x, product.scales, _is_written)
        graph.eliminate_dead_code()
        place = {node: number for number, node in enumerate(graph.nodes)}
        for add, product, residual in _sums(graph):
            if add.users and _may_overwrite(residual, product, add, place):
                _replace(graph, add, product, residual, place)

    def uuid(self) -> Any:
        """Return the cache key of the pass for compiled graphs."""
        return get_hash_for_files((__file__,))


def _is_written(x: Node) -> bool:
    """Return whether x is a view of a tensor that an fp8 product or attention wrote."""
    y: Any = x
    while isinstance(y, Node) and y.target in (*VIEWS, _aten.permute.default):
        y = y.args[0] if y.meta["val"].is_contiguous() else None
    if not isinstance(y, Node):
        return False
    source = y.args[0] if y.target is operator.getitem else y
    return source.target in (_ops.fp8_linear.default, *ATTENTION)


class _Sum(NamedTuple):
    """A residual add after a sparse product."""

    add: Node
    product: Node
    residual: Node


def _sums(graph: Graph) -> Iterator[_Sum]:
    """Yield the sums of a large sparse product and a residual with the shape and dtype of the sum."""
    for add in graph.find_nodes(op="call_function", target=_aten.add.Tensor):
        if len(add.args) != 2 or add.kwargs:
            continue
        for y, residual in (add.args, reversed(add.args)):
            product = _product_behind(y)
            if product is not None and all(_is_like(each, add) for each in (y, residual)):
                yield _Sum(add, product, residual)


def register() -> None:
    """Add the pass to all later compilations, unless another custom pass is registered."""
    if config.post_grad_custom_post_pass is None:
        config.post_grad_custom_post_pass = AddInEpilogue()


def _product_behind(y: Any) -> Node | None:
    """Return the sparse product of which y is a view; None if there is none or its result cannot be fused.

    It can be fused if the result is large and has only one reader, and if the product has no epilogue and is
    not 2:4.
    """
    y = source_of_view(y)
    if not isinstance(y, Node) or len(y.users) != 1 or y.target not in _ADDING:
        return None
    product = _ADDING[y.target].call(*y.args)
    if isinstance(product, LinearCall) and layout_of(product.images[0].meta["val"]).is_two_of_four:
        return None
    is_large = statically_known_true(y.meta["val"].numel() >= RESIDUAL_EPILOGUE_ELEMENTS)
    return y if is_large and product.epilogue == PLAIN else None


def _is_like(node: Any, add: Node) -> bool:
    """Return whether the operand `node` of the sum `add` has the shape and dtype of the sum."""
    own, wanted = node.meta["val"] if isinstance(node, Node) else None, add.meta["val"]
    return isinstance(own, torch.Tensor) and (own.shape, own.dtype) == (wanted.shape, wanted.dtype)


def _may_overwrite(residual: Any, product: Node, add: Node, place: dict[Node, int]) -> bool:
    """Return whether the product may add to the residual in place.

    The residual must be contiguous, not read after the sum, and not an input of the product.
    """
    if residual.op != "call_function" or _is_view(residual):
        return False
    x_t = product.args[0]
    while isinstance(x_t, Node) and _is_view(x_t):
        x_t = x_t.args[0]
    is_free = x_t is not residual and _last_use(residual, place) <= place[add]
    return is_free and bool(residual.meta["val"].is_contiguous())


def _is_view(node: Node) -> bool:
    if node.target is operator.getitem:
        return node.args[0].target is not auto_functionalized
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    return any(each.alias_info is not None for each in returns)


def _last_use(node: Node, place: dict[Node, int]) -> int:
    """Return the position in the graph of the last node that reads the result of `node` or a view of it."""
    return max(
        (max(place[user], _last_use(user, place) if _is_view(user) else 0) for user in node.users), default=0
    )


def _replace(graph: Graph, add: Node, product: Node, residual: Node, place: dict[Node, int]) -> None:
    """Replace the sum `add` by the operator that computes `product` and adds it to `residual` in place.

    The operator gets those arguments of the product that it declares by the same names. Later calls find the
    new nodes in `place` at the position of the sum.
    """
    adding = _ADDING[product.target]
    names = {argument.name for argument in adding.operator._schema.arguments}
    arguments = adding.call(*product.args)._asdict()
    given = {"y": residual, **{name: arguments[name] for name in arguments if name in names}}
    with graph.inserting_before(add):
        value = add.meta["val"]
        both = call(graph, (None, value), auto_functionalized, adding.operator, **given)
        total = call(graph, value, operator.getitem, both, 1)
    place[both] = place[total] = place[add]
    exchange(graph, add, total)
