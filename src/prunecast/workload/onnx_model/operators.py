"""One node of an ONNX graph as an operation, or as nothing where it only renames or reshapes.

Also the shape of every tensor of a model, once its free sizes are given.
"""

import math
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from prunecast.errors import BadInput
from prunecast.patterns.sources.stored_tensor import shape_text
from prunecast.plan.conv_shape import ConvShape
from prunecast.workload.graph import Operation
from prunecast.workload.graph.model_graph import MOST_TOKENS

if TYPE_CHECKING:
    import onnx

Shapes = dict[str, tuple[int, ...]]
"""Tensor -> sizes, for tensors whose sizes are all known."""
MOST_ELEMENTS = 2**40
SMALL_BYTES = 4096
"""Constants up to here may hold sizes; larger ones are left out while shapes are inferred."""


def shapes_of(path: Path, model: "onnx.ModelProto", *, batch: int, tokens: int) -> Shapes:
    """Infer shapes with free sizes set: see `_free_kinds`.

    Raises
    ------
    BadInput : an image of free height or width, or sizes that do not fit together
    """
    import onnx

    _check_constants(path, model)
    sized = onnx.ModelProto()
    sized.CopyFrom(_without_values(model))
    constants = {constant.name for constant in sized.graph.initializer}
    for value in sized.graph.input:
        if value.name not in constants:
            _set_sizes(path, value, batch, tokens)
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
    """Refuse constants that say more elements than they hold: inference would make room for all of them."""
    in_nodes = [entry.t for node in model.graph.node for entry in node.attribute if entry.HasField("t")]
    for constant in (*model.graph.initializer, *in_nodes):
        said, held = math.prod(constant.dims), constant.ByteSize()
        if not constant.external_data and (said > 8 * held or min(constant.dims, default=0) < 0):
            raise BadInput(
                f"{path}: a constant must hold its elements, got {held} bytes for the sizes "
                f"{list(constant.dims)!s:.60}: {constant.name!r:.80}"
            )


def _without_values(model: "onnx.ModelProto") -> "onnx.ModelProto":
    """The model with empty tensors in place of large constants, of which only the sizes matter here."""
    import onnx

    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    light.functions.extend(model.functions)
    graph = model.graph
    light.graph.CopyFrom(
        onnx.GraphProto(
            name=graph.name,
            node=graph.node,
            input=graph.input,
            output=graph.output,
            value_info=graph.value_info,
        )
    )
    for constant in graph.initializer:
        if constant.ByteSize() <= SMALL_BYTES:
            light.graph.initializer.append(constant)
        else:
            light.graph.initializer.append(
                onnx.TensorProto(name=constant.name, data_type=constant.data_type, dims=constant.dims)
            )
    return light


def free_sizes(model: "onnx.ModelProto") -> frozenset[str]:
    """Those of `batch` and `tokens` that an input of the model leaves free."""
    constants = {constant.name for constant in model.graph.initializer}
    inputs = (value for value in model.graph.input if value.name not in constants)
    return frozenset(kind for value in inputs for kind in _free_kinds(value) if kind)


def _free_kinds(value: "onnx.ValueInfoProto") -> list[str]:
    """`batch` or `tokens` for each size of an input, empty where the size is fixed.

    The first free size is the batch; of an input (rows, features) of fixed features the rows are tokens.
    """
    sizes = value.type.tensor_type.shape.dim
    is_free = [not (size.HasField("dim_value") and size.dim_value > 0) for size in sizes]
    rows_are_tokens = len(is_free) == 2 and is_free[0] and not is_free[1]
    return [
        "" if not free else "batch" if place == 0 and not rows_are_tokens else "tokens"
        for place, free in enumerate(is_free)
    ]


def _set_sizes(path: Path, value: "onnx.ValueInfoProto", batch: int, tokens: int) -> None:
    sizes = value.type.tensor_type.shape.dim
    for place, (size, kind) in enumerate(zip(sizes, _free_kinds(value), strict=True)):
        if not kind:
            continue
        if place > 0 and len(sizes) == 4:
            raise BadInput(f"{path}: input {value.name!r} has no fixed height and width: export it with them")
        size.ClearField("dim_param")
        size.dim_value = batch if kind == "batch" else tokens


