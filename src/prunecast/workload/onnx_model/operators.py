"""Shapes of all tensors of an ONNX model, and the conversion of one node to an `Operation`.

Shapes are inferred once the free sizes of the inputs have values.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from prunecast.errors import BadInput, check_choice
from prunecast.files import packaged_toml
from prunecast.patterns.sources.stored_tensor import shape_text
from prunecast.workload.graph import Operation
from prunecast.workload.graph.model_graph import linear, plain_convolution
from prunecast.workload.graph.shapes import MOST_TOKENS

if TYPE_CHECKING:
    import onnx

Shapes = dict[str, tuple[int, ...]]
"""Tensor -> sizes, for tensors whose sizes are all known."""
MOST_ELEMENTS = 2**40
SMALL_BYTES = 4096
"""Constants of at most this many bytes may contain sizes of tensors. The data of larger constants are left
out while shapes are inferred."""


ImageSizes = Mapping[str, tuple[int, int]]
"""Input of a model (batch, channels, height, width) -> (height, width)."""


def shapes_of(
    path: Path, model: "onnx.ModelProto", *, batch: int, tokens: int, images: ImageSizes | None = None
) -> Shapes:
    """Return the inferred shapes of all tensors whose sizes can be determined.

    Parameters
    ----------
    batch, tokens : values of the free (symbolic) sizes of inputs, see `_free_kinds`
    images : input name -> height and width that replace those of the file

    Raises
    ------
    BadInput : an image whose height, width or number of channels is free, or sizes that do not fit together
    """
    import onnx

    _check_constants(path, model)
    sized = _without_values(model)
    for value in model_inputs(sized):
        _set_sizes(path, value, batch, tokens, (images or {}).get(value.name))
    if images:
        # The recorded shapes belong to the size in the file; inference keeps them where they disagree.
        sized.graph.ClearField("value_info")
        for value in sized.graph.output:
            value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(sized, strict_mode=False, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError) as error:
        cause = " ".join(str(error).split())
        raise BadInput(f"{path}: sizes do not fit together: {cause:.200}") from error
    found = {constant.name: tuple(constant.dims) for constant in inferred.graph.initializer}
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        sizes = _sizes(value)
        if sizes is not None:
            found[value.name] = sizes
    return {
        name: sizes
        for name, sizes in found.items()
        if min(sizes, default=0) >= 0 and math.prod(sizes) <= MOST_ELEMENTS
    }


def _check_constants(path: Path, model: "onnx.ModelProto") -> None:
    """Raise BadInput for a constant whose shape has more elements than its data.

    Shape inference would allocate all elements of the shape.
    """
    in_nodes = [entry.t for node in model.graph.node for entry in node.attribute if entry.HasField("t")]
    for constant in (*model.graph.initializer, *in_nodes):
        size, held = math.prod(constant.dims), constant.ByteSize()
        if not constant.external_data and (size > 8 * held or min(constant.dims, default=0) < 0):
            raise BadInput(
                f"{path}: a constant must hold its elements, got {held} bytes for the sizes "
                f"{list(constant.dims)!s:.60}: {constant.name!r:.80}"
            )


def _without_values(model: "onnx.ModelProto") -> "onnx.ModelProto":
    """Return the model without the data of large constants: shape inference needs only their shape."""
    import onnx

    constants = [
        each
        if each.ByteSize() <= SMALL_BYTES
        else onnx.TensorProto(name=each.name, data_type=each.data_type, dims=each.dims)
        for each in model.graph.initializer
    ]
    same = {name: getattr(model.graph, name) for name in ("name", "node", "input", "output", "value_info")}
    return onnx.ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        functions=model.functions,
        graph=onnx.GraphProto(**same, initializer=constants),
    )


def model_inputs(model: "onnx.ModelProto") -> list["onnx.ValueInfoProto"]:
    """Return the inputs of the model, without constants that are listed as inputs."""
    constants = {constant.name for constant in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def is_image(value: "onnx.ValueInfoProto") -> bool:
    """Return True if an input is an image: (batch, channels, height, width)."""
    return len(value.type.tensor_type.shape.dim) == 4


def free_sizes(model: "onnx.ModelProto") -> frozenset[str]:
    """Return the kinds of sizes (`batch`, `tokens`, `image`) that are free in at least one input."""
    return frozenset(kind for value in model_inputs(model) for kind in _free_kinds(value) if kind)


def _free_kinds(value: "onnx.ValueInfoProto") -> list[str]:
    """Return the kind of each size of an input: `batch`, `tokens` or `image`; empty if the size is fixed.

    The first free size is the batch. In an input (rows, features) with fixed features, the rows are tokens.
    """
    sizes = value.type.tensor_type.shape.dim
    is_free = [not (size.HasField("dim_value") and size.dim_value > 0) for size in sizes]
    rows_are_tokens = len(is_free) == 2 and is_free[0] and not is_free[1]
    other = "image" if is_image(value) else "tokens"
    return [
        "" if not free else "batch" if place == 0 and not rows_are_tokens else other
        for place, free in enumerate(is_free)
    ]


def _set_sizes(
    path: Path, value: "onnx.ValueInfoProto", batch: int, tokens: int, image: tuple[int, int] | None
) -> None:
    """Set the free sizes of an input, and its height and width to `image` if that is given."""
    wanted = {"batch": batch, "tokens": tokens}
    for place, (size, kind) in enumerate(
        zip(value.type.tensor_type.shape.dim, _free_kinds(value), strict=True)
    ):
        if image is not None and place >= 2:
            size.Clear()
            size.dim_value = image[place - 2]
        elif kind == "image":
            raise BadInput(
                f"{path}: input {value.name!r} has no fixed height and width: export it with them, or give"
                " --input HxW to a command that has this option"
                if place >= 2
                else f"{path}: input {value.name!r} has no fixed number of channels: export it with them"
            )
        elif kind:
            size.Clear()
            size.dim_value = wanted[kind]


def _sizes(value: "onnx.ValueInfoProto") -> tuple[int, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    if not all(size.HasField("dim_value") for size in tensor.shape.dim):
        return None
    return tuple(int(size.dim_value) for size in tensor.shape.dim)


@cache
def kinds() -> dict[str, str]:
    """Return operator type -> `view`, `copy`, or a kind of `Operation`; the table is in kinds.toml."""
    table = packaged_toml(__package__, "kinds.toml")
    return {name: kind for kind, names in table.items() for name in names}


def operation_of(name: str, node: "onnx.NodeProto", read: list[str], shapes: Shapes) -> Operation:
    """Return the operation of a node that has no weight.

    Parameters
    ----------
    name : name of the operation
    read : tensors that the node reads, without constants
    shapes : all known shapes
    """
    written = sum(_elements(shapes, output) for output in node.output)
    taken = sum(_elements(shapes, tensor) for tensor in read)
    if node.op_type == "MatMul" and len(node.input) == 2:
        return _mixing(name, node, shapes, taken, written)
    kind = kinds().get(node.op_type, "unknown")
    if node.op_type in ("Gather", "Slice", "Split"):
        taken = written  # these operators read only the elements that they write
    return Operation(
        name=name, kind="elementwise" if kind == "copy" else kind, elements_in=taken, elements_out=written
    )


def _mixing(name: str, node: "onnx.NodeProto", shapes: Shapes, taken: int, written: int) -> Operation:
    """Return a product of two activations as an unfused attention operation."""
    inner = (shapes.get(node.input[0]) or (0,))[-1]
    return Operation(
        name=name,
        kind="attention",
        flops=2.0 * written * inner,
        elements_in=taken,
        elements_out=written,
        layout="tokens",
    )


def product_of(
    name: str, node: "onnx.NodeProto", weight: tuple[int, ...], shapes: Shapes, *, is_transposed: bool
) -> Operation:
    """Return the operation of a node that multiplies with a weight.

    Parameters
    ----------
    weight : shape of the weight in the file
    is_transposed : the weight is stored as (K, M)

    Raises
    ------
    BadInput : the shape of the input or output is unknown, or the sizes do not fit together
    """
    out = shapes.get(node.output[0])
    source = (
        node.input[1] if shapes.get(node.input[0]) == weight and node.op_type != "Conv" else node.input[0]
    )
    given = shapes.get(source)
    if not out or not given or 0 in out:
        raise BadInput(f"{name}: sizes of its input and output cannot be told")
    if 0 in weight:
        raise BadInput(f"{name}: wanted a weight of at least one element, got {shape_text(weight)}")
    if len(weight) == 4:
        return _convolution(name, node, weight, given, out)
    m, k = weight[::-1] if is_transposed else weight
    n = _tokens(name, math.prod(out), m)
    if math.prod(given) != k * n:
        raise BadInput(
            f"{name}: sizes do not fit together: the weight has {k} inputs for {n} tokens, "
            f"the tensor that it multiplies has the sizes {shape_text(given)}"
        )
    return linear(name, m, k, n)


def groups_of(node: "onnx.NodeProto") -> int:
    """Return the number of groups of a convolution; 1 for other products."""
    found = [attribute.i for attribute in node.attribute if attribute.name == "group"]
    return int(found[0]) if found and node.op_type == "Conv" else 1


def _convolution(
    name: str, node: "onnx.NodeProto", weight: tuple[int, ...], given: tuple[int, ...], out: tuple[int, ...]
) -> Operation:
    read, written = math.prod(given), math.prod(out)
    if groups_of(node) != 1 or len(given) != 4:
        return Operation(name=name, kind="unknown", elements_in=read, elements_out=written)
    if given[1] != weight[1]:
        raise BadInput(
            f"{name}: sizes do not fit together: filters of {weight[1]} channels, an input of {given[1]}"
        )
    m, k, n = weight[0], math.prod(weight[1:]), _tokens(name, written, weight[0])
    numbers = {attribute.name: list(attribute.ints) for attribute in node.attribute}
    strides = numbers.get("strides") or [1, 1]
    dilations = numbers.get("dilations") or [1, 1]
    pads = _pads(node, weight, given, strides, dilations)
    conv = plain_convolution(given, weight[2:], strides, pads, dilations)
    # Of other convolutions N is known only from the sizes of the output
    is_known = conv is not None and conv.n == n
    return linear(name, m, k, n, convolution=conv if is_known else None, elements_in=read)


def _tokens(name: str, written: int, m: int) -> int:
    """Return N of C (M, N), which has `written` elements."""
    n = written // m
    if written % m or not 1 <= n <= MOST_TOKENS:
        raise BadInput(f"{name}: wanted 1 to {MOST_TOKENS} tokens, got {written} elements of {m} features")
    return n


def _pads(
    node: "onnx.NodeProto",
    weight: tuple[int, ...],
    given: tuple[int, ...],
    strides: list[int],
    dilations: list[int],
) -> list[int]:
    """Return the zeros before and after each axis, in pixels, as `pads` or `auto_pad` define them.

    Raises
    ------
    BadInput : an `auto_pad` that ONNX does not define
    """
    attributes = {a.name: a for a in node.attribute if a.name in ("pads", "auto_pad")}
    auto_pad = attributes["auto_pad"].s.decode(errors="replace") if "auto_pad" in attributes else "NOTSET"
    check_choice(f"{node.input[1]}: auto_pad", auto_pad, ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    if not auto_pad.startswith("SAME"):
        pads = list(attributes["pads"].ints) if "pads" in attributes and auto_pad != "VALID" else []
        return pads or [0, 0, 0, 0]
    found = []
    for size, kernel, stride, dilation in zip(given[2:], weight[2:], strides, dilations, strict=True):
        reached = (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1
        total = max(reached - size, 0)
        found.append((total // 2, total - total // 2))
    return [zeros for axis in found for zeros in axis]


def _elements(shapes: Shapes, tensor: str) -> int:
    return math.prod(shapes[tensor]) if tensor in shapes else 0
