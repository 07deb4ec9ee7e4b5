"""`Workload`: the layers of a model and the forward passes that run them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels import ConvGrid, ConvShape
from prunecast.patterns import weigh
from prunecast.patterns.calibration import Calibration
from prunecast.patterns.importance import ImportanceArray, check_ranks, even_parts
from prunecast.patterns.sources import Layer
from prunecast.workload.graph import ModelGraph, Pass
from prunecast.workload.graph.experts import ExpertPart
from prunecast.workload.graph.joins import joint_name, launched_together, together
from prunecast.workload.layers import Skipped


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkloadLayer(Layer):
    """A matrix (M, K) of a workload, or several matrices that are stacked along M and launched as one.

    `table_rows.rows_of` turns layers into the rows of a result table; some parameters are set only there.

    Parameters
    ----------
    tokens : N of the layer in each pass, 0 in a pass that does not run it; a row has one entry
    runs : rows only: how often a pass runs the layer, as a mean over all passes
    in_pass : rows only: index of the pass that the row belongs to
    stands_for : rows only: names of the layers that the row represents
    count : number of equal matrices that the layer represents, such as experts, or layers of a large model
    members : the matrices that are stacked; empty for one matrix
    convolution : the convolution that the product computes, None for a linear layer
    fused : rows only: part of a fused MoE layer that the dense product belongs to; None outside of such
        layers
    """

    tokens: tuple[int, ...]
    runs: float = 1.0
    in_pass: int = 0
    stands_for: tuple[str, ...] = ()
    count: int = 1
    members: tuple[Layer, ...] = ()
    convolution: ConvShape | None = None
    fused: ExpertPart | None = None

    @property
    def n(self) -> int:
        """The largest N of all passes."""
        return max(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """The layers of a model that are predicted or pruned, and the passes that run them.

    Parameters
    ----------
    layers : layers by name; weights are read, or drawn at random, when they are first used
    passes : the forward passes
    graphs : model graph of each pass; empty if the operators between the products are not known
    skipped : tensors and parts of the model that are not predicted, with reasons
    form : `standard` (random weights), `checkpoint` (a Hugging Face folder), `onnx`, `module` (a torch module
        that reads images) or `matrices`
    calibration : input statistics of the layers that weight the importance, or None
    """

    layers: dict[str, WorkloadLayer]
    passes: tuple[Pass, ...]
    graphs: tuple[ModelGraph, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    form: str = "matrices"
    calibration: Calibration | None = None

    def noting(self, *notes: Skipped) -> Self:
        """Return the workload with further notes on parts that are not predicted."""
        return replace(self, skipped=(*self.skipped, *notes))

    def runs(self, place: int, name: str) -> float:
        """Return how often the workload runs a layer in the pass `place`, as a mean over all passes.

        This is the share of the pass, times the number of equal layers that a node of its graph represents.
        """
        return self.passes[place].share * (self.graphs[place][name].runs if self.graphs else 1.0)

    @property
    def runtime(self) -> str:
        """Runtime of the model graphs, `engine` or `torch`; `engine` if no graph is known."""
        return self.graphs[0].runtime if self.graphs else "engine"

    @property
    def weights(self) -> int:
        """Number of elements of all layers before pruning."""
        return sum(layer.size * layer.count for layer in self.layers.values())

    @property
    def model_weights(self) -> int:
        """Number of elements of all matrices of the model, or of the layers if no model graph is known."""
        return max((graph.weights for graph in self.graphs), default=0) or self.weights

    def importance(self, name: str) -> ImportanceArray:
        """Read or draw the weights of a layer and return their importance, shape (M, K)."""
        layer = self.layers[name]
        parts = [self._importance(each) for each in layer.members or (layer,)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _importance(self, layer: Layer) -> ImportanceArray:
        scores = even_parts(weigh(layer.name, layer.weights), layer.parts)
        if self.calibration is not None:
            scores = self.calibration.weigh(layer.name, scores)
        # Check each matrix before stacking, so that messages contain the names of the file.
        return check_ranks(layer.name, scores)


def stacked_as_launched(
    workload: Workload, apart: Collection[str] = (), *, own_tiles: bool = True
) -> Workload:
    """Return the workload with matrices stacked along M where torch launches them as one product.

    Parameters
    ----------
    apart : layers that are launched separately
    own_tiles : True if the stacked matrices have separate tiles, False if they share tiles
    """
    own = [name for name in workload.layers if name not in apart]
    groups = launched_together(workload.graphs[0], own) if workload.graphs else []
    if not groups:
        return workload
    group_of = {name: group for group in groups for name in group}
    layers: dict[str, WorkloadLayer] = {}
    for name, layer in workload.layers.items():
        own_group = [workload.layers[each] for each in group_of.get(name, ())]
        stacked = _stacked(own_group) if own_group else layer
        layers.setdefault(stacked.name, stacked)
    graphs = (together(graph, groups, own_tiles=own_tiles) for graph in workload.graphs)
    return replace(workload, layers=layers, graphs=tuple(graphs))


def _stacked(members: Sequence[WorkloadLayer]) -> WorkloadLayer:
    return replace(
        members[0],
        name=joint_name([each.name for each in members]),
        shape=(sum(each.shape[0] for each in members), members[0].shape[1]),
        load=lambda: np.concatenate([each.weights for each in members]),
        members=tuple(members),
    )


def calibrated(workload: Workload, known: Calibration) -> Workload:
    """Return the workload with importance weighted by the input statistics `known`.

    Raise BadInput for random weights, or for a layer without statistics.
    """
    if workload.form == "standard":
        raise BadInput("calibrate is of trained weights, a standard model has random ones")
    for layer in workload.layers.values():
        for each in layer.members or (layer,):
            known.weigh(each.name, np.zeros((1, each.shape[1]), np.float32))  # refuse before the search
    return replace(workload, calibration=known)


def experts_of(workload: Workload) -> dict[tuple[int, int, int], ExpertPart]:
    """Return (M, K, N) -> part of a fused MoE layer, for the products of experts."""
    products = [product for graph in workload.graphs for product in graph.products.values()]
    return {(p.m, p.k, p.n): p.experts for p in products if p.experts is not None}


def grids_of(workload: Workload) -> dict[tuple[int, int, int], ConvGrid]:
    """Return (M, K, N) -> grid of zero-padded images, for torch convolutions that keep the image size."""
    graphs = [graph for graph in workload.graphs if graph.runtime == "torch"]
    products = [product for graph in graphs for product in graph.products.values()]
    return {
        (p.m, p.k, p.n): ConvGrid.of_network(p.convolution)
        for p in products
        if p.convolution is not None and p.convolution.keeps_size
    }
