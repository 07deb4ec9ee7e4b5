"""`LayerSet`: the layers to prune, one at a time, whether they lie in a file or are drawn at random, and the
passes that the model is run in.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput, check_choice
from prunecast.kernels import ConvGrid
from prunecast.patterns import weigh
from prunecast.patterns.calibration import Calibration, read_calibration
from prunecast.patterns.importance import ImportanceArray, even_parts
from prunecast.patterns.sources import Layer
from prunecast.patterns.sources.read import matrix_sizes, open_tensors
from prunecast.patterns.sources.weight_set import select_names
from prunecast.workload.contestants import check_has_form
from prunecast.workload.graph import (
    RUNTIMES,
    WORKLOADS,
    ModelGraph,
    Pass,
    load_pass,
    parse_workload,
)
from prunecast.workload.graph.config import checkpoint_shape, graph_of_tensors
from prunecast.workload.graph.joins import joint_name, launched_together, together
from prunecast.workload.graph.model_graph import Member
from prunecast.workload.graph.model_time import LayerPass
from prunecast.workload.graph.shapes import SEQUENCE, Transformer
from prunecast.workload.layers import Source, load_layers
from prunecast.workload.onnx_model.read_model import read_onnx_model
from prunecast.workload.workload_layers import (
    check_sizes_count,
    heavy_tailed,
    is_pruned,
    products_among,
)

TOKENS = 4096
"""N of layers without a model around them, where nothing says how many."""
BATCH = 8
"""Images or sequences of a standard model where nothing is said."""
MOST_REMEMBERED_WEIGHTS = 2**27
"""Random weights, and masks, of larger models are made again when they are wanted: half a gigabyte."""


class LayerSet(NamedTuple):
    """Layers by name; `importance` is called when a layer's turn has come: one at a time is in memory."""

    shapes: dict[str, tuple[int, int]]
    importance: Callable[[str], ImportanceArray]
    passes: tuple[LayerPass, ...]
    copies: Mapping[str, int] = MappingProxyType({})
    """Matrices that a name stands for, where they are several alike."""
    known: Calibration | None = None
    """What is known of the layers' inputs, where `importance` knows it."""
    members: Mapping[str, tuple[Member, ...]] = MappingProxyType({})
    """Layer -> matrices below each other that it is, where it is several."""

    @property
    def tokens(self) -> dict[str, int]:
        """N of each layer, the most of all passes."""
        return {
            name: max(run.tokens[name] for run in self.passes if name in run.tokens) for name in self.shapes
        }

    @property
    def weights(self) -> int:
        """Elements of all matrices."""
        return sum(m * k * self.copies.get(name, 1) for name, (m, k) in self.shapes.items())

    @property
    def weights_around(self) -> int:
        """Elements of all matrices of the model around the layers; 0 for layers alone."""
        return max(0 if run.graph is None else run.graph.weights for run in self.passes)


def layers_of_file(
    weights: Source,
    passes: Sequence[Pass],
    *,
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
    experts_per_token: int = 2,
) -> LayerSet:
    """The matrices of a file or mapping; all multiply the tokens of a pass, but experts, who share them.

    Raises
    ------
    BadInput : as `load_layers`
    """
    layers = load_layers(weights, target=target, ignore=ignore).layers
    seen = [
        LayerPass(
            {name: layer.tokens(run.columns, experts_per_token) for name, layer in layers.items()},
            share=run.share,
        )
        for run in passes
    ]
    return _of_layers(layers, seen)


def _of_layers(layers: Mapping[str, Layer], passes: Iterable[LayerPass]) -> LayerSet:
    """Layers that were read."""
    shapes = {name: layer.shape for name, layer in layers.items()}

    def importance(name: str) -> ImportanceArray:
        return even_parts(weigh(name, layers[name].weights), layers[name].parts)

    return LayerSet(shapes, importance, tuple(passes))


def layers_of_checkpoint(
    folder: Path,
    shape: Transformer,
    passes: Sequence[Pass],
    *,
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
    runtime: str = "engine",
) -> LayerSet | None:
    """The matrices of a folder with the graph that its configuration says, which counts all of them.

    None where a matrix has another shape than the configuration says. Raises BadInput as `load_layers`.
    """
    sizes = matrix_sizes(open_tensors(folder))
    graphs = [graph_of_tensors(folder.name, shape, run, sizes, runtime) for run in passes]
    layers = load_layers(folder, target=target, ignore=ignore).layers
    seen = [
        LayerPass({name: graph[name].n for name in layers if graph.has_product(name)}, graph, run.share)
        for graph, run in zip(graphs, passes, strict=True)
        if graph is not None
    ]
    if None in graphs or any(len(run.tokens) < len(layers) for run in seen):
        return None
    return _of_layers(layers, seen)


