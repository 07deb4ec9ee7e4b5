"""The shape of every tensor of a model, once its free sizes are given."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from prunecast.errors import BadInput

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
    """Which of `batch` and `tokens` an input of the model leaves free."""
    constants = {constant.name for constant in model.graph.initializer}
    inputs = (value for value in model.graph.input if value.name not in constants)
    return frozenset(kind for value in inputs for kind in _free_kinds(value) if kind)


def _free_kinds(value: "onnx.ValueInfoProto") -> list[str]:
    """For each size of an input `batch` or `tokens`, or empty where it is fixed.

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
