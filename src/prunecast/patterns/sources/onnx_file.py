"""Read `.onnx`: the weights of MatMul, Gemm and Conv as matrices (M, K) or filters.

The reader opens only the file and, for external data, files in the same folder. It executes nothing.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.files import check_regular
from prunecast.patterns.sources.stored_tensor import StoredTensor, failures_named

if TYPE_CHECKING:
    import onnx

PRODUCTS = ("MatMul", "Gemm", "Conv")
"""Operators that may multiply with a weight."""
LARGEST_FILE = 2**31
"""Bytes that the format allows in one file; larger models use external data."""
MADE_UP = "onnx::"
"""Prefix that exporters give to weights whose original name is lost."""


class WeightUse(NamedTuple):
    """A constant that is the weight of a MatMul, Gemm or Conv."""

    name: str
    """Name of the tensor, or of the node if the exporter invented the tensor's name."""
    constant: str
    """Name of the tensor in the file."""
    is_transposed: bool
    """True if the file stores (K, M)."""


def read_onnx(path: Path) -> dict[str, StoredTensor]:
    """Return the constants of a model; weights of products are named `WeightUse.name` and have shape (M, K).

    Raises
    ------
    BadInput : not an ONNX file, or cut off; external data outside of its folder; or onnx is not installed
    """
    model = open_onnx(path)
    uses = {use.constant: use for use in weight_uses(model)}
    found: dict[str, StoredTensor] = {}
    for constant in _constants(model):
        use = uses.get(constant.name)
        name = constant.name if use is None else use.name
        if name in found:
            raise BadInput(f"{path}: two constants are called {name!r:.80}")
        found[name] = _stored(path, name, constant, is_transposed=use is not None and use.is_transposed)
    return found


def open_onnx(path: Path) -> "onnx.ModelProto":
    """Return the model in a file without reading its external data.

    Raises
    ------
    BadInput : not an ONNX file, or cut off; or onnx is not installed
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError as missing:
        raise BadInput(f"{path}: reading it needs the package onnx: install the extra onnx") from missing
    check_regular(path, "an ONNX file")
    if path.stat().st_size > LARGEST_FILE:
        raise BadInput(f"{path}: wanted at most {LARGEST_FILE} bytes, got {path.stat().st_size}")
    model = onnx.ModelProto()
    with failures_named(path):
        try:
            model.ParseFromString(path.read_bytes())
        except DecodeError as error:
            raise BadInput(f"{path}: not an ONNX file, or cut off") from error
    if not model.graph.node:
        raise BadInput(f"{path}: wanted a model with at least one node, got none")
    with text_only(path):
        if not all(isinstance(name, str) for name in _names(model)):
            raise BadInput(f"{path}: not an ONNX file: names are no text")
    return model


def external_files(path: Path) -> set[Path]:
    """Return the files of external data that a model names.

    Raises BadInput in the same cases as `open_onnx`.
    """
    with text_only(path):
        return {
            path.parent / entry.value
            for tensor in _constants(open_onnx(path))
            for entry in tensor.external_data
            if entry.key == "location"
        }


@contextmanager
def text_only(path: Path) -> Iterator[None]:
    """Raise BadInput if text of the file is not UTF-8, which protobuf reports only on access."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not an ONNX file: names are no text") from error


def _names(model: "onnx.ModelProto") -> Iterator[str | bytes]:
    """Yield all names that the module reads; names that are not UTF-8 are bytes, or raise."""
    graph = model.graph
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    yield from (each.name for each in (*graph.initializer, *graph.input, *graph.output, *graph.value_info))
    yield from (entry.value for tensor in graph.initializer for entry in tensor.external_data)


