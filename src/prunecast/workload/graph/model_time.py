"""`model_time`: the end-to-end time of a graph and the part of it that pruning can reduce.

`PassTimes` holds the passes of a model and returns the time of each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.launch import USUAL, Conditions
from prunecast.workload.graph.convolutions import make_token_major
from prunecast.workload.graph.experts import are_fused
from prunecast.workload.graph.fusions import (
    EPILOGUES,
    added_elements,
    after_sum,
    may_be_epilogue,
    rotated_in_place,
    sums_after,
)
from prunecast.workload.graph.layouts import Transpose, transposed_by_dense
from prunecast.workload.graph.model_graph import ModelGraph, Operation
from prunecast.workload.graph.runtimes import RUNTIMES, call_of, is_call, moved_seconds, with_sparse
from prunecast.workload.graph.transposes import (
    TRANSPOSES,
    mark_fp8,
    quantise_for,
    quantised_norm,
    transpose_for,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTime:
    """Times of one forward pass in one stream, operation after operation.

    Parameters
    ----------
    seconds_of : operation -> seconds, in order of execution
    kind_of : operation -> its kind
    transposes : tensors whose layout changes
    turning_seconds : writer of a tensor whose layout changes -> seconds of its transpose, which all readers
        share
    kernels_by_kind : kind of fused attention and collectives -> names of the library kernels that are assumed
    below_s, above_s : seconds by which the calls of these kernels may be shorter or longer, according to
        their intervals
    """

    seconds_of: dict[str, float]
    kind_of: dict[str, str]
    transposes: tuple[Transpose, ...]
    turning_seconds: dict[str, float]
    kernels_by_kind: dict[str, tuple[str, ...]] = field(default_factory=dict)
    below_s: float = 0.0
    above_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds end to end."""
        return sum(self.seconds_of.values()) + self.transpose_seconds

    @property
    def transpose_seconds(self) -> float:
        """Seconds of all changes of layout."""
        return sum(self.turning_seconds.values())

    @property
    def product_seconds(self) -> float:
        """Seconds of products with weights, the only part of the time that pruning can reduce."""
        return sum(s for name, s in self.seconds_of.items() if self.kind_of[name] == "gemm")

    @property
    def seconds_by_kind(self) -> dict[str, float]:
        """Kind -> seconds. Transposes have their own entry."""
        total: dict[str, float] = {}
        for name, seconds in self.seconds_of.items():
            total[self.kind_of[name]] = total.get(self.kind_of[name], 0.0) + seconds
        return {**total, "transpose": self.transpose_seconds}


def model_time(
    model: ModelGraph,
    gpu: GpuSpec,
    product_seconds: Mapping[str, float],
    *,
    sparse: frozenset[str] = frozenset(),
    unfused: frozenset[str] = frozenset(),
    conditions: Conditions = USUAL,
    dtype: str = "fp16",
) -> ModelTime:
    """Return the time of a forward pass as the sum of the times of its operations.

    Parameters
    ----------
    product_seconds : product -> seconds, summed over all copies that run, launch overhead included
    sparse : products that run a sparse kernel and need feature-major tensors
    unfused : those of `sparse` after which torch runs a gated unit or a residual add as a separate kernel
    conditions : clock and launch mode of the other operations
    dtype : selects the times of the operations between the grouped launches of dense experts. With `fp8` in
        torch, passes that quantise X are added

    Raises
    ------
    BadInput : a product without a time
    """
    missing = sorted(set(model.products) - set(product_seconds))
    if missing:
        raise BadInput(f"{model.name}: no time was given for {', '.join(missing[:3])}")
    runtime = RUNTIMES[model.runtime]
    launched = with_sparse(model, frozenset(sparse), frozenset(unfused), dtype=dtype)
    seconds, turning, changed = {}, {}, []
    fused = {
        **product_seconds,
        **fused_seconds(
            launched, gpu, dtype, conditions.state, lambda o: runtime.seconds(o, gpu, conditions)
        ),
    }
    for o in launched:
        own = fused.get(o.name)
        own = runtime.seconds(o, gpu, conditions) if own is None else runtime.product_seconds(o, gpu, own)
        own += o.runs * sum(moved_seconds(moved, gpu) for moved in o.extra_moves)
        if o.kind not in TRANSPOSES:
            seconds[o.name] = own
            continue
        (source,) = launched.graph.predecessors(o.name)
        turning[source] = own
        changed += [Transpose(source, reader, o.elements_in) for reader in launched.graph.successors(o.name)]
    calls = [(o, call_of(o, gpu, conditions, model.runtime)) for o in model if is_call(o)]
    kernels: dict[str, tuple[str, ...]] = {}
    for o, call in calls:
        kernels[o.kind] = tuple(dict.fromkeys((*kernels.get(o.kind, ()), call.kernel)))
    return ModelTime(
        seconds_of=seconds,
        kind_of={o.name: o.kind for graph in (launched, model) for o in graph},
        transposes=tuple(changed),
        turning_seconds=turning,
        kernels_by_kind=kernels,
        below_s=sum(o.runs * (call.seconds - call.seconds_low) for o, call in calls),
        above_s=sum(o.runs * (call.seconds_high - call.seconds) for o, call in calls),
    )


