"""`WholeModel`: end-to-end time and memory of a model, dense and with the fastest kernel for each layer."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from prunecast.codesign.layer_job import LayerJob, kernel_interval
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.whole_choice import Rows, dense_remark, fastest_rows
from prunecast.hardware import GpuSpec
from prunecast.hardware.power import LaunchPower, launch_power
from prunecast.kernels import DTYPE_BYTES, KERNELS, plan_dense
from prunecast.text import milliseconds
from prunecast.workload.dense_calls import dense_call
from prunecast.workload.energy import activity_seconds, pass_activity, plan_activity
from prunecast.workload.graph import ModelTime, Pass, model_time
from prunecast.workload.graph.model_graph import COLLECTIVES
from prunecast.workload.graph.model_time import mixed_time
from prunecast.workload.memory import PassMemory, pass_memory
from prunecast.workload.workload import experts_of

DENSE = "dense"
"""Name of the dense kernel in `KERNELS`."""
HOUR_S = 3600.0
"""Kind: definition."""
LEAST_SHOWN = 0.005
"""Least removed share that is not 0 as a whole percentage. Kind: definition."""
PRICED_TOKENS = 1e6
"""Number of tokens to which a cost refers. Kind: definition."""

UNFUSED = ("gemm", "patches", "convolution", "attention", *COLLECTIVES)
"""Kinds of operations that cannot be fused into other launches."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "products": ("gemm",),
    "attention": ("attention",),
    "norms": ("normalise", "rms norm", "head norm"),
    "transposes": ("transpose", "transpose epilogue"),
    "quantising": ("quantise",),
    "sums over GPUs": COLLECTIVES,
}
"""Part of a pass -> kinds of operations in it; all other kinds are in the part `other`."""


class PassOutcome(NamedTuple):
    """Predicted time, memory and power of one pass of a model with one choice of kernels.

    `low_s` and `high_s` are the bounds of the time in seconds.
    """

    time: ModelTime
    low_s: float
    high_s: float
    """Upper bound of the time. Products and attention have intervals; other operations have none."""
    memory: PassMemory
    activity: float
    """Mean activity of the pass, see `hardware.clock.activity_of`."""
    power: LaunchPower
    """Mean power of a GPU, and seconds of the pass, if passes follow each other for several seconds."""

    @property
    def fused_s(self) -> float:
        """Lower bound of the pass in seconds: the time of the kinds of operations in `UNFUSED`.

        These are products, convolutions, attention and collectives. The time of all other operations is left
        out, as if they were fused into these.
        """
        of = self.time.seconds_by_kind
        return sum(of.get(kind, 0.0) for kind in UNFUSED)

    @property
    def seconds_by_part(self) -> dict[str, float]:
        """Part of the pass -> seconds; the parts are the keys of `PARTS` and `other`."""
        left = dict(self.time.seconds_by_kind)
        parts = {part: sum(left.pop(kind, 0.0) for kind in kinds) for part, kinds in PARTS.items()}
        return {**parts, "other": sum(left.values())}


