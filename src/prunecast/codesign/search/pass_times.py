"""`PassTimes`: what a model takes in each pass of its workload, from the seconds of its products."""

from collections.abc import Mapping
from typing import NamedTuple

from prunecast.codesign.graph import ModelTime, model_time, turned_by_dense
from prunecast.codesign.graph.torch_time import lost_epilogues
from prunecast.codesign.search.layer_sets import LayerPass
from prunecast.hardware import GpuSpec


class PassTimes(NamedTuple):
    """Passes on a GPU; those of layers alone take no part."""

    passes: tuple[LayerPass, ...]
    gpu: GpuSpec
    launch: str
    """`graph` or `stream`."""

    def times(self, seconds: Mapping[str, float], sparse: frozenset[str]) -> list[tuple[float, ModelTime]]:
        """Share and time of each pass; `seconds` of all are divided evenly among those with the product."""
        graphs = [(run.share, run.graph) for run in self.passes if run.graph is not None]
        shares: dict[str, float] = {}
        for share, graph in graphs:
            for name in graph.products:
                shares[name] = shares.get(name, 0.0) + share
        return [
            (
                share,
                model_time(
                    graph,
                    self.gpu,
                    {name: seconds[name] / shares[name] for name in graph.products},
                    sparse=sparse & graph.products.keys(),
                    launch=self.launch,
                ),
            )
            for share, graph in graphs
        ]

    def savings_of_dense(self, products: frozenset[str], sparse: frozenset[str]) -> dict[str, float]:
        """Layer of `sparse` -> seconds of transposes that a sparse product there needs, all of them sparse,
        less those of activations that it has as epilogue.
        """
        saved: dict[str, float] = {}
        graphs = [run.graph for run in self.passes if run.graph is not None]
        for graph, (share, time) in zip(
            graphs, self.times(dict.fromkeys(products, 0.0), sparse), strict=True
        ):
            for name, writers in turned_by_dense(graph, time.transposes).items():
                own = share * sum(time.turning_seconds[writer] for writer in writers)
                saved[name] = saved.get(name, 0.0) + own
            for name, seconds in lost_epilogues(graph, self.gpu).items():
                if name in sparse:
                    saved[name] = saved.get(name, 0.0) - share * seconds
        return saved
