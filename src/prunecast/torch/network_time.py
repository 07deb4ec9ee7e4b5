"""Predict the time of a whole network, dense and with sparse layers, and choose the layers that become
sparse.

Launches and the time of a pass are predicted as by `predict --runtime torch`: `workload.torch_model` reads
the traced network, and `workload.graph` adds the times. The dense network is predicted with cuDNN under
torch.compile.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import nn

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import plan_dense
from prunecast.patterns import TileMap
from prunecast.torch.conv import MOST_SIZES, SparseConv2d
from prunecast.torch.layer_table import dtype_name
from prunecast.torch.network import Traced
from prunecast.workload.candidates import tile_kernels
from prunecast.workload.engines import Engine
from prunecast.workload.graph import model_time
from prunecast.workload.graph.model_graph import Operation
from prunecast.workload.graph.runtimes import rewritten
from prunecast.workload.layer_launches import plan_in_planes, seconds_of, sequences_of
from prunecast.workload.torch_model.read_module import ModuleGraph, channels_of_inputs, read_module

LEAST_GAIN = 0.05
"""Share of the dense time that a network with sparse layers must save. Kind: choice, about half of the error
of predicted speedups (four networks, H200, 2026-11-28)."""
LEAST_SAVED = 0.01
"""Share of the time of a pass that each step of the search in `NetworkTime.best` must save. Kind: choice."""
USUAL_SIDE = 224
"""Height and width, in pixels, that are assumed for images of unknown size. Kind: choice, that of most
networks of images.
"""
USUAL_IMAGES = 64
"""Largest number of images that is assumed for a pass of unknown size. Kind: choice."""

SecondsOf = Callable[[Operation], float]


class NetworkTime:
    """Predicted seconds of a pass for any set of sparse layers.

    Parameters
    ----------
    network : the network, read for one size of its inputs
    sparse : name of each layer that can be sparse -> function that returns the predicted seconds of one of
        its products with sparse weights
    gpu, dtype : the GPU, and the dtype of weights and images
    """

    def __init__(
        self, network: ModuleGraph, sparse: Mapping[str, SecondsOf], gpu: GpuSpec, dtype: str
    ) -> None:
        self._graph, self._module_of = rewritten(network.graph, "torch", by_matrix=True), network.module_of
        self._engine, self._dtype = Engine(name="model", gpu=gpu), dtype
        products = self._graph.products
        self._dense = {name: self._dense_seconds(o) for name, o in products.items()}
        self._sparse = {
            name: sparse[module](o)
            for name, o in products.items()
            if (module := self._module_of.get(name, "")) in sparse
        }
        self._known: dict[frozenset[str], float] = {}

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers that can be sparse, in the order of the network."""
        return tuple(dict.fromkeys(self._module_of[name] for name in self._sparse))

    def seconds(self, sparse: Iterable[str] = ()) -> float:
        """Return the predicted seconds of a pass in which the layers named in `sparse` are sparse."""
        names = frozenset(sparse)
        if names not in self._known:
            own = frozenset(name for name in self._sparse if self._module_of[name] in names)
            times = {**self._dense, **{name: self._sparse[name] for name in own}}
            time = model_time(self._graph, self._engine.gpu, times, sparse=own, dtype=self._dtype)
            self._known[names] = time.seconds
        return self._known[names]

    @cached_property
    def best(self) -> frozenset[str]:
        """Layers that should be sparse; none if the network would save less than `LEAST_GAIN`.

        The search begins with all layers sparse. Each step makes one layer dense, or all layers before or
        after one layer, or makes one layer sparse again. It ends when no step saves `LEAST_SAVED`. Steps of
        several layers are needed since a single dense layer between sparse ones can cost more in copies of
        images than it saves.
        """
        best = frozenset(self.layers)
        while best and self.seconds(near := min(self._near(best), key=self.seconds)) <= (
            1.0 - LEAST_SAVED
        ) * self.seconds(best):
            best = near
        return best if self.seconds(best) <= (1.0 - LEAST_GAIN) * self.seconds() else frozenset()

    def _near(self, sparse: frozenset[str]) -> list[frozenset[str]]:
        """Return the sets of sparse layers that one step of the search can reach from `sparse`."""
        order = [name for name in self.layers if name in sparse]
        return [
            *(sparse ^ {name} for name in self.layers),
            *(frozenset(order[place:]) for place in range(2, len(order) + 1)),
            *(frozenset(order[:place]) for place in range(1, len(order) - 1)),
        ]

    def _dense_seconds(self, o: Operation) -> float:
        is_padded = o.convolution is not None  # rows of linear layers are as long as they are, aligned or not
        plan = plan_dense(o.m, o.k, o.n, self._dtype, self._engine.gpu, is_padded=is_padded)
        sequences = sequences_of((plan,), o.convolution, "best", self._engine)
        return seconds_of(sequences, self._engine.estimated_seconds)


def planned_seconds(tiles: TileMap, gpu: GpuSpec, dtype: str, o: Operation) -> float:
    """Return the predicted seconds of the product `o` with weights in these tiles."""
    engine = Engine(name="model", gpu=gpu)
    if o.convolution is not None:
        return engine.estimate(plan_in_planes("stspmm", tiles, o.convolution, dtype, gpu)).seconds
    plans = (fastest_plan(kernel, tiles, o.n, dtype, gpu) for kernel in tile_kernels(o.n))
    return min(engine.estimate(plan).seconds for plan in plans)