class Phase(NamedTuple):
    """One pass of the workload, such as prefill: predicted dense, and with the fastest kernels (`best`)."""

    run: Pass
    dense: PassOutcome
    best: PassOutcome

    has_images: bool
    """True if the model reads images, so that sizes are images and not tokens."""
    generates: bool
    """True if the pass ends with the next token of each sequence."""

    @property
    def speedup(self) -> float:
        """Dense time over the time with the fastest kernels."""
        return self.dense.time.seconds / self.best.time.seconds

    @property
    def words(self) -> str:
        """Description of the pass, such as `8 sequences of 512 tokens`."""
        return self.run.words(has_images=self.has_images)

    @property
    def tokens_per_pass(self) -> int:
        """Number of tokens or images that one pass computes, on all GPUs together.

        A decode pass computes one token for each sequence.
        """
        return self.run.batch if self.has_images or self.run.is_decode else self.run.columns

    def verdict(self, removed: float) -> str:
        """Return the dense time, the pruned time with its interval, and the speedup as one line of text.

        Parameters
        ----------
        removed : share of the weights that is removed, shown in the text
        """
        best = self.best
        what = f"pruned by {100 * removed:.0f} %" if removed >= LEAST_SHOWN else "fastest kernels"
        bounds = f"({milliseconds(best.low_s)} - {milliseconds(best.high_s)})"
        return (
            f"dense {milliseconds(self.dense.time.seconds)} ms, {what} "
            f"{milliseconds(best.time.seconds)} ms {bounds}: {self.speedup:.2f}x"
        )

    def cost(self, outcome: "PassOutcome", price_per_hour: float) -> float:
        """Return the price of a million tokens (or images).

        Parameters
        ----------
        outcome : `dense` or `best` of this phase
        price_per_hour : price of one GPU for an hour
        """
        gpu_hours = self.run.gpus * outcome.time.seconds / HOUR_S
        return price_per_hour * gpu_hours * PRICED_TOKENS / self.tokens_per_pass


class WholeModel(NamedTuple):
    """Times and memory of a whole model, including attention, norms and transposes.

    `phases` are the passes of the workload. `dense` and `best` are means over them.
    """

    phases: tuple[Phase, ...]
    gpu: GpuSpec
    kernels: Mapping[str, str]
    """Row of the prediction table -> its kernel in `best`, with which the whole pass is fastest."""
    remarks: tuple[str, ...] = ()
    """Lines printed below the table: layers that stay dense for a faster pass, and what padding saves."""
    price: float | None = None
    """Price of an hour of one GPU, if it is known."""

    @property
    def gpus(self) -> int:
        """Number of GPUs that share the model; times and memory are per GPU."""
        return self.phases[0].run.gpus

    @property
    def dense(self) -> ModelTime:
        """Time with dense products: the mean of the passes, weighted by their shares in the workload."""
        return mixed_time([(phase.run.share, phase.dense.time) for phase in self.phases])

    @property
    def best(self) -> ModelTime:
        """Time with the fastest kernel of each layer: the mean of the passes, weighted by their shares."""
        return mixed_time([(phase.run.share, phase.best.time) for phase in self.phases])

    @property
    def speedup(self) -> float:
        """End-to-end speedup: dense time over the time with the fastest kernels."""
        return self.dense.seconds / self.best.seconds

    def document(self) -> dict[str, Any]:
        """Return the JSON object `whole_model` of `prunecast predict --json`."""
        return {
            **{
                name: {"seconds": time.seconds, "seconds_by_kind": time.seconds_by_kind}
                for name, time in (("dense", self.dense), ("best", self.best))
            },
            "gpu_memory_bytes": self.gpu.dram_bytes,
            "kernels": dict(self.kernels),
            "remarks": list(self.remarks),
            "phases": [
                {
                    **phase.run._asdict(),
                    "has_images": phase.has_images,
                    "generates": phase.generates,
                    "dense": self._outcome(phase, phase.dense),
                    "best": self._outcome(phase, phase.best),
                }
                for phase in self.phases
            ],
        }

    def _outcome(self, phase: Phase, outcome: PassOutcome) -> dict[str, Any]:
        cost = {} if self.price is None else {"cost_per_million": phase.cost(outcome, self.price)}
        return {
            **cost,
            "seconds": outcome.time.seconds,
            "seconds_low": outcome.low_s,
            "seconds_high": outcome.high_s,
            "seconds_fused": outcome.fused_s,
            "seconds_by_kind": outcome.time.seconds_by_kind,
            "kernels_by_kind": {kind: list(names) for kind, names in outcome.time.kernels_by_kind.items()},
            "power": {"watts": outcome.power.watts, "seconds": outcome.power.seconds},
            **outcome.memory.document(self.gpu.dram_bytes),
        }


SMALL_N, OF_MANY_TOKENS = "small-n", ("stspmm", "tile-wise")
"""The tile kernel for few tokens, and the tile kernels for many tokens."""


