"""`LayerJob`: predict one layer with all compared kernels.

For each kernel, the layer is pruned to the kernel's pattern, its launches are planned, and their time is
predicted.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.interval import Interval, guessed_share, interval_s
from prunecast.codesign.prediction import Prediction
from prunecast.errors import BadInput
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.launch.context import zero_row_count
from prunecast.launch.floor import padded_copy_seconds
from prunecast.models import packed_bytes
from prunecast.patterns import parse_pattern
from prunecast.patterns.sources import Layer
from prunecast.patterns.sources.readers import RECIPE
from prunecast.patterns.tile_element import TwoParts
from prunecast.workload.candidates import Candidate, zeros_note
from prunecast.workload.engines import Engine, Outcome
from prunecast.workload.expert_launches import share_of
from prunecast.workload.layer_launches import LayerLaunches, kernel_dtype, seconds_of
from prunecast.workload.layers import Skipped
from prunecast.workload.load import UNEVEN
from prunecast.workload.pruned_maps import DEFAULT_SPARSITY, sparsity_for
from prunecast.workload.two_parts import remainder_note
from prunecast.workload.workload import Workload, WorkloadLayer

FAR_FROM_WANTED = 0.05
"""Least difference between requested and achieved sparsity for which a note is shown."""


TOKENS_TOGETHER = 8
"""Number of fp16 tokens in one 16-byte load."""
WORTH_PADDING = 0.9
"""Padding is mentioned in a note if it reduces the time to at most this share of the time without padding."""


LOSES = 1.5
"""Ratio of a kernel's closed-form time to that of the layer's fastest sparse kernel, above which the kernel
cannot be the fastest. Kind: choice, more than twice the largest error of the closed form."""


Row = Prediction | Skipped
"""Result of one kernel on one layer: the prediction, or the reason why the kernel was skipped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerJob:
    """The layers of a prediction on one GPU, and the kernels that are compared on each layer.

    Parameters
    ----------
    workload : layers and passes of the model
    launches : layers as rows of the result table, the prediction engine, and the launch settings
    candidates : kernels to compare and their patterns, dense first
    sparsity : the requested sparsity; None for the default sparsity of each pattern
    strict : True if a kernel that cannot run a layer is an error; otherwise the kernel is skipped
    tokens : requested N of layers that are not convolutions, used only in the notes of predictions
    experts_per_token : number of experts to which each token is routed, for layers that are experts
    holds_plans : True if predictions keep their plans in memory; otherwise `Prediction.plan` plans again
    """

    workload: Workload
    launches: LayerLaunches
    candidates: tuple[Candidate, ...]
    sparsity: float | None
    strict: bool
    tokens: int
    experts_per_token: int
    holds_plans: bool
    candidates_of: Mapping[str, tuple[Candidate, ...]]
    """Layer -> kernels to compare instead of `candidates`, if the weights were pruned with a recipe."""
    for_losers: Engine | None
    """Engine for kernels that cannot be the fastest (see `LOSES`); None to use `engine` for all kernels."""

    @property
    def engine(self) -> Engine:
        """The prediction engine."""
        return self.launches.engine

    def must_run(self, candidate: Candidate) -> bool:
        """Return True if it is an error when the candidate's kernel cannot run a layer."""
        return self.strict or KERNELS[candidate.kernel].is_baseline

    def plan(
        self, layer: WorkloadLayer, candidate: Candidate
    ) -> tuple[PrunedMap | TwoParts | None, tuple[KernelPlan, ...]]:
        """Return a layer's sparsity map for a candidate (None for dense), and the launches of its kernel.

        Raises
        ------
        BadInput : the kernel cannot run the layer, or pruning would remove the whole matrix
        """
        if KERNELS[candidate.kernel].is_baseline:
            return None, (self.launches.dense_plan(layer),)
        self.launches.check_runs(layer, candidate.kernel)
        kept = self.launches.kept(self.launches.maker, layer, candidate, self.sparsity)
        if kept.density == 0.0:
            raise BadInput(f"{kept.pattern} at this sparsity removes all of a matrix of {kept.m}x{kept.k}")
        return kept, self.launches.launches(layer, candidate.kernel, kept)


