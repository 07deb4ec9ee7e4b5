"""Predicted time of the whole model as torch runs it, in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.engines import Engine
from prunecast.codesign.graph import ModelGraph, model_time
from prunecast.codesign.graph.model_graph import Operation
from prunecast.codesign.search.layer_sets import LayerPass, LayerSet
from prunecast.codesign.search.model_search import ModelSearch
from prunecast.codesign.workload_layers import conv_shape
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import ConvGrid, KernelPlan, plan_dense
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.importance import ImportanceArray
from prunecast.plan.conv import implicit_plan


class Predictor:
    """Times of one graph on one GPU."""

    def __init__(self, graph: ModelGraph, gpu: str, dtype: str = "fp16") -> None:
        self.graph, self.dtype = graph, dtype
        self.engine = Engine(name="model", gpu=load_gpu(gpu))
        self.dense = {
            name: self.engine.run(_dense_plan(o, dtype, self.engine.gpu)).seconds
            for name, o in graph.products.items()
        }
        self.dense_s = model_time(graph, self.engine.gpu, self.dense).seconds
        self._seconds: dict[tuple[str, int], tuple[PrunedMap, float]] = {}

    def layer_seconds(self, name: str, kept: PrunedMap) -> float:
        """Seconds of one layer that keeps these tiles, or 2:4 in them."""
        operation = self.graph[name]
        grid = _grid(operation)
        n = operation.n if grid is None else grid.n
        kernel = "stspmm" if isinstance(kept, TileMap) else "2:4"
        plan = fastest_plan(kernel, kept, n, self.dtype, self.engine.gpu, source=grid)
        return self.engine.once(plan).seconds

    def share(self, maps: Mapping[str, PrunedMap]) -> float:
        """Time of the model with these layers pruned over that of the dense one."""
        products = {**self.dense, **{name: self._known_seconds(name, kept) for name, kept in maps.items()}}
        time = model_time(self.graph, self.engine.gpu, products, sparse=frozenset(maps))
        return time.seconds / self.dense_s

    def _known_seconds(self, name: str, kept: PrunedMap) -> float:
        """`layer_seconds`, once for each map."""
        key = (name, id(kept))
        if key not in self._seconds:
            self._seconds[key] = (kept, self.layer_seconds(name, kept))
        return self._seconds[key][1]

    def curve(
        self, pattern: str, importance: Mapping[str, ImportanceArray], at: Sequence[float]
    ) -> list[float]:
        """The share with every layer pruned alike, as the first one of its shape, at these sparsities."""
        rule, firsts = parse_pattern(pattern), {scores.shape: scores for scores in importance.values()}
        found = []
        for sparsity in at:
            masks = {shape: rule.prune({"": scores}, sparsity)[""] for shape, scores in firsts.items()}
            maps = {shape: rule.map(mask) for shape, mask in masks.items()}
            found.append(self.share({name: maps[scores.shape] for name, scores in importance.items()}))
        return found

    def search(self, importance: Mapping[str, ImportanceArray], families: Sequence[str]) -> ModelSearch:
        """The search of `prunecast prune --latency --runtime torch` over these layers, prepared."""
        layers = LayerSet(
            {name: (scores.shape[0], scores.shape[1]) for name, scores in importance.items()},
            lambda name: importance[name],
            (LayerPass({name: self.graph[name].n for name in importance}, self.graph),),
        )
        search = ModelSearch(
            layers=layers,
            engine=self.engine,
            quick=self.engine,
            dtype=self.dtype,
            families=families,
        )
        search.prepare()
        return search


def _dense_plan(o: Operation, dtype: str, gpu: GpuSpec) -> KernelPlan:
    """The dense product; a convolution works out pixels by itself, as cuDNN does."""
    plan = plan_dense(o.m, o.k, o.n, dtype, gpu)
    return plan if o.convolution is None else implicit_plan(plan, conv_shape(o))


def _grid(operation: Operation) -> ConvGrid | None:
    """How the images of a convolution lie in memory."""
    return None if operation.convolution is None else ConvGrid(conv=conv_shape(operation))