class _ProductTime(NamedTuple):
    """Time and weight bytes of one product of the graph, run once by one kernel."""

    seconds: float
    low_s: float
    high_s: float
    kernel: str
    packed_bytes: float
    """Bytes of the weights as the kernel reads them."""
    activity_s: float
    """Activity of the launch times its seconds, in seconds, from which the power of the pass follows."""

    @property
    def is_sparse(self) -> bool:
        """True if the kernel is a sparse one."""
        return not KERNELS[self.kernel].is_baseline


def whole_model(
    job: LayerJob,
    predictions: Sequence[Prediction],
    price: float | None = None,
) -> WholeModel:
    """Return the end-to-end times and the memory of the model that a job predicts.

    Parameters
    ----------
    predictions : predictions of all layers with all kernels
    price : price of one GPU for an hour, in any currency
    """
    passes, graphs = job.workload.passes, job.workload.graphs
    # With few tokens, torch always packs tiles for the kernel `small-n`, even if the kernel for many tokens
    # would be faster: see `torch.layer_plans.plan_for`
    is_torch = job.workload.runtime == "torch"
    few = {row.layer for row in predictions if row.kernel == SMALL_N and is_torch}
    rows_of: dict[str, list[Prediction]] = {}
    for row in predictions:
        if row.kernel not in OF_MANY_TOKENS or row.layer not in few:
            rows_of.setdefault(row.layer, []).append(row)
    dense = {name: rows[0] for name, rows in rows_of.items()}
    unpredicted = cache(partial(_dense_product, job))  # products of several passes run once

    def seconds(place: int, rows: Rows) -> float:
        return _time(job, place, _products(job, place, rows, unpredicted)).seconds

    alone = {name: min(rows, key=lambda row: row.seconds) for name, rows in rows_of.items()}
    best: dict[str, Prediction] = {}
    remarks = []
    for place, graph in enumerate(graphs):
        layers = [layer for layer in job.launches.layers.values() if layer.in_pass == place]
        best |= fastest_rows(layers, rows_of, graph, partial(seconds, place))
        remarks.append(dense_remark(layers, alone, best, (seconds(place, alone), seconds(place, best))))
    outcomes = [
        _outcomes(job, [_products(job, place, rows, unpredicted) for place in range(len(passes))])
        for rows in (dense, best)
    ]
    # Graphs with a convolution read images, of which `Pass.batch` is the number
    has_images = [any(o.convolution is not None for o in graph) for graph in graphs]
    # A pass generates text if it has a head for one token per sequence, and a state for the tokens before
    generates = [
        not run.all_logits
        and any(o.elements_kept or (o.attention is not None and o.attention.is_causal) for o in graph)
        for run, graph in zip(passes, graphs, strict=True)
    ]
    phases = tuple(map(Phase, passes, *outcomes, has_images, generates))
    kernels = {name: row.kernel for name, row in best.items()}
    return WholeModel(phases, job.engine.gpu, kernels, tuple(filter(None, remarks)), price)


def _products(
    job: LayerJob,
    place: int,
    row_of_layer: Mapping[str, Prediction],
    unpredicted: Callable[[int, int, int], _ProductTime],
) -> dict[str, _ProductTime]:
    """Return product of the graph -> its time and weight bytes in one pass.

    Products whose layer has no row in the prediction table run dense.

    Parameters
    ----------
    place : index of the pass
    row_of_layer : layer -> its row in the prediction table
    unpredicted : returns a dense product that has no row, given M, K and N
    """
    found: dict[str, _ProductTime] = {}
    gpu, dtype = job.engine.gpu, job.launches.dtype or "fp16"
    for layer in job.launches.layers.values():
        if layer.in_pass == place:
            row = row_of_layer[layer.name]
            is_dense = KERNELS[row.kernel].is_baseline
            sizes = _dense_bytes(job, row.m, row.k) if is_dense else row.packed_bytes
            activity_s = row.seconds * plan_activity(row.result, gpu, dtype)
            one = _ProductTime(row.seconds, row.seconds_low, row.seconds_high, row.kernel, sizes, activity_s)
            found |= dict.fromkeys(layer.stands_for, one)
    graph = job.workload.graphs[place]
    return {name: found.get(name) or unpredicted(o.m, o.k, o.n) for name, o in graph.products.items()}