def start_layer(
    job: LayerJob, layer: WorkloadLayer, tick: Callable[[], None] = lambda: None
) -> Callable[[], list[Row]]:
    """Plan all kernels of one layer, and start to predict them with the engine.

    Plans are made in the calling thread, since they share the importance and the maps of the layer.
    Simulations run in the threads of the engine while the next layers are planned.

    Parameters
    ----------
    tick : called twice for each kernel: when it has been planned, and when its prediction is finished

    Returns
    -------
    function that waits for the simulations and returns the result of each kernel, dense first

    Raises
    ------
    BadInput : a kernel that must run cannot run the layer
    """
    planned: list[_PlannedKernel | BadInput] = []
    candidates = job.candidates_of.get(layer.name, job.candidates)
    if layer.name in job.launches.maker.given:
        # Raise here for weights that contradict the recipe: no kernel may be skipped for that reason
        job.launches.maker.given[layer.name].make()
    for candidate in candidates:
        try:
            planned.append(_plan_kernel(job, layer, candidate))
        except BadInput as error:
            planned.append(error)
        tick()
    sparse_s = [each.closed_s for each in planned if not isinstance(each, BadInput) and each.closed_s]
    least_s = min(sparse_s, default=0.0)
    runs = [
        each
        if isinstance(each, BadInput)
        else each.start(job.for_losers if job.for_losers and each.closed_s > LOSES * least_s else job.engine)
        for each in planned
    ]
    for candidate, run in zip(candidates, runs, strict=True):
        if isinstance(run, BadInput) and job.must_run(candidate):
            raise _named(layer, candidate, run) from run

    def rows() -> list[Row]:
        found: list[Row] = []
        dense_s = None
        for candidate, run in zip(candidates, runs, strict=True):
            try:
                if isinstance(run, BadInput):
                    raise run
                predicted = run(dense_s)
                found.append(predicted)
                dense_s = dense_s or predicted.seconds
            except BadInput as error:
                if job.must_run(candidate):
                    raise _named(layer, candidate, error) from error
                found.append(Skipped(layer=layer.name, kernel=candidate.kernel, reason=str(error)))
            tick()
        return found

    return rows


class _PlannedKernel(NamedTuple):
    """A kernel whose launches for a layer are planned, before its prediction starts."""

    closed_s: float
    """Seconds by the closed form. It is 0 for the dense kernel, which is always predicted by the job's
    engine, and for all kernels if the job has no engine `for_losers`."""
    start: Callable[[Engine], Callable[[float | None], Prediction]]
    """Function that starts to predict all launches with an engine. It returns a second function, which waits
    for the results and returns the prediction, given the seconds of the dense kernel (None for dense)."""


def _plan_kernel(job: LayerJob, layer: WorkloadLayer, candidate: Candidate) -> _PlannedKernel:
    """Prune a layer for one kernel and plan its launches."""
    kept, launches = job.plan(layer, candidate)
    note = _note(job, layer, candidate, kept, launches)
    sequences = job.launches.sequences(layer, launches)
    closed_s = seconds_of(sequences, job.engine.estimated_seconds) if job.for_losers is not None else 0.0

    def start(engine: Engine) -> Callable[[float | None], Prediction]:
        started = [tuple(engine.start(plan) for plan in each.launches) for each in sequences]
        return partial(prediction, engine, started)

    def prediction(
        engine: Engine, started: Sequence[tuple[Future[Outcome], ...]], dense_seconds: float | None
    ) -> Prediction:
        times = [
            each.before_s + each.share * sum(outcome.result().seconds for outcome in outcomes)
            for each, outcomes in zip(sequences, started, strict=True)
        ]
        seconds, place = min((seconds, place) for place, seconds in enumerate(times))
        call = job.launches.dense_call(layer) if kept is None else None
        seconds = call.seconds if call else seconds + job.launches.quantise_seconds(layer)
        fastest, outcomes = sequences[place], [outcome.result() for outcome in started[place]]
        plan = fastest.launches[0]
        interval = kernel_interval(engine, candidate.kernel, seconds, fastest.launches)
        if call is not None:
            interval = Interval(call.low_s, call.high_s, call.evidence, "")

        def plan_again() -> KernelPlan:
            return job.launches.sequences(layer, job.plan(layer, candidate)[1])[place].launches[0]

        is_grouped = plan.experts > 1
        return Prediction(
            layer=layer.name,
            m=layer.shape[0] if is_grouped else plan.m,
            k=plan.k,
            n=layer.n,
            dtype=plan.dtype,
            pattern="dense" if kept is None else kept.pattern,
            sparsity=0.0 if kept is None else 1.0 - kept.density,
            kernel=candidate.kernel,
            engine=engine.name,
            conditions=engine.conditions,
            seconds=seconds,
            seconds_low=interval.low_s,
            seconds_high=interval.high_s,
            speedup_over_dense=(seconds if dense_seconds is None else dense_seconds) / seconds,
            bound=call.bound if call else max(outcomes, key=lambda outcome: outcome.seconds).bound,
            note="; ".join(
                text for text in (note, fastest.note, interval.warning, call.note if call else "") if text
            ),
            planned=(lambda: plan) if job.holds_plans else cache(plan_again),
            packed_bytes=0.0 if kept is None else share_of(plan, layer.shape[0]) * packed_bytes(plan),
            result=outcomes[0],
            gpu=engine.gpu,
        )

    return _PlannedKernel(0.0 if KERNELS[candidate.kernel].is_baseline else closed_s, start)


def kernel_interval(
    engine: Engine, kernel: str, seconds: float, launches: tuple[KernelPlan, ...]
) -> Interval:
    """Return the interval of a predicted time of a kernel; `launches` are the launches of the prediction."""
    return interval_s(
        kernel,
        seconds,
        # Grouped launches were never measured
        gpu=engine.gpu.name if launches[0].experts == 1 else "",
        engine=engine.name,
        state=engine.conditions.state,
        tokens=launches[0].n,
        guessed_costs=max(KERNELS[each.kernel].guessed_costs(engine.gpu) for each in launches),
        guessed_gpu=guessed_share(engine.gpu),
    )


