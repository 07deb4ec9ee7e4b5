"""`read_module`: the model graph of a traced torch module for given sizes of its inputs.

Batch norms and activations after a convolution are part of the convolution, as `prunecast.torch.sparsify` and
compilers run them. The standard networks of `graph.image_nets` have the same form.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from prunecast.errors import BadInput
from prunecast.files import packaged_toml
from prunecast.workload.graph.model_graph import (
    ModelGraph,
    Operation,
    convolved,
    linear,
    plain_convolution,
)
from prunecast.workload.graph.pointwise import fuse_pointwise


class ModuleGraph(NamedTuple):
    """Model graph of a torch module for one size of its inputs, and the module of each product."""

    graph: ModelGraph
    module_of: dict[str, str]
    """Product -> name of its module; a module that is called several times has several products."""


class ModuleTracer(fx.Tracer):  # type: ignore[misc]
    """Tracer (torch.fx) for which each module of torch or of this package is one node."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        """Return True if a module becomes one node and is not traced into."""
        return module.__module__.startswith("prunecast.") or bool(super().is_leaf_module(module, name))


def read_module(
    traced: fx.Graph, model: nn.Module, inputs: Sequence[torch.Tensor | Sequence[int]]
) -> ModuleGraph:
    """Return the model graph of a traced model.

    Parameters
    ----------
    inputs : tensors, or shapes of tensors with the dtype and device of the first parameter of the model

    Raises
    ------
    BadInput : the model does not run on these inputs
    """
    reader = _TracedReader(
        fx.GraphModule(model, traced), ModelGraph(name="network"), dict(model.named_modules())
    )
    first = next(model.parameters(), torch.zeros(0))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        fakes = [
            mode.from_tensor(each)
            if isinstance(each, torch.Tensor)
            else torch.empty(tuple(each), dtype=first.dtype, device=first.device)
            for each in inputs
        ]
        try:
            reader.run(*fakes)
        except BadInput:
            raise
        except Exception as error:  # anything that a model may do
            said = [*str(error).splitlines(), ""][0]
            sizes = ", ".join(str(tuple(each.shape)) for each in fakes)
            raise BadInput(f"the network does not run on inputs of {sizes}: {said:.120}") from None
    return ModuleGraph(fuse_pointwise(reader.model, into_products=False), reader.module_of)


def read_network(
    model: Any, *, batch: int, images: Callable[[Sequence[str]], Mapping[str, tuple[int, int]]]
) -> ModelGraph:
    """Return the model graph of a module that reads images; products have the names of their weights.

    Parameters
    ----------
    batch : number of images
    images : function from the names of inputs to the heights and widths that the user gave

    Raises
    ------
    BadInput : torch.fx cannot trace the module, an input is not an image, or its size is missing
    """
    try:
        traced = ModuleTracer().trace(model)
    except Exception as error:  # control flow that depends on data; anything that a model may do
        raise BadInput(
            f"torch.fx cannot trace the network: {[*str(error).splitlines(), ''][0]:.120}"
        ) from None
    channels = channels_of_inputs(traced, model)
    sizes = images(list(channels))
    missing = [name for name in channels if name not in sizes]
    if missing or not channels:
        raise BadInput(
            f"wanted the size of images (--input HxW) for inputs of convolutions, got none: {missing}"
        )
    read = read_module(traced, model, [(batch, channels[name], *sizes[name]) for name in channels])
    return named_by_weights(read)


def channels_of_inputs(traced: fx.Graph, model: nn.Module) -> dict[str, int]:
    """Return input name -> channels of its images; empty if an input has a reader that is no convolution."""
    modules = dict(model.named_modules())
    found = {}
    for node in traced.nodes:
        if node.op == "placeholder":
            readers = [modules.get(f"{user.target}") for user in node.users]
            if not readers or not all(is_filters(each) for each in readers):
                return {}
            found[node.name] = int(readers[0].in_channels)  # type: ignore[union-attr]
    return found


def named_by_weights(read: ModuleGraph) -> ModelGraph:
    """Return the graph with products renamed to their weights, such as `conv1.weight`."""

    def named(o: Operation) -> list[Operation]:
        stem, mark, count = o.name.partition("#")
        return [replace(o, name=f"{stem}.weight{mark}{count}") if o.kind == "gemm" else o]

    return read.graph.divided(named)


@cache
def _kinds() -> Mapping[str, frozenset[str]]:
    return {kind: frozenset(names) for kind, names in packaged_toml(__package__, "kinds.toml").items()}


class _TracedReader(fx.Interpreter):  # type: ignore[misc]
    """Interpreter that runs a traced graph on fake tensors and adds operations for nodes that move data."""

    def __init__(self, traced: fx.GraphModule, model: ModelGraph, modules: Mapping[str, nn.Module]) -> None:
        super().__init__(traced)
        self.model, self._modules = model, modules
        self.module_of: dict[str, str] = {}
        self._writer: dict[fx.Node, str] = {}

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the output of a module; convolutions and linear layers return an empty tensor of its shape.

        Such modules are not run, because sparse convolutions read images in another layout (planes).
        """
        module: Any = self._modules[target]
        if is_filters(module):
            n, channels, *sides = args[0].shape
            if channels != module.in_channels or len(sides) != 2:
                raise ValueError(f"{target} reads images of {module.in_channels} channels")
            after = (
                (side + 2 * pad - reach * (size - 1) - 1) // step + 1
                for side, size, step, pad, reach in zip(sides, *_numbers(module), strict=True)
            )
            return args[0].new_empty((n, module.out_channels, *after))
        if is_matrix(module):
            if args[0].shape[-1] != module.in_features:
                raise ValueError(f"{target} reads {module.in_features} features, got {args[0].shape[-1]}")
            return args[0].new_empty((*args[0].shape[:-1], module.out_features))
        return super().call_module(target, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        """Run a node on fake tensors and add its operation to the graph."""
        value = super().run_node(n)
        if n.op not in ("output", "get_attr") and _tensors(value):
            self._add(n, value)
        return value

    def _add(self, node: fx.Node, value: Any) -> None:
        """Add the operation of a node after the operations whose results it reads.

        A node that moves nothing, such as a view, gets no operation: its readers read the one before it.
        """
        after = list(
            dict.fromkeys(self._writer[each] for each in node.all_input_nodes if each in self._writer)
        )
        if node.op == "placeholder":
            operation = Operation(name=node.name, kind="input", elements_out=_elements(value))
        elif node.op == "call_module" and (own := self._product(node, value)) is not None:
            operation = own
        elif after and self._costs_nothing(node, value):
            self._writer[node] = after[0]
            return
        else:
            operation = self._other(node, value)
        self._writer[node] = self.model.add(operation, after)

    def _given(self, node: fx.Node) -> list[torch.Tensor]:
        """Return the tensors that a node reads."""
        return [each for source in node.all_input_nodes for each in _tensors(self.env.get(source))]

    def _product(self, node: fx.Node, value: torch.Tensor) -> Operation | None:
        """Return the operation of a convolution or a linear layer; None for other modules.

        Grouped convolutions are no products of this package: cuDNN runs them, on images (layout `tokens`).
        """
        module: Any = self._modules[node.target]
        if not (is_filters(module) or is_matrix(module)):
            return None
        name = self.model.free_name(f"{node.target}")
        x = self._given(node)[0]
        self.module_of[name] = f"{node.target}"
        if is_matrix(module):
            return linear(name, module.out_features, module.in_features, x.numel() // module.in_features)
        if getattr(module, "groups", 1) != 1:
            del self.module_of[name]
            return Operation(
                name=name,
                kind="depthwise",
                flops=2.0 * value.numel() * module.weight[0].numel(),
                elements_in=x.numel(),
                elements_out=value.numel(),
                layout="tokens",
            )
        sizes = _numbers(module)
        conv = plain_convolution(x.shape, *sizes)
        if conv is None or getattr(module, "padding_mode", "zeros") != "zeros":
            k = module.in_channels * math.prod(sizes[0])
            return linear(name, module.out_channels, k, value.numel() // module.out_channels)
        return convolved(name, module.out_channels, conv)

    def _costs_nothing(self, node: fx.Node, value: Any) -> bool:
        """Return True for views, and for norms and activations that run in the epilogue of a convolution."""
        name, kinds = self._name(node), _kinds()
        source = node.all_input_nodes[0]
        if name in kinds["view"]:
            return True
        if name == "adaptiveavgpool2d" and value.shape == self._given(node)[0].shape:
            return True
        if len(source.users) > 1 or len(node.all_input_nodes) > 1 or not self._follows_filters(source):
            return False
        is_fused = name in kinds["fused"] and self.model[self._writer[source]].convolution is not None
        return name == "batchnorm2d" or is_fused

    def _follows_filters(self, node: fx.Node) -> bool:
        """Return True if a node is a convolution, or a batch norm or identity after one."""
        while self._name(node) in ("batchnorm2d", "identity") and len(node.users) == 1:
            node = node.all_input_nodes[0]
        return bool(node.op == "call_module") and is_filters(self._modules[node.target])

    def _other(self, node: fx.Node, value: Any) -> Operation:
        """Return the operation of a node that is not a product.

        `torch.network` runs some operations on planes, the layout of sparse convolutions. All others run on
        images (layout `tokens`), so that a transpose is needed between them and a sparse convolution: norms,
        unknown operations, pools to one pixel, resampling that interpolates, elementwise operations on
        tensors of different shapes, and all operations on data that are no images.
        """
        name, given, kinds = self._name(node), self._given(node), _kinds()
        kind = next((kind for kind in ("elementwise", "normalise", "pool") if name in kinds[kind]), "unknown")
        is_small = kind == "pool" and value.dim() == 4 and value.shape[2:].numel() == 1
        is_mixed = kind == "elementwise" and len({tuple(each.shape) for each in given}) > 1 and name != "cat"
        in_images = kind in ("normalise", "unknown") or is_small or is_mixed or value.dim() != 4
        if name in ("interpolate", "upsample") and not self._is_nearest(node):
            in_images = True
        if name in kinds["attention"]:
            kind = "attention"
        source = node.all_input_nodes[0]
        if name in kinds["fused"] and source.op == "call_module" and is_matrix(self._modules[source.target]):
            kind = "activation"
        return Operation(
            name=self.model.free_name(node.name),
            kind=kind,
            elements_in=sum(each.numel() for each in given),
            elements_out=_elements(value),
            layout="tokens" if in_images else None,
        )

    def _is_nearest(self, node: fx.Node) -> bool:
        module: Any = self._modules.get(f"{node.target}") if node.op == "call_module" else None
        return bool((node.kwargs.get("mode", "nearest") if module is None else module.mode) == "nearest")

    def _name(self, node: fx.Node) -> str:
        """Return the name of a node's module, function or method, spelled as in kinds.toml."""
        target: Any = node.target
        if node.op == "call_module":
            target = type(self._modules[target]).__name__
        elif node.op == "call_function":
            target = getattr(target, "__name__", f"{target}")
        return f"{target}".lower().replace("_", "")


def is_filters(module: Any) -> bool:
    """Return True if a module is a two-dimensional convolution, dense or sparse."""
    return bool(type(module) is nn.Conv2d) or type(module).__name__ == "SparseConv2d"


def is_matrix(module: Any) -> bool:
    """Return True if a module is a linear layer, dense or sparse."""
    return isinstance(module, nn.Linear) or type(module).__name__ == "SparseLinear"


def _numbers(module: Any) -> tuple[tuple[int, ...], ...]:
    """Return size, stride, padding and dilation of filters, each along both axes."""
    if not isinstance(module, nn.Conv2d):
        return tuple((number, number) for number in (module.size, module.stride, module.size // 2, 1))
    padding = module.padding
    if padding == "same":
        padding = tuple(
            d * (size - 1) // 2 for d, size in zip(module.dilation, module.kernel_size, strict=True)
        )
    padding = (0, 0) if padding == "valid" else padding
    return module.kernel_size, module.stride, padding, module.dilation


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in the result of a node: itself, or the entries of a list or tuple."""
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [each for each in value if isinstance(each, torch.Tensor)] if isinstance(value, list | tuple) else []
    )


def _elements(value: Any) -> int:
    return sum(each.numel() for each in _tensors(value))