def _sizes(value: "onnx.ValueInfoProto") -> tuple[int, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    if not all(size.HasField("dim_value") for size in tensor.shape.dim):
        return None
    return tuple(int(size.dim_value) for size in tensor.shape.dim)


if TYPE_CHECKING:
    import onnx


@cache
def kinds() -> dict[str, str]:
    """Operator type -> `view`, `copy`, or a kind of `Operation`; kinds.toml has the table."""
    text = resources.files("prunecast.workload.onnx_model").joinpath("kinds.toml").read_text(encoding="utf-8")
    return {name: kind for kind, names in tomllib.loads(text).items() for name in names}


def operation_of(name: str, node: "onnx.NodeProto", read: list[str], shapes: Shapes) -> Operation:
    """The operation of a node that multiplies with no weight.

    Parameters
    ----------
    name : of the operation
    read : tensors that the node reads, constants left out
    shapes : of all tensors whose shape is known
    """
    written = sum(_elements(shapes, output) for output in node.output)
    taken = sum(_elements(shapes, tensor) for tensor in read)
    if node.op_type == "MatMul" and len(node.input) == 2:
        return _mixing(name, node, shapes, taken, written)
    kind = kinds().get(node.op_type, "unknown")
    if node.op_type in ("Gather", "Slice", "Split"):
        taken = written  # they read what they write, not the whole tensor
    return Operation(
        name=name, kind="elementwise" if kind == "copy" else kind, elements_in=taken, elements_out=written
    )


def _mixing(name: str, node: "onnx.NodeProto", shapes: Shapes, taken: int, written: int) -> Operation:
    """A product of two activations, as in attention."""
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
    """The product of a node with a weight.

    Parameters
    ----------
    weight : shape of the weight in the file

    Raises
    ------
    BadInput : the shape of what it writes or reads is not known
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
    return Operation(
        name=name, kind="gemm", m=m, k=k, n=n, elements_in=math.prod(given), elements_out=math.prod(out)
    )


def _convolution(
    name: str, node: "onnx.NodeProto", weight: tuple[int, ...], given: tuple[int, ...], out: tuple[int, ...]
) -> Operation:
    numbers = {attribute.name: list(attribute.ints) or attribute.i for attribute in node.attribute}
    read, written = math.prod(given), math.prod(out)
    if numbers.get("group", 1) != 1 or len(given) != 4:
        return Operation(name=name, kind="unknown", elements_in=read, elements_out=written)
    m = weight[0]
    n = _tokens(name, written, m)
    return Operation(
        name=name,
        kind="gemm",
        m=m,
        k=math.prod(weight[1:]),
        n=n,
        convolution=_square(numbers, weight, given),
        elements_in=read,
        elements_out=written,
    )


def _tokens(name: str, written: int, m: int) -> int:
    """Columns of C (M, N), of which so many elements are written."""
    n = written // m
    if written % m or not 1 <= n <= MOST_TOKENS:
        raise BadInput(f"{name}: wanted 1 to {MOST_TOKENS} tokens, got {written} elements of {m} features")
    return n


def _square(
    numbers: dict[str, list[int] | int], weight: tuple[int, ...], given: tuple[int, ...]
) -> ConvShape | None:
    """The convolution, where both axes are alike and nothing is dilated."""
    stride, padding, dilation = (
        _only(numbers.get(name) or [default])
        for name, default in (("strides", 1), ("pads", 0), ("dilations", 1))
    )
    if stride is None or padding is None or dilation != 1 or weight[2] != weight[3]:
        return None
    return ConvShape(
        channels=weight[1],
        height=given[2],
        width=given[3],
        kernel_h=weight[2],
        kernel_w=weight[3],
        stride=stride,
        padding=padding,
        batch=given[0],
    )


def _only(values: list[int] | int) -> int | None:
    """The number that all of them are."""
    return values[0] if isinstance(values, list) and len(set(values)) == 1 else None


def _elements(shapes: Shapes, tensor: str) -> int:
    return math.prod(shapes[tensor]) if tensor in shapes else 0
