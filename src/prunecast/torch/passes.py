"""Operations of a rewritten network on images in planes, and the nodes that they replace.

The first part contains the functions that the rewritten code calls. They use `Planes` and ordinary operators.
The second part finds the function for a node of a torch.fx graph. Elementwise operations run on all pixels at
once, including the borders; they must therefore map zero to zero.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.nn import functional

from prunecast.errors import BadInput
from prunecast.kernels.device.planes.planes import Window
from prunecast.torch.planes import Planes, between_planes, planes_of, whole_batch

MOST_AVERAGED = 2
"""Largest side, in pixels, of images whose mean a pooling kernel computes; torch sums larger images. Kind:
choice. For 2x2 pixels the pooling kernel added 3 us to a forward pass and the sum 16 us, for 7x7 pixels the
pooling kernel 15 us and the sum 8 us (H200, 2026-11-28); no size in between was measured.
"""


def into_planes(
    x: torch.Tensor, border: int, relu: bool = False, size: int = 1, stride: int = 1, padding: int = 0
) -> Planes:
    """Copy images (N, channels, height, width) into planes, after a ReLU if `relu` is set and a max pool.

    `size`, `stride` and `padding` describe the max pool; by default there is none. Raise BadInput if x is not
    a tensor of images.
    """
    if not isinstance(x, torch.Tensor) or x.dim() != 4 or not x.numel():
        got = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
        raise BadInput(f"wanted images (batch, channels, height, width), got {got}")
    window = Window("max", size, stride, padding)
    data = planes_of(x, whole_batch(x.shape[0]), border, window, relu=relu)
    return Planes(data, x.shape[1], *window.sides(x.shape[2], x.shape[3]), border, x.shape[0])


def as_images(x: Planes) -> torch.Tensor:
    """Return the images as a contiguous tensor (N, channels, height, width).

    One kernel transposes the planes at memory speed, and one copy leaves out the borders.
    """
    layout, body = x.layout, _body(x)
    rows = torch.ops.prunecast.columns.default(body, whole_batch(body.shape[0]))
    lines = rows[: x.n_images, : body.shape[0]].unflatten(1, (x.channels, x.height + x.border, layout.line))
    return lines[:, :, : x.height, : x.width].contiguous()


def _body(x: Planes) -> torch.Tensor:
    """Return the rows of `x.data` from the first pixel on, (channels * pixels per plane, batch), as a view.

    The plane of a channel has (height + border) lines of (width + border) pixels: zeros follow each line and
    the last line. Only the zeros before the first plane, and the last ones of the tensor, are left out.
    """
    layout = x.layout
    return x.data[layout.first : layout.first + layout.planes * layout.plane]


def pooled(x: Planes, mode: str, size: int, stride: int = 1, padding: int = 0) -> Planes:
    """Return pooled images if `mode` is `max` or `average`; for `nearest`, images upsampled by `size`."""
    window = Window(mode, size, stride, padding)
    data = between_planes(x.data, x.layout, window)
    return Planes(data, x.channels, *window.sides(x.height, x.width), x.border, x.n_images)


def mean(x: Planes) -> torch.Tensor:
    """Return the mean of each channel, (N, channels), as a view of a tensor (channels, batch).

    Sparse linear layers of this package read this feature-major layout without a transpose.
    """
    if x.height == x.width <= MOST_AVERAGED:
        one = pooled(x, "average", x.height)
        return _body(one).unflatten(0, (x.channels, -1))[:, 0].t()[: x.n_images]
    sums = _body(x).unflatten(0, (x.channels, -1)).sum(1, dtype=torch.float32)  # borders are zeros
    return (sums * (1.0 / (x.height * x.width))).to(x.data.dtype).t()[: x.n_images]


def mean_as_images(x: Planes) -> torch.Tensor:
    """Return the mean of each channel, (N, channels, 1, 1)."""
    return mean(x)[:, :, None, None]


def averaged_to(x: Planes, height: int, width: int) -> Planes:
    """Return images of `height` x `width` pixels, by adaptive average pooling."""
    if (x.height, x.width) == (height, width):
        return x
    return into_planes(functional.adaptive_avg_pool2d(as_images(x), (height, width)), x.border)


def flat(x: Planes) -> torch.Tensor:
    """Return the pixels of each image as one row, (N, channels * height * width), stored feature-major."""
    layout = x.layout
    lines = _body(x).view(x.channels, x.height + x.border, layout.line, -1)
    return lines[:, : x.height, : x.width].reshape(-1, x.data.shape[1]).t()[: x.n_images]


def combined(x: Planes, y: Planes, name: str) -> Planes:
    """Return the elementwise sum, product, difference or maximum of two batches of images.

    `name` is `add`, `mul`, `sub` or `maximum`.
    """
    function = _FUNCTIONS[name]
    if x[1:] == y[1:]:
        return x._replace(data=function(x.data, y.data))
    return into_planes(function(as_images(x), as_images(y)), x.border)


def concatenated(*parts: Planes) -> Planes:
    """Return images with the channels of all `parts`, which must have equal sizes and borders."""
    first, last = parts[0], parts[-1]
    ends = first.layout
    pieces = [first.data[: ends.first], *(_body(each) for each in parts)]
    pieces.append(last.data[last.data.shape[0] - last.border :])
    channels = sum(each.channels for each in parts)
    return first._replace(data=torch.cat(pieces), channels=channels)


def resized(x: Planes, size: Any) -> Planes:
    """Resize images with nearest-neighbour interpolation.

    `size` is (height, width), or one number for both.
    """
    height, width = (int(size), int(size)) if isinstance(size, int) else (int(side) for side in size)
    scale = height // x.height
    if (height, width) == (scale * x.height, scale * x.width):
        return x if scale == 1 else pooled(x, "nearest", scale)
    return into_planes(functional.interpolate(as_images(x), (height, width)), x.border)


# ---- nodes that these functions replace

ZERO_MODULES = (nn.ReLU, nn.ReLU6, nn.SiLU, nn.GELU, nn.Hardswish, nn.LeakyReLU, nn.ELU, nn.Mish, nn.Tanh)
ZERO_FUNCTIONS = {
    *(torch.relu, torch.relu_, torch.tanh, functional.relu, functional.relu6, functional.silu),
    *(functional.gelu, functional.hardswish, functional.leaky_relu, functional.elu, functional.mish),
}
"""Activations f with f(0) = 0: they keep the borders of planes zero."""
SUMS = {operator.add, operator.iadd, torch.add, "add", "add_"}
_FUNCTIONS = {"add": torch.add, "mul": torch.mul, "sub": torch.sub, "maximum": torch.maximum}
_BOTH = {
    **dict.fromkeys(SUMS, "add"),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul), "mul"),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub), "sub"),
    torch.maximum: "maximum",
}
"""Elementwise operation f of two tensors with f(0, 0) = 0 -> its name in `_FUNCTIONS`."""
_SCALED = {operator.mul, operator.imul, operator.truediv, torch.mul, torch.div}
_GONE = (nn.Dropout, nn.Dropout2d, nn.Identity)

Modules = Mapping[str, nn.Module]
Adder = Callable[["NodeOfPass"], "Made | None"]
"""Function that adds an operation on planes to the new graph and returns its node; None if an operand is not
in planes.
"""


class Made(NamedTuple):
    """New node of the rewritten graph; `is_planes` states whether its value is in planes."""

    node: fx.Node
    is_planes: bool = True


class NodeOfPass(NamedTuple):
    """A node of the traced graph that an operation on planes replaces, and the graph that receives it.

    `planes` maps nodes of the traced graph to nodes of the new graph whose values are in planes.
    """

    graph: fx.Graph
    planes: Mapping[fx.Node, fx.Node]
    node: fx.Node
    value: Callable[[fx.Node], fx.Node]
    """Function that returns the node of the new graph for an operand that is not in planes."""

    @property
    def x(self) -> fx.Node:
        """Node of the new graph for the first operand of `node`, which is in planes."""
        return self.planes[self.node.all_input_nodes[0]]

    def call(self, function: Callable[..., Any], *arguments: Any, is_planes: bool = True) -> Made:
        """Add a node to the new graph that calls `function` with the first operand and `arguments`."""
        return Made(self.graph.call_function(function, (self.x, *arguments)), is_planes)


def pass_of(node: fx.Node, modules: Modules) -> Adder | None:
    """Return the `Adder` of the operation on planes that replaces a node; None if there is no such operation.

    The first operand of the node must be in planes.
    """
    module = modules[node.target] if node.op == "call_module" else None
    for find in (_of_one, _of_pool, _of_mean, _of_several):
        if (found := find(node, module)) is not None:
            return found
    return None


def _of_one(node: fx.Node, module: Any) -> Adder | None:
    """Return the `Adder` of an elementwise operation on one operand, or of a read of the images' sizes.

    Return None for another node.
    """
    is_size = node.op == "call_method" and node.target == "size" and len(node.all_input_nodes) == 1
    if is_size or (node.target is getattr and node.args[1] == "shape"):
        return lambda given: Made(given.graph.node_copy(node, lambda _: given.x), is_planes=False)
    if type(module) in _GONE or (node.target == "contiguous" and node.op == "call_method"):
        return lambda given: Made(given.x)
    is_scaled = node.target in _SCALED and len(node.args) == 2 and isinstance(node.args[1], int | float)
    is_method = node.op == "call_method" and str(node.target).rstrip("_") in ("relu", "tanh")
    is_one = type(module) in ZERO_MODULES or node.target in ZERO_FUNCTIONS or is_scaled or is_method
    if not is_one or len(node.all_input_nodes) != 1:
        return None

    def add(given: NodeOfPass) -> Made:
        data = given.graph.call_function(getattr, (given.x, "data"))
        new = {"data": given.graph.node_copy(node, lambda _: data)}
        return Made(given.graph.call_method("_replace", (given.x,), new))

    return add


def _of_pool(node: fx.Node, module: Any) -> Adder | None:
    """Return the `Adder` of a pooling or upsampling node; None for another node."""
    _, window = window_of(node, {str(node.target): module} if module is not None else {})
    if window is not None:
        return lambda given: given.call(pooled, "max", *window)
    if type(module) is nn.AvgPool2d:
        own = (_side(module.kernel_size), _side(module.stride), _side(module.padding))
        is_plain = not module.ceil_mode and module.count_include_pad and module.divisor_override is None
        if None not in own and is_plain:
            return lambda given: given.call(pooled, "average", *own)
    if type(module) is nn.Upsample and module.mode == "nearest":
        scale = _side(module.scale_factor)
        return None if scale is None else lambda given: given.call(pooled, "nearest", scale)
    if node.target is functional.interpolate and len(node.args) == 1:
        options = {key: value for key, value in node.kwargs.items() if value not in (None, False)}
        scale = options.pop("scale_factor", None)
        size = options.pop("size", None)
        if options.pop("mode", "nearest") != "nearest" or options:
            return None
        if size is None and scale is not None and float(scale).is_integer():
            return lambda given: given.call(pooled, "nearest", int(scale))
        is_known = isinstance(size, fx.Node) and scale is None
        return (lambda given: given.call(resized, given.value(size))) if is_known else None
    return None


def window_of(node: fx.Node, modules: Modules) -> tuple[fx.Node, tuple[int, int, int] | None]:
    """Return the operand of a max pool, and the pool's (size, stride, padding).

    For a node that is no max pool, return the node itself and None.
    """
    module: Any = modules.get(str(node.target)) if node.op == "call_module" else None
    given: tuple[Any, ...]
    if type(module) is nn.MaxPool2d:
        given = (module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)
        indices = module.return_indices
    elif node.target in (functional.max_pool2d, torch.max_pool2d):
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        options = dict(zip(names, (None, None, 0, 1, False), strict=True))
        options |= dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
        indices = options.pop("return_indices", False)
        options["stride"] = options["stride"] or options["kernel_size"]
        given = tuple(options[name] for name in names)
    else:
        return node, None
    size, stride, padding, dilation = (_side(each) for each in given[:4])
    if size is None or stride is None or padding is None or dilation != 1 or given[4] or indices:
        return node, None
    return node.all_input_nodes[0], (size, stride, padding)


def _side(given: Any) -> int | None:
    """Return the side of a square from one number or a pair; None unless both sides are the same integer."""
    sides = given if isinstance(given, tuple | list) else (given, given)
    same = len(sides) == 2 and all(isinstance(side, int | float) for side in sides) and sides[0] == sides[1]
    return int(sides[0]) if same and math.floor(sides[0]) == sides[0] else None


def _of_mean(node: fx.Node, module: Any) -> Adder | None:
    """Return the `Adder` of a mean over all pixels, an adaptive average pool, or a `flatten`.

    Return None for another node.
    """
    size = None
    if type(module) is nn.AdaptiveAvgPool2d:
        size = module.output_size
    elif node.target is functional.adaptive_avg_pool2d:
        size = node.args[1] if len(node.args) > 1 else node.kwargs.get("output_size")
    if (side := _side(size)) == 1:
        return lambda given: given.call(mean_as_images, is_planes=False)
    if side is not None:
        return lambda given: given.call(averaged_to, side, side)
    if node.target in ("mean", torch.mean) and len(node.all_input_nodes) == 1:
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        keeps = node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False)
        if isinstance(dims, tuple | list) and sorted(dim % 4 for dim in dims) == [2, 3]:
            function = mean_as_images if keeps else mean
            return lambda given: given.call(function, is_planes=False)
    is_flat = (type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)) or (
        node.target in (torch.flatten, "flatten") and node.args[1:] == (1,) and not node.kwargs
    )
    return (lambda given: given.call(flat, is_planes=False)) if is_flat else None


def _of_several(node: fx.Node, _: Any) -> Adder | None:
    """Return the `Adder` of a concatenation along the channels, or of an operation on two operands.

    Return None for another node. The `Adder` returns None unless all operands are in planes.
    """
    if node.target in (torch.cat, torch.concat) and isinstance(node.args[0], tuple | list):
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        return _concatenated if dim in (1, -3) else None
    is_pair = len(node.args) == len(node.all_input_nodes) == 2 and not node.kwargs
    return _combined if is_pair and node.target in _BOTH else None


def _concatenated(given: NodeOfPass) -> Made | None:
    parts = given.node.args[0]
    if not all(part in given.planes for part in parts):
        return None
    return Made(given.graph.call_function(concatenated, tuple(given.planes[part] for part in parts)))


def _combined(given: NodeOfPass) -> Made | None:
    other = given.node.all_input_nodes[1]
    if other not in given.planes:
        return None
    return given.call(combined, given.planes[other], _BOTH[given.node.target])
