"""Predicted time of the whole model as torch runs it, in closed form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.hardware import load_gpu
from prunecast.kernels import ConvGrid, plan_dense
from prunecast.patterns import NestedMap, Pattern, TileMap, parse_pattern
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.sources import Layer
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.conv import implicit_plan
from prunecast.plan.tile_rows import stacked_tiles
from prunecast.torch.layer_plans import two_of_four_map
from prunecast.workload.engines import Engine
from prunecast.workload.graph import ModelGraph, Pass, model_time
from prunecast.workload.graph.joins import launched_together, together
from prunecast.workload.graph.model_graph import Operation
from prunecast.workload.graph.runtimes import torch_seconds
from prunecast.workload.graph.transposes import transpose_for
from prunecast.workload.load import workload_in_graphs
from prunecast.workload.workload import stacked_as_launched


class Predictor:
    """Times of one graph on one GPU."""

    def __init__(self, graph: ModelGraph, gpu: str, dtype: str = "fp16") -> None:
        self.apart, self.matrices, self.gpu, self.dtype = graph, graph.products, gpu, dtype
        self.graph = together(graph, launched_together(graph, self.matrices))
        self.engine = Engine(name="model", gpu=load_gpu(gpu))
        self.dense = {name: self._dense_seconds(o) for name, o in self.graph.products.items()}
        self.dense_s = model_time(self.graph, self.engine.gpu, self.dense).seconds
        self._seconds: dict[tuple[object, ...], tuple[list[PrunedMap], float]] = {}

    def _dense_seconds(self, o: Operation) -> float:
        """Seconds of the dense product; a convolution works out pixels by itself, as cuDNN does."""
        plan = plan_dense(o.m, o.k, o.n, self.dtype, self.engine.gpu)
        return self.engine.run(plan if o.convolution is None else implicit_plan(plan, o.convolution)).seconds

    def layer_seconds(self, name: str, kept: PrunedMap) -> float:
        """Seconds of one matrix that keeps these tiles, or 2:4 in them."""
        operation = self.matrices[name]
        grid = _grid(operation)
        n = operation.n if grid is None else grid.n
        kernel = "stspmm" if isinstance(kept, TileMap) else "2:4"
        plan = fastest_plan(kernel, kept, n, self.dtype, self.engine.gpu, source=grid)
        return self.engine.estimate(plan).seconds

    def share(self, maps: Mapping[str, PrunedMap]) -> float:
        """Time of the model with these matrices pruned over that of the dense one."""
        products, sparse = dict(self.dense), set()
        for name, product in self.graph.products.items():
            names = [each.name for each in product.members] or [name]
            if not maps.keys().isdisjoint(names):
                products[name] = self._product_seconds(names, {n: maps[n] for n in names if n in maps})
                sparse.add(name)
        return (
            model_time(self.graph, self.engine.gpu, products, sparse=frozenset(sparse)).seconds / self.dense_s
        )

    def narrow_share(self, graph: ModelGraph, inside: Sequence[str]) -> float:
        """Time of a narrower model, weights whose names have one of these parts with 2:4 inside, over that
        of the dense one.
        """
        own = Predictor(graph, self.gpu, self.dtype)
        halved = {name: o for name, o in own.matrices.items() if any(part in name for part in inside)}
        return (
            own.share({name: _any_halves(o.m, o.k) for name, o in halved.items()})
            * own.dense_s
            / self.dense_s
        )

    def _product_seconds(self, names: Sequence[str], maps: Mapping[str, PrunedMap]) -> float:
        """Launches of a product: those in tiles, those with 2:4, and one for each that stays dense."""
        dense = sum(self._dense_seconds(self.matrices[name]) for name in names if name not in maps)
        tiles = [each for each in maps.values() if isinstance(each, TileMap)]
        halved = [each for each in maps.values() if not isinstance(each, TileMap)]
        launches = [own for own in (tiles, halved) if own]
        turn = self._turn_seconds(names[0]) if len(launches) > 1 else 0.0
        return dense + turn + sum(self._launch_seconds(names[0], own) for own in launches)

    def _turn_seconds(self, name: str) -> float:
        """Each launch turns x for itself, of which the model counts one."""
        (maker,) = self.apart.graph.predecessors(name)
        gpu, transpose = self.engine.gpu, transpose_for(self.apart[maker], self.matrices[name])
        return torch_seconds(transpose, gpu)

    def _launch_seconds(self, first: str, maps: list[PrunedMap]) -> float:
        """Seconds of what is one launch, once for the same maps."""
        key = (self.matrices[first].n, *map(id, maps))
        if key not in self._seconds:
            self._seconds[key] = (maps, self.layer_seconds(first, _stacked(maps)))
        return self._seconds[key][1]

    def curve(
        self, pattern: str, importance: Mapping[str, ImportanceArray], at: Sequence[float]
    ) -> list[float]:
        """The share with every layer pruned alike, as the first one of its shape, at these sparsities."""
        firsts, found = {scores.shape: scores for scores in importance.values()}, []
        rules = {shape: fitting(pattern, shape[0]) for shape in firsts}
        for sparsity in at:
            masks = {
                shape: rules[shape].prune({"": scores}, sparsity)[""] for shape, scores in firsts.items()
            }
            maps = {shape: rules[shape].map(mask) for shape, mask in masks.items()}
            found.append(self.share({name: maps[scores.shape] for name, scores in importance.items()}))
        return found

    def search(self, importance: Mapping[str, ImportanceArray], families: Sequence[str]) -> ModelSearch:
        """The search of `prunecast prune --latency --runtime torch` over these layers, prepared."""
        layers = {
            name: Layer(
                name=name,
                shape=(scores.shape[0], scores.shape[1]),
                load=lambda scores=scores: scores,  # type: ignore[misc]
                dtype="fp32",
            )
            for name, scores in importance.items()
        }
        search = ModelSearch(
            workload=stacked_as_launched(workload_in_graphs(layers, [self.apart], [Pass(1)])),
            engine=self.engine,
            dtype=self.dtype,
            families=families,
        )
        search.prepare()
        return search


@cache
def _any_halves(m: int, k: int) -> PrunedMap:
    """A map of 2:4: which two of four it keeps counts for nothing."""
    return parse_pattern("2:4").map(np.tile(np.array([True, True, False, False]), (m, k // 4)))


def fitting(pattern: str, rows: int) -> Pattern:
    """The pattern with tiles that are no higher than a matrix of so many rows."""
    rule = parse_pattern(pattern)
    if rule.parameters.get("height", 0) <= rows:
        return rule
    return parse_pattern(re.sub(r":\d+", f":{rows}", pattern, count=1))


def _stacked(maps: list[PrunedMap]) -> PrunedMap:
    """Maps of matrices below each other as the map of one."""
    if len(maps) == 1:
        return maps[0]
    tiles = [each for each in maps if isinstance(each, TileMap)]
    return (
        stacked_tiles(tiles) if tiles else two_of_four_map(stacked_tiles([_tiles_of(each) for each in maps]))
    )


def _tiles_of(kept: PrunedMap) -> TileMap:
    """Tiles with 2:4 inside; a whole matrix is one."""
    return kept.tiles if isinstance(kept, NestedMap) else dense_tile_map(kept.m, kept.k, kept.m)


def _grid(operation: Operation) -> ConvGrid | None:
    """How the images of a convolution lie in memory."""
    return None if operation.convolution is None else ConvGrid(conv=operation.convolution)