def _dense_product(job: LayerJob, m: int, k: int, n: int) -> _ProductTime:
    """Return a dense product that has no row in the table, such as the output head."""
    engine, dtype, size = job.engine, job.launches.dtype or "fp16", _dense_bytes(job, m, k)
    part, scales = experts_of(job.workload).get((m, k, n)), job.launches.scales
    call = dense_call(m, k, n, dtype, engine.gpu, state=engine.conditions.state, fused=part, scales=scales)
    if call is not None:
        moved = size + DTYPE_BYTES[dtype] * n * (m + k)
        activity_s = activity_seconds(2.0 * m * k * n, moved, engine.gpu, dtype)
        return _ProductTime(call.seconds, call.low_s, call.high_s, DENSE, size, activity_s)
    plan = plan_dense(m, k, n, dtype, engine.gpu)
    outcome = engine.run(plan)
    interval = kernel_interval(engine, DENSE, outcome.seconds, (plan,))
    activity_s = outcome.seconds * plan_activity(outcome, engine.gpu, dtype)
    return _ProductTime(outcome.seconds, interval.low_s, interval.high_s, DENSE, size, activity_s)


def _dense_bytes(job: LayerJob, m: int, k: int) -> float:
    """Return the bytes of a dense matrix A (M, K) in the dtype of the launches."""
    return float(DTYPE_BYTES[job.launches.dtype or "fp16"] * m * k)


def _time(job: LayerJob, place: int, of_pass: Mapping[str, _ProductTime]) -> ModelTime:
    """Return the predicted time of pass number `place` of the workload, with these times of its products."""
    graph = job.workload.graphs[place]
    sparse = frozenset(name for name, product in of_pass.items() if product.is_sparse)
    return model_time(
        graph,
        job.engine.gpu,
        {name: graph[name].runs * product.seconds for name, product in of_pass.items()},
        sparse=sparse,
        unfused=frozenset(name for name in sparse if not KERNELS[of_pass[name].kernel].fuses_in_torch),
        conditions=job.engine.conditions,
        dtype=job.launches.dtype or "fp16",
    )


def _outcomes(job: LayerJob, products: Sequence[Mapping[str, _ProductTime]]) -> list[PassOutcome]:
    """Return the outcome of each pass, given the time and bytes of its products.

    If the passes run a layer with different kernels, memory contains packed weights for each of the kernels.
    """
    forms: dict[str, dict[str, float]] = {}
    dtype = job.launches.dtype or "fp16"
    for of_pass in products:
        for name, product in of_pass.items():
            forms.setdefault(name, {})[product.kernel] = product.packed_bytes
    resident = {name: sum(sizes.values()) for name, sizes in forms.items()}
    outcomes = []
    runs = zip(job.workload.passes, job.workload.graphs, products, strict=True)
    for place, (run, graph, of_pass) in enumerate(runs):
        time = _time(job, place, of_pass)
        lower = sum(
            (graph[name].runs * (one.seconds - one.low_s) for name, one in of_pass.items()), time.below_s
        )
        higher = sum(
            (graph[name].runs * (one.high_s - one.seconds) for name, one in of_pass.items()), time.above_s
        )
        memory = pass_memory(graph, run.batch, DTYPE_BYTES[dtype], resident)
        activities = {name: graph[name].runs * one.activity_s for name, one in of_pass.items()}
        activity = pass_activity(graph, time, activities, job.engine.gpu, dtype)
        power = launch_power(job.engine.gpu, time.seconds, activity)
        outcomes.append(
            PassOutcome(time, time.seconds - lower, time.seconds + higher, memory, activity, power)
        )
    return outcomes
