"""`LayerSet`: the layers to prune, one at a time, whether they lie in a file or are drawn at random."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from prunecast.codesign.graph import ModelGraph
from prunecast.codesign.layers import Source, load_layers
from prunecast.codesign.onnx_model import read_onnx_model
from prunecast.errors import BadInput
from prunecast.patterns import weigh
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.sources.selection import select_names

SEQUENCE = 512
"""Tokens of a sequence where nothing says how many."""
KEPT_DENSE = ("stem", "classifier", "head", "fc8")
"""First and last layers of the standard models: they are customarily not pruned."""


MOST_REMEMBERED_WEIGHTS = 2**27
"""Random weights of larger models are drawn again when they are wanted, rather than take half a gigabyte."""
ROWS_AT_A_TIME = 32
"""Rows that a cache holds while they are scaled."""


class LayerSet(NamedTuple):
    """Layers by name; `importance` is called when a layer's turn has come: one at a time is in memory."""

    shapes: dict[str, tuple[int, int]]
    tokens: dict[str, int]
    importance: Callable[[str], ImportanceArray]
    graph: ModelGraph | None
    """The model around the layers, or None for layers alone."""


def layers_of_file(
    weights: Source,
    tokens: int,
    *,
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
    experts_per_token: int = 2,
) -> LayerSet:
    """The matrices of a file or mapping; all multiply the same number of tokens, but experts, who share them.

    Raises
    ------
    BadInput : as `load_layers`, or no tokens
    """
    if tokens < 1:
        raise BadInput(f"tokens must be at least 1, got {tokens}")
    layers = load_layers(weights, target=target, ignore=ignore).layers
    shapes = {name: (layer.weights.shape[0], layer.weights.shape[1]) for name, layer in layers.items()}

    def importance(name: str) -> ImportanceArray:
        return weigh(name, layers[name].weights)

    own = {name: layer.tokens(tokens, experts_per_token) for name, layer in layers.items()}
    return LayerSet(shapes, own, importance, None)


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
    if tokens is not None and "tokens" not in model.takes:
        raise BadInput(
            f"{path}: tokens have no effect, the file fixes these sizes: leave out --tokens {tokens}"
        )
    graph = model.graph
    layers = {
        name: layer
        for name, layer in load_layers(path, target=target, ignore=ignore).layers.items()
        if name in graph.products
    }
    if not layers:
        raise BadInput(f"{path}: none of the selected weights belongs to a product, wanted at least one")
    shapes = {name: (graph[name].m, graph[name].k) for name in layers}

    def importance(name: str) -> ImportanceArray:
        return weigh(name, layers[name].weights)

    return LayerSet(shapes, {name: graph[name].n for name in layers}, importance, graph)


def layers_of_workload(
    graph: ModelGraph, *, seed: int = 0, target: Sequence[str] = (), ignore: Sequence[str] = ()
) -> LayerSet:
    """The products of a standard model, with heavy-tailed random weights that depend on the seed alone.

    Rows and columns of trained matrices differ in scale by factors (outlier features); a lognormal factor per
    column and row stands for that. Without it all columns would be alike and every pattern equally good.
    """
    offered = {name: p for name, p in graph.products.items() if name in target or name not in KEPT_DENSE}
    products = {name: offered[name] for name in select_names(offered, target, ignore)}
    shapes = {name: (p.m, p.k) for name, p in products.items()}
    places = {name: place for place, name in enumerate(products)}

    def importance(name: str) -> ImportanceArray:
        return _heavy_tailed(shapes[name], (seed, places[name]))

    if sum(m * k for m, k in shapes.values()) <= MOST_REMEMBERED_WEIGHTS:
        importance = cache(importance)
    return LayerSet(shapes, {name: p.n for name, p in products.items()}, importance, graph)


def _heavy_tailed(shape: tuple[int, int], seed: Sequence[int]) -> ImportanceArray:
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(shape, np.float32)
    of_column = np.exp(0.5 * rng.standard_normal(shape[1], np.float32))
    of_row = np.exp(0.3 * rng.standard_normal((shape[0], 1), np.float32))
    for first in range(0, shape[0], ROWS_AT_A_TIME):
        rows = weights[first : first + ROWS_AT_A_TIME]
        rows *= of_column
        rows *= of_row[first : first + ROWS_AT_A_TIME]
        np.abs(rows, out=rows)
    return weights


def fixed_names(layers: LayerSet) -> Mapping[str, tuple[int, int, int]]:
    """Products of the graph that are not pruned: name -> m, k, n."""
    if layers.graph is None:
        return {}
    others = {name: p for name, p in layers.graph.products.items() if name not in layers.shapes}
    return {name: (p.m, p.k, p.n) for name, p in others.items()}
