"""A torch.compile pass that fuses what precedes and follows sparse products into their kernels.

    residual + linear(x)                     ->  linear_add_(residual, x)
    columns((x - shift) * scale * weight + bias)  ->  norm_columns(x, shift, scale, weight, bias)
    fp8_linear(..) in fp8 with its scales    ->  quantise(fp8_linear(..))

The first is a residual add, which moves into the epilogue of the product, in 16 bits or fp8; the second a
normalisation of which only a product reads the result, which moves into the transpose. Mean and deviation of
each token stay a kernel of torch.compile, which also computes x. A norm whose result is a residual too, as in
BERT, stays. The third has nothing that it could be fused with: one kernel reads x once, where torch.compile
reads it for the maximum of a token and again to round.

This is a pass over Inductor's graph, so that the code of a model does not change. The residual is
overwritten. It must therefore have been computed in the graph and have no reader after the sum. `sparsify`
registers the pass if a model's sums are large: see `docs/decisions/0016-epilogues-in-models.md`.
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
from prunecast.torch.layout_pass import VIEWS, lay_out
from prunecast.workload.graph.fusions import RESIDUAL_EPILOGUE_ELEMENTS
from prunecast.workload.graph.transposes import SEPARATE_TRANSPOSE_ELEMENTS

_aten = torch.ops.aten
_ops = torch.ops.prunecast
_CONVERT = torch.ops.prims.convert_element_type.default


class _Adding(NamedTuple):
    """A product that can add to a residual."""

    call: type[LinearCall | Fp8Call]
    """Arguments of the product."""
    operator: Any
    """The product that adds, whose arguments after y have the names of those of the product."""


_ADDING = {
    _ops.linear.default: _Adding(LinearCall, _ops.linear_add_.default),
    _ops.fp8_linear.default: _Adding(Fp8Call, _ops.fp8_linear_add_.default),
}
"""Operator of a product in a traced graph -> the operator that adds this product to a residual in place."""


class AddInEpilogue(CustomGraphPass):  # type: ignore[misc]
    """Fuses products whose only reader adds y to a residual that has no later reader, and norms that only
    products read.
    """

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place."""
        lay_out(graph, ((each.product, each.residual) for each in _sums(graph)))
        for node in graph.find_nodes(op="call_function", target=torch.ops.prunecast.columns.default):
            _norm_in_transpose(graph, node)
        for node in graph.find_nodes(op="call_function", target=_ops.fp8_linear.default):
            _quantise_at_once(graph, node)
        graph.eliminate_dead_code()
        place = {node: number for number, node in enumerate(graph.nodes)}
        for add, product, residual in _sums(graph):
            if add.users and _may_overwrite(residual, product, add, place):
                _replace(graph, add, product, residual, place)

    def uuid(self) -> Any:
        """Return the cache key of the pass for compiled graphs."""
        return get_hash_for_files((__file__,))


class _Sum(NamedTuple):
    """A residual add after a sparse product."""

    add: Node
    product: Node
    residual: Node


def _sums(graph: Graph) -> Iterator[_Sum]:
    """Yield the sums of a large product and a tensor of its shape."""
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


class _Norm(NamedTuple):
    """((x - shift) * scale) * weight + bias, by nodes."""

    x: Node
    shift: Node | None
    scale: Node
    weight: Node | None
    bias: Node | None
    rounds: bool


def _norm_in_transpose(graph: Graph, columns: Node) -> None:
    """Replace the transpose of a norm's result, which has no other reader, by `norm_columns`."""
    flat, tokens = columns.args
    rows, features = flat.meta["val"].shape
    if not (
        isinstance(rows, int) and isinstance(features, int) and rows * features >= SEPARATE_TRANSPOSE_ELEMENTS
    ):
        return
    y = flat
    while len(y.users) == 1 and y.target in VIEWS:
        y = y.args[0]
    norm = _norm_of(y) if len(y.users) == 1 else None
    if norm is None:
        return

    def reshaped(node: Node | None, width: int) -> Node | None:
        if node is None:
            return None
        made = graph.call_function(_aten.reshape.default, (node, [rows, width]))
        made.meta["val"] = node.meta["val"].reshape(rows, width)
        return made

    with graph.inserting_before(columns):
        shift, scale = (reshaped(each, 1) for each in (norm.shift, norm.scale))
        given = (reshaped(norm.x, features), shift, scale, norm.weight, norm.bias, norm.rounds, tokens)
        made = graph.call_function(torch.ops.prunecast.norm_columns.default, given)
    made.meta["val"] = columns.meta["val"]
    columns.replace_all_uses_with(made)
    graph.erase_node(columns)