def layers_of_onnx(
    path: str | Path,
    *,
    batch: int,
    tokens: int | None,
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> LayerSet:
    """The products of an ONNX file with the weights that it holds, and the graph around them.

    Raises
    ------
    BadInput : as `read_onnx_model` and `load_layers`, or tokens where the file fixes all sizes
    """
    model = read_onnx_model(path, batch=batch, tokens=SEQUENCE if tokens is None else tokens)
    check_sizes_count(path, model, tokens=tokens, batch=None if batch == BATCH else batch)
    graph = model.graph
    layers = products_among(path, model, load_layers(path, target=target, ignore=ignore).layers)
    return _of_layers(layers, [LayerPass({name: graph[name].n for name in layers}, graph)])


def layers_of_workload(
    *graphs: ModelGraph,
    shares: Sequence[float] = (1.0,),
    seed: int = 0,
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> LayerSet:
    """The products of a standard model, with heavy-tailed random weights that depend on the seed alone.

    `graphs` are its passes, of which `shares` are the parts.
    """
    every = {name: product for graph in graphs for name, product in graph.products.items()}
    offered = {name: p for name, p in every.items() if name in target or is_pruned(name)}
    products = {name: offered[name] for name in select_names(offered, target, ignore)}
    shapes = {name: (p.m, p.k) for name, p in products.items()}
    places = {name: place for place, name in enumerate(products)}

    def importance(name: str) -> ImportanceArray:
        return heavy_tailed(shapes[name], (seed, places[name]))

    if sum(m * k for m, k in shapes.values()) <= MOST_REMEMBERED_WEIGHTS:
        importance = cache(importance)
    seen = tuple(
        LayerPass({name: p.n for name, p in graph.products.items() if name in products}, graph, share)
        for share, graph in zip(shares, graphs, strict=True)
    )
    return LayerSet(shapes, importance, seen, {name: p.copies for name, p in products.items()})


def is_standard(weights: Source) -> bool:
    """Whether this is the name of a standard model."""
    return isinstance(weights, str) and weights in WORKLOADS


def layers_to_prune(
    weights: Source,
    tokens: int | None,
    batch: int,
    target: Sequence[str],
    ignore: Sequence[str],
    workload: str | None = None,
    runtime: str = "engine",
) -> LayerSet:
    """The layers of a file, of matrices by name, of an ONNX file or of a standard model. Raises BadInput."""
    check_choice("runtime", runtime, RUNTIMES)
    if tokens is not None and (tokens < 1 or workload is not None):
        raise BadInput(f"tokens must be at least 1, and left out with a workload, got {tokens}")
    passes = None if workload is None else parse_workload(workload)
    _check_batch_counts(weights, batch, workload)
    if isinstance(weights, str) and weights in WORKLOADS:
        runs = passes or (Pass(batch, SEQUENCE if tokens is None else tokens),)
        graphs = [load_pass(weights, run, runtime) for run in runs]
        shares = [run.share for run in runs]
        return layers_of_workload(*graphs, shares=shares, target=target, ignore=ignore)
    if isinstance(weights, str | Path) and Path(weights).suffix.lower() == ".onnx":
        check_has_form(runtime, weights)
        if passes is not None:
            raise BadInput(
                f"{weights}: an .onnx file says its sizes: wanted --tokens or --batch, got {workload}"
            )
        return layers_of_onnx(weights, batch=batch, tokens=tokens, target=target, ignore=ignore)
    passes = passes or (Pass(1, TOKENS if tokens is None else tokens),)
    shape = checkpoint_shape(weights)
    if isinstance(weights, str | Path) and shape is not None:
        found = layers_of_checkpoint(
            Path(weights), shape, passes, target=target, ignore=ignore, runtime=runtime
        )
        if found is not None:
            return found
    check_has_form(runtime, weights)
    return layers_of_file(weights, passes, target=target, ignore=ignore)


def _check_batch_counts(weights: Source, batch: int, workload: str | None) -> None:
    """Refuse a batch that nothing would have. Raises BadInput."""
    if batch == BATCH:
        return
    if workload is not None:
        raise BadInput(f"batch and a workload exclude each other, got {batch} and {workload}")
    if not is_standard(weights) and not (isinstance(weights, str | Path) and Path(weights).suffix == ".onnx"):
        raise BadInput(f"batch {batch} is of a standard model or an .onnx file: give --tokens or --workload")


def calibrated(layers: LayerSet, weights: Source, path: str | Path) -> LayerSet:
    """The layers with magnitudes multiplied by what a file says of their inputs. Raises BadInput."""
    if is_standard(weights):
        raise BadInput(f"calibrate is of trained weights, {weights} has random ones")
    known, magnitudes = read_calibration(path), layers.importance
    for name, (_, k) in layers.shapes.items():
        known.weigh(name, np.zeros((1, k), np.float32))  # says what is missing before the search
    return layers._replace(importance=lambda name: known.weigh(name, magnitudes(name)), known=known)


def as_launched(layers: LayerSet, apart: Collection[str] = ()) -> LayerSet:
    """The layers with those as one that torch launches as one, but for `apart`; the search prunes them alike,
    to a sparsity that their tiles share.
    """
    own = [name for name in layers.shapes if name not in apart]
    groups = [[] if run.graph is None else launched_together(run.graph, own) for run in layers.passes]
    if not any(groups):
        return layers
    joint = {name: joint_name(group) for group in groups[0] for name in group}
    graphs = [together(run.graph, groups[0]) for run in layers.passes if run.graph is not None]
    members = {n: graphs[0][n].members for n in joint.values()}

    def renamed(name: str) -> str:
        return joint.get(name, name)

    def importance(name: str) -> ImportanceArray:
        parts = [layers.importance(each.name) for each in members.get(name, ())]
        return np.concatenate(parts) if parts else layers.importance(name)

    shapes = {renamed(name): layers.shapes[name] for name in layers.shapes}
    shapes |= {name: (sum(each.m for each in own), shapes[name][1]) for name, own in members.items()}
    passes = [
        run._replace(tokens={renamed(name): n for name, n in run.tokens.items()}, graph=graph)
        for run, graph in zip(layers.passes, graphs, strict=True)
    ]
    return layers._replace(shapes=shapes, importance=importance, passes=tuple(passes), members=members)


def grids_of(passes: Iterable[LayerPass]) -> dict[tuple[int, int, int], ConvGrid]:
    """(M, K, N) of a product -> the images that it reads, of convolutions in graphs that torch runs."""
    graphs = [run.graph for run in passes if run.graph is not None and run.graph.runtime == "torch"]
    products = [product for graph in graphs for product in graph.products.values()]
    return {(p.m, p.k, p.n): ConvGrid(conv=p.convolution) for p in products if p.convolution is not None}