class Verdict(NamedTuple):
    """Layers of a network that should stay dense, according to the prediction for one size of its inputs."""

    dense: frozenset[str]
    whole: bool
    """Whether no layer should be sparse."""
    line: str
    """Predicted times, as one line of text."""


class Example(NamedTuple):
    """A traced network with the sizes of its operations for example inputs."""

    network: ModuleGraph
    sizes: str
    """The sizes of the inputs, as text."""
    is_given: bool
    """Whether the user gave the example inputs; otherwise the size of images is assumed."""

    @property
    def tokens(self) -> int:
        """Largest number of tokens that one of its linear layers reads. Pixels of all images count as
        tokens.
        """
        products = self.network.graph.products.values()
        return max((o.n for o in products if o.convolution is None), default=1)


def read_example(
    model: nn.Module, network: Traced, example: Any = None, *, images: int = USUAL_IMAGES
) -> Example | None:
    """Compute the sizes of all operations of a traced network for example inputs.

    Return None if the network is not traced, or if no example is given and the network does not accept the
    assumed images.

    Parameters
    ----------
    example : inputs of the model: a tensor, the shape of one, or a sequence of either; None for images of 224
        x 224 pixels
    images : number of images of a pass if no example is given

    Raises
    ------
    BadInput : the model does not run on the given example
    """
    inputs = _inputs_of(model, network, example, images)
    if network.graph is None or not inputs:
        return None
    try:
        return Example(read_module(network.graph, model, inputs), _words(inputs), example is not None)
    except BadInput:
        if example is not None:
            raise
        return None


def verdict_on(example: Example, kept: Mapping[str, TileMap], gpu: GpuSpec, dtype: str) -> Verdict | None:
    """Predict the network's time and return which layers of `kept` should stay dense.

    Return None for a network with attention, or if a layer cannot be predicted and the user gave no example.

    Parameters
    ----------
    kept : layer -> its tiles
    dtype : dtype of weights and images

    Raises
    ------
    BadInput : a layer cannot be predicted, and the user gave the example
    """
    read = example.network
    if any(o.kind == "attention" for o in read.graph):
        return None
    of_layer = {name: partial(planned_seconds, tiles, gpu, dtype) for name, tiles in kept.items()}
    try:
        time = NetworkTime(read, of_layer, gpu, dtype)
    except BadInput:
        if example.is_given:
            raise
        return None
    sparse = time.best
    fastest_us, dense_us = 1e6 * time.seconds(sparse or time.layers), 1e6 * time.seconds()
    line = f"predicted {fastest_us:.0f} us sparse, {dense_us:.0f} us dense ({example.sizes}, {gpu.name})"
    return Verdict(frozenset(time.layers) - sparse, not sparse, line)


def _inputs_of(model: nn.Module, network: Traced, example: Any, images: int) -> list[Any]:
    """Return the inputs of a network; an empty list if no example is given and the network reads no
    images.
    """
    if example is not None:
        is_one = isinstance(example, torch.Tensor) or all(isinstance(each, int) for each in example)
        return [example] if is_one else list(example)
    channels = {} if network.graph is None else channels_of_inputs(network.graph, model)
    return [(min(images, USUAL_IMAGES), each, USUAL_SIDE, USUAL_SIDE) for each in channels.values()]


def _words(inputs: Sequence[Any]) -> str:
    sizes = [tuple(each.shape) if isinstance(each, torch.Tensor) else tuple(each) for each in inputs]
    return ", ".join(" x ".join(map(str, each)) for each in sizes)


def watch_sizes(model: nn.Module, network: Traced) -> None:
    """Register a hook that warns if the dense network is predicted to be as fast.

    It predicts the times at the first call with each size of inputs.
    """
    seen: list[str] = []

    def after_call(called: nn.Module, inputs: tuple[Any, ...], _: Any) -> None:
        if torch.compiler.is_compiling() or not all(isinstance(each, torch.Tensor) for each in inputs):
            return
        sizes = _words(inputs)
        if sizes in seen:
            return
        del seen[: len(seen) + 1 - MOST_SIZES]
        seen.append(sizes)
        _warn_if_slower(called, network, inputs)

    model.register_forward_hook(after_call)


def _warn_if_slower(model: nn.Module, network: Traced, inputs: Sequence[torch.Tensor]) -> None:
    convs = {name: each for name, each in model.named_modules() if isinstance(each, SparseConv2d)}
    gpu = next(iter(convs.values())).product.gpu
    assert network.graph is not None
    try:
        read = read_module(network.graph, model, inputs)
    except BadInput:  # a module that the traced network called has changed since
        return
    of_layer = {name: each.seconds for name, each in convs.items()}
    time = NetworkTime(read, of_layer, gpu, dtype_name(inputs[0].dtype))
    sparse_us, dense_us = 1e6 * time.seconds(time.layers), 1e6 * time.seconds()
    if sparse_us >= dense_us:
        said = f"predicted {sparse_us:.0f} us sparse, {dense_us:.0f} us dense on {gpu.name}"
        warnings.warn(f"network at {_words(inputs)}: {said}: it is faster dense", stacklevel=3)
