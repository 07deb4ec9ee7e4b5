"""The layers of a workload: of a standard model, with random weights, or of a file, for every pass asked for.

Rows and columns of trained matrices differ in scale by factors (outlier features); in random ones a lognormal
factor per column and row stands for that. Without it all columns would be alike, every pattern equally good.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels import ConvShape
from prunecast.patterns.sources import FilterShape, Layer
from prunecast.patterns.sources.read import matrix_sizes, open_tensors
from prunecast.patterns.sources.weight_set import select_names
from prunecast.workload.graph import (
    ModelGraph,
    Operation,
    Pass,
)
from prunecast.workload.graph.config import graph_of_tensors
from prunecast.workload.graph.joins import joint_name, launched_together, together
from prunecast.workload.graph.shapes import Transformer
from prunecast.workload.layers import LoadedLayers, Skipped
from prunecast.workload.onnx_model.read_model import OnnxModel

KEPT_DENSE = ("stem", "classifier", "head", "fc8")
"""First and last layers of the standard models: they are customarily not pruned."""
ROUTER = ".router"
"""Products that choose the experts of a token are not pruned either."""
SCALED_AT_A_TIME = 2**17
"""Elements that a cache holds while they are scaled."""
MOST_NORMALS = 2**26
"""Normal numbers that are drawn for one matrix: a second and a half."""


def is_pruned(name: str) -> bool:
    """Whether a product of a standard model is one that is customarily pruned."""
    return name not in KEPT_DENSE and not name.endswith(ROUTER)


def heavy_tailed(
    shape: tuple[int, int], seed: Sequence[int], dtype: npt.DTypeLike = np.float32
) -> npt.NDArray[Any]:
    """Magnitudes of a matrix (M, K) that depend on the seed alone, rounded from float32 to `dtype`.

    What the rows of a matrix above `MOST_NORMALS` elements are scaled from repeats.
    """
    rng = np.random.default_rng(seed)
    step = max(SCALED_AT_A_TIME // shape[1], 1)
    drawn = min(shape[0], max(MOST_NORMALS // shape[1] // step, 1) * step)
    normals = rng.standard_normal((drawn, shape[1]), np.float32)
    of_column = np.exp(0.5 * rng.standard_normal(shape[1], np.float32))
    of_row = np.exp(0.3 * rng.standard_normal((shape[0], 1), np.float32))
    weights = np.empty(shape, dtype)
    for first in range(0, shape[0], step):
        rows, start = weights[first : first + step], first % drawn
        scaled = normals[start : start + len(rows)] * of_column
        scaled *= of_row[first : first + step]
        rows[...] = np.abs(scaled, out=scaled)
    return weights


MOST_DRAWN = 2**28
"""A gigabyte while they are drawn."""
RANDOM = "random weights with heavy tails"
UNEVEN = "timed as a product after im2col: dilation, or a stride or padding that differs between sides"
"""Note on a convolution of an ONNX file that no `ConvShape` describes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GraphPass:
    """One pass of a standard model, and which of the layers that are predicted stand for its products.

    Parameters
    ----------
    share : part of all passes
    graph : the model
    row_of : product -> layer of the table; products that are not predicted have none
    """

    share: float
    graph: ModelGraph
    row_of: Mapping[str, str]

    def seconds(self, rows: Mapping[str, float], dense: Callable[[Operation], float]) -> dict[str, float]:
        """Seconds of every product in the pass: those of its row, `dense` for the rest."""
        return {
            name: product.runs * (rows[self.row_of[name]] if name in self.row_of else dense(product))
            for name, product in self.graph.products.items()
        }

    def those_of(self, rows: Collection[str]) -> frozenset[str]:
        """Products that some of the rows stand for."""
        return frozenset(name for name, row in self.row_of.items() if row in rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkloadLayers:
    """Layers to predict.

    Parameters
    ----------
    loaded : the layers, one for each shape and number of tokens of a standard model
    tokens : layer -> N
    runs : layer -> how often a pass runs it, on average
    convolutions : layer -> the convolution that it is
    passes : of a standard model; empty for a file
    weights : elements of all matrices of the model
    """

    loaded: LoadedLayers
    tokens: dict[str, int] = field(default_factory=dict)
    runs: dict[str, float] = field(default_factory=dict)
    convolutions: dict[str, ConvShape] = field(default_factory=dict)
    passes: tuple[GraphPass, ...] = ()
    weights: int = 0

    def take(self, row: str, layer: Layer, product: Operation, runs: float) -> None:
        """Add a layer as a row, or so many runs to it."""
        self.loaded.layers.setdefault(row, replace(layer, name=row, experts=None))
        self.tokens[row], self.runs[row] = product.n, self.runs.get(row, 0.0) + runs
        if product.convolution is not None:
            self.convolutions[row] = product.convolution


def layers_of_passes(loaded: LoadedLayers, passes: Sequence[Pass], experts_per_token: int) -> WorkloadLayers:
    """The layers of a file, once for each pass."""
    found: dict[str, Layer] = {}
    tokens, runs = {}, {}
    for run in passes:
        for name, layer in loaded.layers.items():
            own = _label(name, run, passes)
            found[own] = replace(layer, name=own, experts=None)
            tokens[own], runs[own] = layer.tokens(run.columns, experts_per_token), run.share
    weights = sum(layer.size for layer in loaded.layers.values())
    return WorkloadLayers(
        loaded=LoadedLayers(found, loaded.skipped), tokens=tokens, runs=runs, weights=weights
    )


def layers_of_model(
    graphs: Sequence[tuple[Pass, ModelGraph]],
    *,
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> WorkloadLayers:
    """One layer for each shape and number of tokens of a standard model, with random weights.

    First and last layers are left out unless `target` names them.

    Raises
    ------
    BadInput : a selector without a match, or a matrix too large to be drawn at random
    """
    found = WorkloadLayers(loaded=LoadedLayers({}, ()))
    made: dict[tuple[int, int], Layer] = {}
    passes = [run for run, _ in graphs]
    every = {product: None for _, graph in graphs for product in graph.products}
    chosen = [p for p in select_names(every, target, ignore) if target or is_pruned(p)]
    pruned = frozenset(chosen)
    seen: list[GraphPass] = []
    for run, graph in graphs:
        rows = _rows(graph, chosen, run, passes)
        for product_name, row in rows.items():
            product = graph[product_name]
            layer = found.loaded.layers.get(row) or _drawn(row, product, made)
            found.take(row, layer, product, run.share * product.runs)
        seen.append(GraphPass(share=run.share, graph=graph, row_of=rows))
    left = tuple(
        Skipped(layer=p, kernel=None, reason="customarily not pruned: name it with target")
        for p in select_names(every, target, ignore)
        if p not in pruned
    )
    weights = max(graph.weights for _, graph in graphs)
    return replace(found, loaded=LoadedLayers(found.loaded.layers, left), passes=tuple(seen), weights=weights)


def layers_of_checkpoint(
    folder: Path, shape: Transformer, loaded: LoadedLayers, passes: Sequence[Pass], runtime: str = "engine"
) -> WorkloadLayers | None:
    """The layers of a folder, once for each pass, and the graph around them that its configuration says;
    those as one that torch launches as one.

    None where a matrix has another shape than the configuration says.
    """
    sizes = matrix_sizes(open_tensors(folder))
    found = WorkloadLayers(loaded=LoadedLayers({}, loaded.skipped))
    seen = []
    for run in passes:
        graph = graph_of_tensors(folder.name, shape, run, sizes, runtime)
        if graph is None or not loaded.layers.keys() <= sizes.keys():
            return None
        groups = launched_together(graph, loaded.layers)
        graph, layers = together(graph, groups), _joined(loaded.layers, groups)
        rows = {name: _label(name, run, passes) for name in layers if graph.has_product(name)}
        for name, row in rows.items():
            found.take(row, layers[name], graph[name], run.share * graph[name].runs)
        seen.append(GraphPass(share=run.share, graph=graph, row_of=rows))
    return replace(found, passes=tuple(seen), weights=max(one.graph.weights for one in seen))


def _joined(layers: Mapping[str, Layer], groups: Sequence[Sequence[str]]) -> dict[str, Layer]:
    """The layers with those of a group below each other as one, at the place of the first."""
    found: dict[str, Layer] = {}
    of = {name: group for group in groups for name in group}
    for name, layer in layers.items():
        parts = [layers[each] for each in of.get(name, (name,))]
        own = layer if len(parts) == 1 else _below_each_other(parts)
        found.setdefault(own.name, own)
    return found


def _below_each_other(parts: Sequence[Layer]) -> Layer:
    shape = sum(part.shape[0] for part in parts), parts[0].shape[1]
    name = joint_name([part.name for part in parts])
    return replace(parts[0], name=name, shape=shape, load=lambda: np.concatenate([p.weights for p in parts]))


def layers_of_onnx(path: str, model: OnnxModel, loaded: LoadedLayers) -> WorkloadLayers:
    """The products of a file with the sizes that it says; others, as grouped convolutions, are skipped.

    Raises
    ------
    BadInput : none of the layers is a product
    """
    products = model.graph.products
    layers = {
        name: replace(layer, note=f"{layer.note}; {UNEVEN}") if _is_uneven(layer, products[name]) else layer
        for name, layer in products_among(path, model, loaded.layers).items()
    }
    why = {name: model.untimed.get(name, "no product in the graph") for name in loaded.layers}
    others = (
        Skipped(layer=name, kernel=None, reason=why[name]) for name in loaded.layers if name not in layers
    )
    return WorkloadLayers(
        loaded=LoadedLayers(layers, (*loaded.skipped, *others)),
        tokens={name: products[name].n for name in layers},
        convolutions={name: conv for name in layers if (conv := products[name].convolution)},
        weights=model.graph.weights,
    )


def _is_uneven(layer: Layer, product: Operation) -> bool:
    return layer.filters is not None and product.convolution is None


def products_among(path: str | Path, model: OnnxModel, layers: Mapping[str, Layer]) -> dict[str, Layer]:
    """The layers that are products of an ONNX file. Raises BadInput where there is none."""
    found = {name: layer for name, layer in layers.items() if model.graph.has_product(name)}
    if not found:
        untimed = "".join(f"; {name}: {reason}" for name, reason in model.untimed.items() if name in layers)
        raise BadInput(
            f"{path}: none of the selected weights belongs to a product that is timed, wanted at least one"
            f"{untimed:.300}"
        )
    return found


def check_sizes_count(path: str | Path, model: OnnxModel, *, tokens: int | None, batch: int | None) -> None:
    """Refuse tokens or a batch that set no size of an ONNX file. Raises BadInput."""
    for name, size in (("tokens", tokens), ("batch", batch)):
        if size is not None and name not in model.takes:
            has = "have" if name == "tokens" else "has"
            raise BadInput(
                f"{path}: {name} {has} no effect, the file fixes these sizes: leave out --{name} {size}"
            )


def _rows(graph: ModelGraph, chosen: Sequence[str], run: Pass, passes: Sequence[Pass]) -> dict[str, str]:
    """Product -> the first one of its shape, tokens and convolution."""
    first: dict[tuple[object, ...], str] = {}
    rows = {}
    for name in chosen:
        if graph.has_product(name):
            product = graph[name]
            key = (product.m, product.k, product.n, product.convolution)
            rows[name] = first.setdefault(key, _label(name, run, passes))
    return rows


def _drawn(row: str, product: Operation, made: dict[tuple[int, int], Layer]) -> Layer:
    """Random weights of a product, made once for each shape."""
    shape, conv = (product.m, product.k), product.convolution
    if product.m * product.k > MOST_DRAWN:
        raise BadInput(
            f"{row}: random weights have at most {MOST_DRAWN} elements, got {product.m}x{product.k}"
        )
    if shape not in made:
        weights = heavy_tailed(shape, (0, len(made)), np.float16)
        made[shape] = Layer(name=row, shape=shape, load=lambda: weights, dtype="fp16", note=RANDOM)
    filters = FilterShape(conv.channels, conv.kernel_h, conv.kernel_w) if conv else None
    return replace(made[shape], filters=filters)


def _label(name: str, run: Pass, passes: Sequence[Pass]) -> str:
    return name if len(passes) == 1 else f"{name} {run.label}"
