"""A torch.compile pass that fuses a residual add into the epilogue of the sparse product before it.

    residual + linear(x)  ->  linear_add_(residual, x)

This is a pass over Inductor's graph, so that the code of a model does not change. The residual is
overwritten. It must therefore have been computed in the graph and have no reader after the sum. `sparsify`
registers the pass if a model's sums are large: see `docs/decisions/0016-epilogues-in-models.md`.
"""

import operator
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from prunecast.torch import ops
from prunecast.torch.epilogue import PLAIN, LinearCall

_aten = torch.ops.aten
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)


class AddInEpilogue(CustomGraphPass):  # type: ignore[misc]
    """Fuses products whose only reader adds y to a residual that has no later reader."""

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place."""
        place = {node: number for number, node in enumerate(graph.nodes)}
        for add in graph.find_nodes(op="call_function", target=_aten.add.Tensor):
            if len(add.args) != 2 or add.kwargs:
                continue
            for y, residual in (add.args, reversed(add.args)):
                product = _product_behind(y)
                if (
                    product is not None
                    and all(_is_like(each, add) for each in (y, residual))
                    and _may_overwrite(residual, product, add, place)
                ):
                    _replace(graph, add, product, residual, place)
                    break

    def uuid(self) -> Any:
        """Return the cache key of the pass for compiled graphs."""
        return get_hash_for_files((__file__,))


def register() -> None:
    """Add the pass to all later compilations, unless another custom pass is registered."""
    if config.post_grad_custom_post_pass is None:
        config.post_grad_custom_post_pass = AddInEpilogue()


def _product_behind(y: Any) -> Node | None:
    """Return the plain and large product that y is a view of, if it has no other reader; else None."""
    while isinstance(y, Node) and len(y.users) == 1 and y.target in _VIEWS:
        y = y.args[0]
    if not isinstance(y, Node) or len(y.users) != 1 or y.target is not torch.ops.prunecast.linear.default:
        return None
    call = LinearCall(*y.args)
    is_large = statically_known_true(y.meta["val"].numel() >= ops.LEAST_ADDED)
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
    call = LinearCall(*product.args)
    given = {
        "x_t": call.x_t,
        "images": call.images,
        "tiles": call.tiles,
        "bias": call.bias,
        "tokens": call.tokens,
        "rows": call.rows,
        "gpu": call.gpu,
        "plan": call.plan,
    }
    with graph.inserting_before(add):
        both = graph.call_function(
            auto_functionalized, (torch.ops.prunecast.linear_add_.default,), {"y": residual, **given}
        )
        total = graph.call_function(operator.getitem, (both, 1))
    place[both] = place[total] = place[add]
    both.meta["val"], total.meta["val"] = (None, add.meta["val"]), add.meta["val"]
    add.replace_all_uses_with(total)
    graph.erase_node(add)
