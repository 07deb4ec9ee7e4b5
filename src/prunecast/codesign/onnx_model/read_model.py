"""`read_onnx_model`: a file becomes the graph of its operators and the names of its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prunecast.codesign.graph import ModelGraph, Operation
from prunecast.codesign.onnx_model.fusion import fuse
from prunecast.codesign.onnx_model.operators import kinds, operation_of, product_of
from prunecast.codesign.onnx_model.sizes import Shapes, free_sizes, shapes_of
from prunecast.errors import BadInput
from prunecast.patterns.sources.onnx_file import PRODUCTS, WeightUse, open_onnx, text_only, weight_uses

if TYPE_CHECKING:
    import onnx

__all__ = ["OnnxModel", "read_onnx_model"]

FEW = 64
"""A tensor of at most so many elements holds sizes or a scalar: computing it costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OnnxModel:
    """A model out of a file.

    Parameters
    ----------
    graph : its operators; products are called like their weights
    unknown : operator type -> how many of them are costed as the memory that they move
    takes : which of `batch` and `tokens` set a size; the file fixes what the others would say
    """

    graph: ModelGraph
    unknown: Mapping[str, int]
    takes: frozenset[str]


def read_onnx_model(path: str | Path, *, batch: int, tokens: int) -> OnnxModel:
    """Read the graph of a file; its weights are left where they are.

    Parameters
    ----------
    batch : first size of every input that leaves it free
    tokens : other free sizes, and the rows of inputs (rows, features)

    Raises
    ------
    BadInput : no ONNX file, sizes that do not fit together or cannot be told, or no product with a weight
    """
    file = Path(path)
    if batch < 1 or tokens < 1:
        raise BadInput(f"batch and tokens must be at least 1, got {batch} and {tokens}")
    with text_only(file):
        return _read(file, batch, tokens)


def _read(file: Path, batch: int, tokens: int) -> OnnxModel:
    model = open_onnx(file)
    builder = _Builder(file, model, shapes_of(file, model, batch=batch, tokens=tokens))
    for value in model.graph.input:
        builder.add_input(value.name)
    for node in model.graph.node:
        builder.add(node)
    if not builder.model.products:
        raise BadInput(f"{file}: wanted a MatMul, Gemm or Conv with a constant weight, got none")
    return OnnxModel(graph=fuse(builder.model), unknown=builder.unknown, takes=free_sizes(model))


class _Builder:
    """Walks the nodes in their order; knows which operation wrote a tensor."""

    def __init__(self, path: Path, model: "onnx.ModelProto", shapes: Shapes) -> None:
        self.path, self.shapes = path, shapes
        self.model = ModelGraph(name=path.stem)
        self.unknown: dict[str, int] = {}
        self._writer: dict[str, str] = {}
        self._uses = {use.constant: use for use in weight_uses(model)}
        self._constants = {constant.name: tuple(constant.dims) for constant in model.graph.initializer}

    def add_input(self, name: str) -> None:
        if name not in self._constants:
            elements = self._elements(name)
            operation = Operation(name=self._free(name), kind="input", elements_out=elements)
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
            name = self._free(use.name)
            weight = self._constants.get(use.constant) or self.shapes.get(use.constant, ())
            operation = product_of(name, node, weight, self.shapes, is_transposed=use.is_transposed)
        else:
            operation = operation_of(self._free(node.name or node.output[0]), node, read, self.shapes)
        if operation.kind == "unknown":
            self.unknown[node.op_type] = self.unknown.get(node.op_type, 0) + 1
        return operation

    def _use(self, node: "onnx.NodeProto") -> WeightUse | None:
        """The weight that a node multiplies with. Of products that share one, the first is called like it."""
        if node.op_type not in PRODUCTS:
            return None
        return next((self._uses[tensor] for tensor in node.input[:2] if tensor in self._uses), None)

    def _free(self, name: str) -> str:
        """The name, or one with a number behind it where it is taken."""
        if name not in self.model.graph:
            return name
        return next(
            f"{name}#{i}" for i in range(2, len(self.model) + 3) if f"{name}#{i}" not in self.model.graph
        )

    def _elements(self, tensor: str) -> int:
        elements = 1
        for size in self.shapes.get(tensor, (0,)):
            elements *= size
        return elements