def weight_uses(model: "onnx.ModelProto") -> list[WeightUse]:
    """Return the weights of MatMul, Gemm and Conv nodes, in the order of the nodes, each constant once."""
    shapes = {constant.name: len(constant.dims) for constant in _constants(model)}
    found: dict[str, WeightUse] = {}
    taken: set[str] = set(shapes)
    for node in model.graph.node:
        use = _use(node, shapes)
        if use is None or use.constant in found:
            continue
        name = use.constant
        if name.startswith(MADE_UP):
            # The exporter lost the name of the weight: use the node's name, unless another weight has it
            own = node.name.strip("/").replace("/", ".")
            name = "" if own in taken else own
        taken.add(name)
        found[use.constant] = use._replace(name=name or use.constant)
    return list(found.values())


def _use(node: "onnx.NodeProto", ranks: dict[str, int]) -> WeightUse | None:
    """Return the weight that a node multiplies with; None if it multiplies no constant matrix or filter."""
    if node.op_type not in PRODUCTS or node.domain not in ("", "ai.onnx") or len(node.input) < 2:
        return None
    left, right = node.input[0], node.input[1]
    turned = {attribute.name: attribute.i != 0 for attribute in node.attribute}
    by_right, by_left = ranks.get(right) == 2, ranks.get(left) == 2
    if node.op_type == "Conv" and ranks.get(right) == 4:
        return WeightUse("", right, is_transposed=False)
    if node.op_type == "MatMul" and by_right != by_left:
        return WeightUse("", right if by_right else left, is_transposed=by_right)
    if node.op_type == "Gemm" and by_right:
        return WeightUse("", right, is_transposed=not turned.get("transB", False))
    if node.op_type == "Gemm" and by_left:
        return WeightUse("", left, is_transposed=turned.get("transA", False))
    return None


def _constants(model: "onnx.ModelProto") -> Iterator["onnx.TensorProto"]:
    """Yield the initializers and the tensors of `Constant` nodes."""
    yield from model.graph.initializer
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output:
            for attribute in node.attribute:
                if attribute.name == "value" and attribute.HasField("t"):
                    attribute.t.name = node.output[0]
                    yield attribute.t


def _stored(path: Path, name: str, tensor: "onnx.TensorProto", *, is_transposed: bool) -> StoredTensor:
    shape = tuple(int(size) for size in tensor.dims)
    if min(shape, default=0) < 0:
        raise BadInput(f"{path}: tensor {name!r}: sizes must not be negative, got {shape}")
    return StoredTensor(
        shape=shape[::-1] if is_transposed else shape,
        dtype=_dtype_name(tensor.data_type),
        load=partial(_load, path, name, tensor, is_transposed=is_transposed),
        note="stored as (K, M)" if is_transposed else None,
    )


def _dtype_name(data_type: int) -> str:
    import onnx

    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(data_type).name)
    except (KeyError, ValueError, TypeError):
        return f"onnx type {data_type}"


def _load(path: Path, name: str, tensor: "onnx.TensorProto", *, is_transposed: bool) -> npt.NDArray[Any]:
    import onnx

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        array = _external(path, name, tensor)
    else:
        array = np.asarray(onnx.numpy_helper.to_array(tensor))
    return array.T if is_transposed else array


def _external(path: Path, name: str, tensor: "onnx.TensorProto") -> npt.NDArray[Any]:
    """Return the values from a file of external data, in the folder of the model."""
    import onnx

    external = {entry.key: entry.value for entry in tensor.external_data}
    file = (path.parent / external.get("location", "")).resolve()
    if not file.is_relative_to(path.parent.resolve()):
        raise BadInput(f"{path}: tensor {name!r}: external data must lie in the model's folder, got {file}")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count, offset = math.prod(tensor.dims), int(external.get("offset", 0))
    length = count * dtype.itemsize
    if int(external.get("length", length)) != length:
        raise BadInput(
            f"{path}: tensor {name!r}: wanted {length} bytes of external data, got {external['length']:.40}"
        )
    if not file.is_file() or offset < 0 or offset + length > file.stat().st_size:
        raise BadInput(f"{path}: tensor {name!r}: cut off: {file} is missing or too short")
    return np.fromfile(file, dtype, count, offset=offset).reshape(tuple(tensor.dims))