def _norm_of(y: Node) -> _Norm | None:
    """Return the norm that y is: with a weight after rounding, as in Llama; or rounded last, as LayerNorm."""
    dtype, width = y.meta["val"].dtype, y.meta["val"].shape[-1:]

    def is_row(node: Any) -> bool:
        return isinstance(node, Node) and node.meta["val"].shape == width and node.meta["val"].dtype == dtype

    def without(node: Node, target: Any) -> tuple[Node, Node | None]:
        """Return the other operand and a row of weights or biases, if the node combines two such."""
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
            return _Norm(x, shift, scale, early if weight is None else weight, bias, weight is not None)
    return None


def _is_per_token(node: Node, y: Node) -> bool:
    """Return whether the tensor has one fp32 value for each token of y."""
    value = node.meta["val"]
    return value.dtype is torch.float32 and value.shape == (*y.meta["val"].shape[:-1], 1)


def _quantise_at_once(graph: Graph, product: Node) -> None:
    """Let one kernel quantise x of an fp8 product, if x is what another fp8 product wrote."""
    call = Fp8Call(*product.args)
    x = _quantised_by_torch(call.x, call.scales)
    y = x
    while isinstance(y, Node) and y.target in VIEWS:
        y = y.args[0]
    if x is None or not isinstance(y, Node) or y.target is not _ops.fp8_linear.default:
        return
    by_torch = (call.x, call.scales)
    with graph.inserting_before(x.next):
        both = graph.call_function(_ops.quantise.default, (x,))
        both.meta["val"] = tuple(each.meta["val"] for each in by_torch)
        for place, each in enumerate(by_torch):
            made = graph.call_function(operator.getitem, (both, place))
            made.meta["val"] = each.meta["val"]
            each.replace_all_uses_with(made)


def _quantised_by_torch(bits: Node, scales: Node) -> Node | None:
    """Return x in 16 bits if these are x in e4m3 and its scales, as `fp8.quantised` computes them."""
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
    """Return an operand of a node if it has this target, else None."""
    if node is None or node.target is not target or not isinstance(node.args[place], Node):
        return None
    found: Node = node.args[place]
    return found


def _product_behind(y: Any) -> Node | None:
    """Return the plain and large product that y is a view of, if it has no other reader; else None."""
    while isinstance(y, Node) and len(y.users) == 1 and y.target in VIEWS:
        y = y.args[0]
    if not isinstance(y, Node) or len(y.users) != 1 or y.target not in _ADDING:
        return None
    call = _ADDING[y.target].call(*y.args)
    is_large = statically_known_true(y.meta["val"].numel() >= RESIDUAL_EPILOGUE_ELEMENTS)
    return y if is_large and call.epilogue == PLAIN else None


def _is_like(node: Any, add: Node) -> bool:
    """Return whether the sum neither broadcasts nor casts this operand."""
    own, wanted = node.meta["val"] if isinstance(node, Node) else None, add.meta["val"]
    return isinstance(own, torch.Tensor) and (own.shape, own.dtype) == (wanted.shape, wanted.dtype)


def _may_overwrite(residual: Any, product: Node, add: Node, place: dict[Node, int]) -> bool:
    """Return whether the residual is contiguous, has its last use in the sum, and is not an input of the
    product.
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
    """Return the position of the last node that uses the tensor or a view of it."""
    return max(
        (max(place[user], _last_use(user, place) if _is_view(user) else 0) for user in node.users), default=0
    )


def _replace(graph: Graph, add: Node, product: Node, residual: Node, place: dict[Node, int]) -> None:
    adding = _ADDING[product.target]
    names = {argument.name for argument in adding.operator._schema.arguments}
    call = adding.call(*product.args)._asdict()
    given = {"y": residual, **{name: value for name, value in call.items() if name in names}}
    with graph.inserting_before(add):
        both = graph.call_function(auto_functionalized, (adding.operator,), given)
        total = graph.call_function(operator.getitem, (both, 1))
    place[both] = place[total] = place[add]
    both.meta["val"], total.meta["val"] = (None, add.meta["val"]), add.meta["val"]
    add.replace_all_uses_with(total)
    graph.erase_node(add)