def fused_seconds(
    model: ModelGraph, gpu: GpuSpec, dtype: str, state: str, seconds: Callable[[Operation], float]
) -> dict[str, float]:
    """Return operation -> seconds for the operations around the products of dense experts.

    These are the sorting of tokens, the activation and the sum of outputs, each summed over all copies that
    run. If a product of the layer is sparse, the result contains only the sorting, with an additional pass
    that moves x; the activation and the sum are separate kernels then.

    Parameters
    ----------
    seconds : function that returns the seconds of an operation as a separate kernel
    """
    if not are_fused(gpu, dtype):
        return {}
    parts = [(o, o.experts) for o in model if o.experts is not None]
    apart = {part.layer for o, part in parts if o.is_sparse}
    return {
        o.name: o.runs * part.seconds(gpu, dtype, state) + (seconds(o) if part.layer in apart else 0.0)
        for o, part in parts
        if not part.is_product and (part.layer not in apart or part.part == "sort")
    }


def mixed_time(passes: Sequence[tuple[float, ModelTime]]) -> ModelTime:
    """Return the mean time of passes, given as pairs of share and time. The shares sum to 1."""
    if len(passes) == 1:
        return passes[0][1]
    return ModelTime(
        seconds_of=_summed([(share, time.seconds_of) for share, time in passes]),
        kind_of=dict(chain.from_iterable(time.kind_of.items() for _, time in passes)),
        transposes=tuple(dict.fromkeys(chain.from_iterable(time.transposes for _, time in passes))),
        turning_seconds=_summed([(share, time.turning_seconds) for share, time in passes]),
        kernels_by_kind=_merged([time.kernels_by_kind for _, time in passes]),
        below_s=sum(share * time.below_s for share, time in passes),
        above_s=sum(share * time.above_s for share, time in passes),
    )


