"""Rotary embedding in place: the operator `rotate_heads_`, and the part of the torch.compile pass for it.

    heads * cos + cat(-second half, first half) * sin    ->  rotate_heads_(y, cos, sin, number of heads)

applies to heads that are views of the result of a sparse product. The code of torch.compile copies the heads,
and computes cos and sin of each angle again for every head. The operator overwrites queries and keys in the
result of their joint product, where attention then reads them. Sums are computed in fp32 and rounded once, as
by torch.compile.
"""

import operator
from typing import Any, NamedTuple

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._inductor.pattern_matcher import stable_topological_sort
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

import prunecast.torch.fp8
import prunecast.torch.ops  # noqa: F401  # both define operators
from prunecast.torch.cuda.rotary import rotate_rows
from prunecast.torch.layout_pass import LOOKS, VIEWS, call, fake_run
from prunecast.torch.operators import changes_argument, register
from prunecast.workload.graph.fusions import RESIDUAL_EPILOGUE_ELEMENTS

_aten = torch.ops.aten


def _rotate_heads(y: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int) -> None:
    """Rotate the first `heads` heads of each row of y (tokens, features) in place.

    `cos` and `sin` are (periods, width); token t uses row t modulo `periods`.
    """
    cos, sin = cos.contiguous(), sin.contiguous()
    if y.is_cuda and rotate_rows(y, cos, sin, heads):
        return
    (periods, width), tokens = cos.shape, len(y)
    own = y[:, : heads * width].unflatten(-1, (heads, width))
    first, second = own.float().chunk(2, -1)
    angles = [each.float().repeat(-(-tokens // periods), 1)[:tokens, None] for each in (cos, sin)]
    own.copy_(torch.cat([first, second], -1) * angles[0] + torch.cat([-second, first], -1) * angles[1])


_ROTATE = register(
    "rotate_heads_(Tensor(a!) y, Tensor cos, Tensor sin, int heads) -> ()",
    _rotate_heads,
    fake=changes_argument,
)


class _Rotation(NamedTuple):
    """Nodes of a rotary embedding, applied to consecutive heads in the result of a product."""

    total: Node
    """Sum that computes the rotated heads, (batch, heads, tokens, width)."""
    heads: Node
    """Heads before the rotation, a view of the result of the product."""
    product: Node
    """Product with the heads in its result, (tokens, features)."""
    first: int
    """Feature of the product's result at which the heads begin."""
    cos: Node
    sin: Node
    """`cos` and `sin` are the cosines and sines of the angles, each (1 or batch, tokens, width)."""

    @property
    def last(self) -> int:
        """Index of the first feature after the heads."""
        _, heads, _, width = self.heads.meta["val"].shape
        return self.first + int(heads) * int(width)


def rotate_in_place(graph: Graph) -> list[Node]:
    """Rotate the heads in the result of each large product by one launch, in place.

    Return the nodes that read rotated heads; they now read views of that result.
    """
    of_product: dict[Node, list[_Rotation]] = {}
    for total in graph.find_nodes(op="call_function", target=_aten.add.Tensor):
        rotation = _rotation_of(total)
        if rotation is not None:
            of_product.setdefault(rotation.product, []).append(rotation)
    changed: list[Node] = []
    for product, rotations in of_product.items():
        rotations.sort(key=lambda each: each.first)
        if _may_overwrite(product, rotations):
            changed += _replace(graph, product, rotations)
    if changed:
        stable_topological_sort(graph)
        _renew_views(graph)
    return changed


def _rotation_of(total: Node) -> _Rotation | None:
    """Return the nodes of the rotary embedding, as in transformers, whose last node is the sum `total`.

    Return None for another sum.
    """
    if len(total.args) != 2 or total.kwargs:
        return None
    straight, crossed = total.args
    if not all(isinstance(each, Node) and each.target is _aten.mul.Tensor for each in total.args):
        return None
    (heads, cos), (halves, sin) = straight.args, crossed.args
    angles = [angle for angle in (_angles(each) for each in (cos, sin)) if angle is not None]
    if len(angles) != 2 or not isinstance(heads, Node) or not _is_turned(halves, heads):
        return None
    source = _heads_of_product(heads)
    if source is None or any(each.meta["val"].dtype != source[0].meta["val"].dtype for each in angles):
        return None
    return _Rotation(total, heads, *source, *angles)


def _angles(node: Any) -> Node | None:
    """Return the node of cos or sin (1 or batch, tokens, width) that `node` extends by a dimension of heads.

    Return None for another node.
    """
    if not isinstance(node, Node) or node.target is not _aten.unsqueeze.default or node.args[1] != 1:
        return None
    found: Node = node.args[0]
    return found if found.meta["val"].dim() == 3 else None


def _is_turned(halves: Any, heads: Node) -> bool:
    """Return whether `halves` is cat(-second half of each head, first half of each head)."""
    if not isinstance(halves, Node) or halves.target is not _aten.cat.default or halves.args[1:] != (-1,):
        return False
    parts, width = halves.args[0], int(heads.meta["val"].shape[-1])
    if len(parts) != 2 or parts[0].target is not _aten.neg.default or len(heads.users) != 3:
        return False
    ranges = [_slice_of(each, heads, 3) for each in (parts[0].args[0], parts[1])]
    return ranges == [(width // 2, width), (0, width // 2)] and width % 2 == 0


def _slice_of(node: Node, source: Node, dim: int) -> tuple[int, int] | None:
    """Return the range (first, end) of a node that slices `source` along `dim`; None for another node."""
    if node.target is not _aten.slice.Tensor or node.args[0] is not source or len(node.args) > 4:
        return None
    rank = source.meta["val"].dim()
    if node.args[1] % rank != dim:
        return None
    size = int(source.meta["val"].shape[dim])
    bounds: list[Any] = [*node.args[2:], None, None]
    first, last = bounds[:2]
    return int(first or 0), size if last is None else min(int(last), size)


def _heads_of_product(heads: Node) -> tuple[Node, int] | None:
    """Return the sparse product of whose result the heads are a view, and the index of their first feature.

    Return None if the heads are no such view.
    """
    if heads.target is not _aten.permute.default or list(heads.args[1]) != [0, 2, 1, 3]:
        return None
    parts = heads.args[0]
    if not isinstance(parts, Node) or parts.target not in VIEWS or len(parts.users) != 1:
        return None
    source, first = parts.args[0], 0
    if source.target is _aten.slice.Tensor:
        whole = source.args[0]
        bounds = _slice_of(source, whole, whole.meta["val"].dim() - 1)
        if bounds is None or len(source.users) != 1:
            return None
        source, first = whole, bounds[0]
    if source.meta["val"].dim() != 3 or parts.meta["val"].shape[:2] != source.meta["val"].shape[:2]:
        return None
    while source.target in VIEWS:
        source = source.args[0]
    is_product = source.target in (
        torch.ops.prunecast.linear.default,
        torch.ops.prunecast.fp8_linear.default,
    )
    return (source, first) if is_product else None


def _may_overwrite(product: Node, rotations: list[_Rotation]) -> bool:
    """Return whether the heads can be rotated in the result of the product.

    They must be the first features of a large result, and nothing may read them unrotated.
    """
    y = product.meta["val"]
    one, last = rotations[0], 0
    # The operator rotates heads 0 to `last` / width by the same angles
    for each in rotations:
        if each.first != last or (each.cos, each.sin) != (one.cos, one.sin):
            return False
        last = each.last
    if not (
        y.dim() == 2 and y.is_contiguous() and statically_known_true(y.numel() >= RESIDUAL_EPILOGUE_ELEMENTS)
    ):
        return False
    tokens, periods = y.shape[0], one.cos.meta["val"].shape
    if not statically_known_true(periods[0] * periods[1] == tokens) and periods[0] != 1:
        return False
    own = {each.heads.args[0] for each in rotations}
    return all(_reads_after(user, own, last) for user in product.users)


def _reads_after(user: Node, own: set[Node], last: int) -> bool:
    """Return whether the node `user` reads only heads that are rotated, or only features from `last` on.

    `own` are the views of the result through which only the rotation reads its heads.
    """
    if user in own:
        return True
    if user.target in VIEWS and user.meta["val"].dim() == 3:
        return all(_reads_after(each, own, last) for each in user.users)
    if user.target is not _aten.slice.Tensor:
        return False
    source = user.args[0]
    bounds = _slice_of(user, source, source.meta["val"].dim() - 1)
    return bounds is not None and (bounds[0] >= last or set(user.users) <= own)


def _renew_views(graph: Graph) -> None:
    """Compute fake values of views again, so that they share the storage of the rotated tensor.

    Otherwise Inductor would copy the result of the product first, see `_replace`.
    """
    renewed: set[Node] = set()
    for node in graph.nodes:
        if node.target is operator.getitem and node.args[0].args[0] is _ROTATE:
            renewed.add(node)
        elif node.target in LOOKS and node.args[0] in renewed:
            renewed.add(node)
            fake_run(node)


def _replace(graph: Graph, product: Node, rotations: list[_Rotation]) -> list[Node]:
    """Insert the operator that rotates the heads in place; return the nodes that read the rotated heads.

    All readers of the product then read the rotated result, since `_may_overwrite` has excluded readers of
    unrotated heads. Each sum is replaced by its heads, the view of that result.
    """
    one, width = rotations[0], rotations[0].heads.meta["val"].shape[-1]
    with graph.inserting_after(product):
        angles = [
            call(graph, each.meta["val"].reshape(-1, width), _aten.reshape.default, each, [-1, width])
            for each in (one.cos, one.sin)
        ]
        given = {"y": product, "cos": angles[0], "sin": angles[1], "heads": rotations[-1].last // int(width)}
        # A new storage: Inductor copies y first if views of y's storage are read later
        value = product.meta["val"].clone()
        both = call(graph, (None, value), auto_functionalized, _ROTATE, **given)
        after = call(graph, value, operator.getitem, both, 1)
    product.replace_all_uses_with(after, delete_user_cb=lambda user: user is not both)
    readers = [user for each in rotations for user in each.total.users]
    for each in rotations:
        each.total.replace_all_uses_with(each.heads)
    return readers
