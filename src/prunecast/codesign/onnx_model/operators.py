"""One node of an ONNX graph as an operation, or as nothing where it only renames or reshapes."""

import math
import tomllib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from prunecast.codesign.graph import Convolution, Operation
from prunecast.codesign.graph.model_graph import MOST_TOKENS
from prunecast.codesign.onnx_model.sizes import Shapes
from prunecast.errors import BadInput
from prunecast.patterns.sources.stored_tensor import shape_text

if TYPE_CHECKING:
    import onnx


@cache
def kinds() -> dict[str, str]:
    """Operator type -> `view`, `copy`, or a kind of `Operation`; kinds.toml has the table."""
    text = resources.files("prunecast.codesign.onnx_model").joinpath("kinds.toml").read_text(encoding="utf-8")
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
) -> Convolution | None:
    """The convolution, where both axes are alike and nothing is dilated."""
    stride, padding, dilation = (
        _only(numbers.get(name) or [default])
        for name, default in (("strides", 1), ("pads", 0), ("dilations", 1))
    )
    if stride is None or padding is None or dilation != 1 or weight[2] != weight[3]:
        return None
    return Convolution(weight[1], given[2], given[3], weight[2], stride, padding)


def _only(values: list[int] | int) -> int | None:
    """The number that all of them are."""
    return values[0] if isinstance(values, list) and len(set(values)) == 1 else None


def _elements(shapes: Shapes, tensor: str) -> int:
    return math.prod(shapes[tensor]) if tensor in shapes else 0
