"""`read_onnx_model`: the model graph of an ONNX file. Products have the names of their weights.

Element-wise work is fused as in inference engines: biases and activations with the product before them, and a
residual add with its norm. The standard models of `graph.workloads` have the same form. A file has one node
for each of these operators; without fusion, memory traffic would be overestimated.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prunecast.errors import BadInput
from prunecast.patterns.sources.onnx_file import PRODUCTS, WeightUse, open_onnx, text_only, weight_uses
from prunecast.workload.graph import ModelGraph, Operation
from prunecast.workload.graph.pointwise import fuse_pointwise
from prunecast.workload.onnx_model.operators import (
    ImageSizes,
    Shapes,
    free_sizes,
    groups_of,
    is_image,
    kinds,
    model_inputs,
    operation_of,
    product_of,
    shapes_of,
)

if TYPE_CHECKING:
    import onnx

FEW = 64
"""Most elements of a tensor that is assumed to hold sizes or a scalar; computing it costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OnnxModel:
    """A model from an ONNX file.

    Parameters
    ----------
    graph : model graph; products have the names of their weights
    unknown : operator type -> number of nodes whose time is only that of their memory traffic
    takes : kinds of sizes (`batch`, `tokens`, `image`) that the file leaves free
    untimed : weight of a product that is not timed -> the reason
    """

    graph: ModelGraph
    unknown: Mapping[str, int]
    takes: frozenset[str]
    untimed: Mapping[str, str]


def read_onnx_model(
    path: str | Path,
    *,
    batch: int,
    tokens: int,
    images: Callable[[Sequence[str]], ImageSizes] | None = None,
) -> OnnxModel:
    """Read the graph of a file without loading its weights.

    Parameters
    ----------
    batch : value of the first size of an input, where the file leaves it free
    tokens : value of all other free sizes, and of the free rows of inputs (rows, features)
    images : function from the names of inputs (batch, channels, height, width) to new heights and widths of
        some of them, which replace those of the file

    Raises
    ------
    BadInput : not an ONNX file, sizes that do not fit together or are unknown, or no product with a weight
    """
    file = Path(path)
    if batch < 1 or tokens < 1:
        raise BadInput(f"batch and tokens must be at least 1, got {batch} and {tokens}")
    with text_only(file):
        return _read(file, batch, tokens, images)


def _read(
    file: Path, batch: int, tokens: int, images: Callable[[Sequence[str]], ImageSizes] | None
) -> OnnxModel:
    model = open_onnx(file)
    sizes = images([value.name for value in model_inputs(model) if is_image(value)]) if images else None
    builder = _Builder(file, model, shapes_of(file, model, batch=batch, tokens=tokens, images=sizes))
    for value in model.graph.input:
        builder.add_input(value.name)
    for node in model.graph.node:
        if node.op_type in ("MatMul", "Gemm", "Conv") and (len(node.input) < 2 or not node.output):
            raise BadInput(
                f"{file}: {node.op_type} needs two inputs and an output, got {len(node.input)} and "
                f"{len(node.output)}: {node.name!r:.80}"
            )
        try:
            builder.add(node)
        except BadInput as error:
            raise BadInput(f"{file}: {error}") from None
    if not builder.model.products:
        untimed = "".join(f"; {name}: {reason}" for name, reason in [*builder.untimed.items()][:3])
        raise BadInput(
            f"{file}: wanted a MatMul, Gemm or Conv with a constant weight, "
            f"got none{' that is timed' * bool(untimed)}{untimed}"
        )
    return OnnxModel(
        graph=fuse_pointwise(builder.model),
        unknown=builder.unknown,
        takes=free_sizes(model),
        untimed=builder.untimed,
    )


class _Builder:
    """Builder that adds the nodes to a graph, in order, and records which operation wrote each tensor."""

    def __init__(self, path: Path, model: "onnx.ModelProto", shapes: Shapes) -> None:
        self.path, self.shapes = path, shapes
        self.model = ModelGraph(name=path.stem)
        self.unknown: dict[str, int] = {}
        self.untimed: dict[str, str] = {}
        self._writer: dict[str, str] = {}
        self._uses = {use.constant: use for use in weight_uses(model)}
        self._constants = {constant.name: tuple(constant.dims) for constant in model.graph.initializer}

    def add_input(self, name: str) -> None:
        if name not in self._constants:
            elements = self._elements(name)
            operation = Operation(name=self.model.free_name(name), kind="input", elements_out=elements)
            self._writer[name] = self.model.add(operation)

    def add(self, node: "onnx.NodeProto") -> None:
        if not node.output:
            return
        read = [tensor for tensor in node.input if tensor in self._writer]
        if self._costs_nothing(node, read):
            if read:
                self._writer.update(dict.fromkeys(node.output, self._writer[read[0]]))
            return
        operation = self._operation(node, read)
        after = list(dict.fromkeys(self._writer[tensor] for tensor in read))
        self._writer.update(dict.fromkeys(node.output, self.model.add(operation, after)))

    def _costs_nothing(self, node: "onnx.NodeProto", read: list[str]) -> bool:
        if self._use(node) is not None:
            return False
        small = all(0 < self._elements(output) <= FEW for output in node.output if output)
        return kinds().get(node.op_type) == "view" or small or not read

    def _operation(self, node: "onnx.NodeProto", read: list[str]) -> Operation:
        use = self._use(node)
        if use is not None:
            name = self.model.free_name(use.name)
            weight = self._constants.get(use.constant) or self.shapes.get(use.constant, ())
            operation = product_of(name, node, weight, self.shapes, is_transposed=use.is_transposed)
            if groups_of(node) != 1:
                self.untimed[name] = f"groups are not timed: a convolution of {groups_of(node)} groups"
        else:
            operation = operation_of(
                self.model.free_name(node.name or node.output[0]), node, read, self.shapes
            )
        if operation.kind == "unknown":
            self.unknown[node.op_type] = self.unknown.get(node.op_type, 0) + 1
        return operation

    def _use(self, node: "onnx.NodeProto") -> WeightUse | None:
        """Return the weight that a node multiplies with, or None.

        If several products share a weight, the name of the weight is that of the first product.
        """
        if node.op_type not in PRODUCTS:
            return None
        return next((self._uses[tensor] for tensor in node.input[:2] if tensor in self._uses), None)

    def _elements(self, tensor: str) -> int:
        return math.prod(self.shapes.get(tensor, (0,)))