def _note(
    job: LayerJob,
    layer: WorkloadLayer,
    candidate: Candidate,
    kept: PrunedMap | TwoParts | None,
    launches: tuple[KernelPlan, ...],
) -> str:
    """Return the note of a prediction: remarks for the user, joined by semicolons."""
    kernel, gpu = KERNELS[candidate.kernel], job.engine.gpu
    dtype = kernel_dtype(layer, job.launches.dtype)
    notes = [layer.note, f"{layer.dtype} weights run as {dtype}" if dtype != layer.dtype else None]
    if layer.experts is not None:
        shared = f"{job.experts_per_token} of {layer.experts} experts"
        got = f"{layer.n} of {job.tokens} tokens (--experts-per-token)"
        notes.append(f"each token goes to {shared}, evenly: {got}")
    given = job.launches.maker.given.get(layer.name)
    if given is not None:
        notes.append(f"pruned as {RECIPE} says, {given.pattern}: --pattern or --sparsity prunes it again")
    elif kernel.is_baseline and len(job.candidates) > 1 and job.workload.form != "standard":
        notes.append(zeros_note(layer))
    if kept is not None:
        notes.append(job.launches.maker.fit(layer.name, candidate.pattern, natural=candidate.natural).note)
        notes.append(_sparsity_note(job, candidate, kept) if given is None else None)
        notes.append(remainder_note(launches, kept) if kernel.parts else None)
        notes.append(_padding_note(job, layer, candidate.kernel, kept, launches))
        if rows := zero_row_count(launches[0]):
            notes.append(f"a second launch writes {rows} rows of zeros, its time included")
        if padded_copy_seconds(launches[0], gpu):
            notes.append(f"copies of B and C to padded rows, their time included (N = {launches[0].n})")
        notes.append(kernel.why_predicted_only(launches[0], gpu))
    if kernel.is_baseline:
        notes.append(_odd_rows_note(job.engine, layer, launches[0]))
    if layer.filters is not None and layer.convolution is None and UNEVEN not in (layer.note or ""):
        notes.append(f"product with {job.tokens} tokens: no input size given")
    return "; ".join(note for note in notes if note)


def _sparsity_note(job: LayerJob, candidate: Candidate, kept: PrunedMap | TwoParts) -> str:
    """Return a note if the achieved sparsity differs much from the requested one, else an empty string.

    The pattern `dense` removes nothing, whatever sparsity is requested.
    """
    if kept.pattern == "dense":
        return ""
    removed = 1.0 - kept.density
    wanted = sparsity_for(parse_pattern(kept.pattern), job.sparsity, natural=False)
    if wanted is None and candidate.natural:
        wanted = DEFAULT_SPARSITY
    if wanted is None or abs(removed - wanted) <= FAR_FROM_WANTED:
        return ""
    return f"{kept.pattern} removes {removed:.0%}, not {wanted:.0%}"


def _padding_note(
    job: LayerJob,
    layer: WorkloadLayer,
    kernel: str,
    kept: PrunedMap | TwoParts,
    launches: tuple[KernelPlan, ...],
) -> str | None:
    """Return a note if the layer would be faster with N padded to a multiple of `TOKENS_TOGETHER`, else None.

    If N is odd, elements are loaded one by one.
    """
    padded = -(-layer.n // TOKENS_TOGETHER) * TOKENS_TOGETHER
    if (
        layer.n == padded
        or launches[0].experts > 1
        or isinstance(kept, TwoParts)
        or KERNELS[kernel].most_tokens is None
    ):
        return None
    plan = fastest_plan(kernel, kept, n=padded, dtype=launches[0].dtype, gpu=job.engine.gpu)
    seconds = job.engine.estimate(plan).seconds
    if seconds > WORTH_PADDING * job.engine.estimated_seconds(launches):
        return None
    return f"padded to {padded} tokens it would take {1e6 * seconds:.3g} us (closed-form model)"


def _odd_rows_note(engine: Engine, layer: Layer, dense: KernelPlan) -> str | None:
    """Return a note if dense is slower without padded rows and columns of A, else None.

    cuBLAS loads rows that are not aligned to 16 bytes two or four bytes at a time.
    """
    m, k = (-(-size // TOKENS_TOGETHER) * TOKENS_TOGETHER for size in layer.shape)
    if (m, k) == layer.shape or layer.filters is not None:
        return None
    as_is = plan_dense(*layer.shape, dense.n, dense.dtype, engine.gpu, is_padded=False)
    seconds = engine.estimate(as_is).seconds
    if engine.estimate(dense).seconds > WORTH_PADDING * seconds:
        return None
    return f"rows padded to {m}x{k}: not aligned as they are, {1e6 * seconds:.3g} us (closed form)"


def _named(layer: Layer, candidate: Candidate, error: BadInput) -> BadInput:
    """Return the error with the names of the kernel and of the layer in its message."""
    text = str(error)
    return error if layer.name in text else type(error)(f"{candidate.kernel} on {layer.name}: {text}")