def _summed(parts: Sequence[tuple[float, dict[str, float]]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for share, seconds in parts:
        for name, own in seconds.items():
            total[name] = total.get(name, 0.0) + share * own
    return total


def _merged(parts: Sequence[dict[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Return kind -> names of kernels, merged from all passes."""
    kinds = dict.fromkeys(chain.from_iterable(parts))
    return {kind: tuple(dict.fromkeys(chain(*(part.get(kind, ()) for part in parts)))) for kind in kinds}


class PassTimes(NamedTuple):
    """Predictor of the times of the passes of a workload on a GPU."""

    passes: tuple[tuple[float, ModelGraph], ...]
    """Share and graph of each pass; empty if the graphs are not known."""
    gpu: GpuSpec
    conditions: Conditions
    dtype: str = "fp16"

    def times(
        self, seconds: Mapping[str, float], sparse: frozenset[str], unfused: frozenset[str] = frozenset()
    ) -> list[tuple[float, ModelTime]]:
        """Return the share and the time of each pass, see `model_time`.

        Parameters
        ----------
        seconds : product -> seconds in all passes together. They are divided among the passes that contain
            the product, in proportion to the shares of these passes
        sparse, unfused : see `model_time`
        """
        shares: dict[str, float] = {}
        for share, graph in self.passes:
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
                    unfused=unfused & graph.products.keys(),
                    conditions=self.conditions,
                    dtype=self.dtype,
                ),
            )
            for share, graph in self.passes
        ]

    def savings_of_dense(self, dense: Mapping[str, float], sparse: frozenset[str]) -> dict[str, float]:
        """Return layer -> seconds that are saved elsewhere in the pass if only this layer becomes dense.

        All other layers of `sparse` stay sparse. The seconds are those of the transposes that only this layer
        needs, minus the extra seconds in `lost_epilogues`.

        Parameters
        ----------
        dense : product -> seconds as a dense product in all passes together
        """
        saved: dict[str, float] = {}
        for (_, graph), (share, time) in zip(self.passes, self.times(dense, sparse), strict=True):
            for name, writers in transposed_by_dense(graph, time.transposes).items():
                own = share * sum(time.turning_seconds[writer] for writer in writers)
                saved[name] = saved.get(name, 0.0) + own
            for name, seconds in lost_epilogues(graph, self.gpu, sparse, dense, self.dtype).items():
                if name in sparse:
                    saved[name] = saved.get(name, 0.0) - share * seconds
        return saved


def lost_epilogues(
    model: ModelGraph,
    gpu: GpuSpec,
    sparse: frozenset[str] = frozenset(),
    dense: Mapping[str, float] | None = None,
    dtype: str = "fp16",
) -> dict[str, float]:
    """Return product -> extra seconds of other kernels in a pass if only this product is dense.

    The result is empty for other runtimes than torch. These are the causes of extra seconds:

    - An activation between two sparse products is the epilogue of the first. Otherwise it is a separate
      kernel. After a dense product, X of the second product must also be transposed.
    - In fp8 nothing is transposed, and a separate activation kernel writes X in fp8, so that X needs no
      quantising pass. A norm is computed and quantised in one launch only for sparse products.
    - A large residual add is in the epilogue of a sparse product, and rotary embedding after one is in place.
    - A dense convolution runs as dense tiles of this project's kernel, or images change from planes (see
      `convolutions.py`) to channels-last and back.

    Parameters
    ----------
    sparse : products that may be sparse; only the convolutions among them are considered
    dense : convolution -> seconds as a dense product; its extra seconds are relative to these
    """
    lost: dict[str, float] = {}
    if model.runtime != "torch":
        return lost
    model = make_token_major(model)  # as in a graph with sparse products
    if dtype == "fp8":
        model = mark_fp8(model)

    def seconds(o: Operation) -> float:
        return RUNTIMES["torch"].seconds(o, gpu, USUAL)

    for o in (each for each in model if may_be_epilogue(model, each)):
        apart = seconds(o) - seconds(replace(o, kind=EPILOGUES[o.kind]))
        readers = model.readers(o.name)
        apart -= sum(seconds(quantise_for(o, reader)) for reader in readers if reader.in_fp8)
        lost |= {reader.name: apart for reader in readers}
        turned = sum(seconds(transpose_for(o, reader)) for reader in readers if not reader.in_fp8)
        lost |= dict.fromkeys(model.graph.predecessors(o.name), apart + turned)
    for name, product in model.products.items():
        own = 0.0
        for norm in sums_after(model, product):
            added = moved_seconds(added_elements(norm), gpu)
            own += seconds(norm) - seconds(quantised_norm(model, after_sum(norm))) - added
        for reader in model.readers(name):
            own += seconds(reader) - seconds(rotated_in_place(model, reader))
        for norm in model.sources(name):
            is_summed = any(norm in sums_after(model, each) for each in model.sources(norm.name))
            alone = after_sum(norm) if is_summed else norm
            own += seconds(alone) - seconds(quantised_norm(model, alone))
        if own:
            lost[name] = lost.get(name, 0.0) + own
    return lost | _lost_planes(model, gpu, sparse & model.products.keys(), dense or {})


def _lost_planes(
    model: ModelGraph, gpu: GpuSpec, sparse: frozenset[str], dense: Mapping[str, float]
) -> dict[str, float]:
    nothing = dict.fromkeys(model.products, 0.0)
    convolutions = [name for name in sparse if model[name].convolution is not None]
    if not convolutions:
        return {}
    every = model_time(model, gpu, nothing, sparse=sparse).seconds
    lost = {}
    for name in convolutions:
        own = dense.get(name, 0.0)
        one = model_time(model, gpu, {**nothing, name: own}, sparse=sparse - {name})
        lost[name] = one.seconds - every - own
    return lost
