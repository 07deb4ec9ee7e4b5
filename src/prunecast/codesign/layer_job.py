"""One layer, all its kernels: prune, plan and run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.interval import guessed_share, interval_s
from prunecast.codesign.prediction import Prediction
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, ConvGrid, KernelPlan, plan_dense
from prunecast.kernels.table import zero_row_count
from prunecast.launch.floor import padded_copy_seconds
from prunecast.patterns import parse_pattern
from prunecast.patterns.sources import Layer
from prunecast.patterns.tile_element import TwoParts
from prunecast.workload.contestants import Contestant, zeros_note
from prunecast.workload.layer_launches import LayerLaunches, RunningWay, fastest, kernel_dtype, start_way
from prunecast.workload.layers import Skipped
from prunecast.workload.pruned_maps import DEFAULT_SPARSITY, sparsity_for
from prunecast.workload.two_parts import remainder_note
from prunecast.workload.workload_layers import UNEVEN

FAR_FROM_WANTED = 0.05
"""Difference between wanted and achieved sparsity that deserves a note."""


TOKENS_TOGETHER = 8
"""Tokens of fp16 that one load of 16 bytes takes."""
WORTH_PADDING = 0.9
"""Share of the time below which padding deserves a note."""


class LayerRows(NamedTuple):
    """What one layer adds to the table."""

    predictions: list[Prediction]
    skipped: list[Skipped]


class _Run(NamedTuple):
    """One kernel of one layer."""

    contestant: Contestant
    pattern: str
    density: float
    ways: list[RunningWay]
    """The fastest one counts."""
    note: str


class _Planned(NamedTuple):
    """What a kernel keeps of a layer, None for dense, and what it launches."""

    kept: PrunedMap | TwoParts | None
    launches: tuple[KernelPlan, ...]


class StartedLayer(NamedTuple):
    """A layer whose kernels are being run."""

    layer: Layer
    runs: list[_Run | BadInput]
    """One per contestant; BadInput says why it cannot run this layer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerJob(LayerLaunches):
    """All kernels that are compared on each layer.

    Parameters
    ----------
    contestants : kernels and patterns, dense first
    sparsity : as asked for, or None
    strict : a kernel that cannot run a layer is an error; else it is skipped
    holds_plans : predictions hold their plans; else they plan again when they are asked
    """

    contestants: tuple[Contestant, ...]
    sparsity: float | None
    strict: bool
    holds_plans: bool = True

    def start(self, layer: Layer) -> StartedLayer:
        """Plan all kernels of one layer and begin their runs. Raises BadInput if one that must run cannot."""
        runs = [self._start(layer, contestant) for contestant in self.contestants]
        for contestant, run in zip(self.contestants, runs, strict=True):
            if isinstance(run, BadInput) and self._must_run(contestant):
                raise _named(layer, run) from run
        return StartedLayer(layer, runs)

    def collect(self, started: StartedLayer, tick: Callable[[], None]) -> LayerRows:
        """Wait for the runs of one layer; `tick` is called after each."""
        layer, rows = started.layer, LayerRows([], [])
        for contestant, run in zip(self.contestants, started.runs, strict=True):
            try:
                if isinstance(run, BadInput):
                    raise run
                way = fastest(run.ways)
                seconds = way.seconds
            except BadInput as error:
                if self._must_run(contestant):
                    raise _named(layer, error) from error
                rows.skipped.append(Skipped(layer=layer.name, kernel=contestant.kernel, reason=str(error)))
            else:
                dense = rows.predictions[0].seconds if rows.predictions else seconds
                rows.predictions.append(self._prediction(layer, run, way, dense))
            tick()
        return rows

    def _must_run(self, contestant: Contestant) -> bool:
        return self.strict or not KERNELS[contestant.kernel].prunes

    def _start(self, layer: Layer, contestant: Contestant) -> _Run | BadInput:
        """Plan one kernel and begin its run, or say why it cannot run this layer."""
        try:
            return self._begin(layer, contestant)
        except BadInput as error:
            return error

    def _begin(self, layer: Layer, contestant: Contestant) -> _Run:
        dtype = kernel_dtype(layer, self.dtype)
        notes = [layer.note, f"{layer.dtype} weights run as {dtype}" if dtype != layer.dtype else None]
        notes += [self._experts_note(layer)]
        is_dense = not KERNELS[contestant.kernel].prunes and contestant.pattern == "dense"
        if is_dense and len(self.contestants) > 1:
            notes.append(zeros_note(layer))
        kept, launches = self._planned(layer, contestant)
        pattern, density = ("dense", 1.0) if kept is None else (kept.pattern, kept.density)
        if kept is not None:
            fitted = self.maker.fit(layer.name, contestant.pattern, natural=self.natural)
            notes.append(fitted.note)
            notes.append(self._sparsity_note(kept))
            notes.append(remainder_note(launches, kept) if KERNELS[contestant.kernel].parts else None)
            notes.append(self._padding_note(layer, contestant.kernel, kept, launches))
            notes += [_zero_rows_note(launches[0]), _copies_note(launches[0], self.engine.gpu)]
            notes.append(KERNELS[contestant.kernel].why_predicted_only(launches[0], self.engine.gpu))
        if is_dense:
            notes.append(self._odd_rows_note(layer, launches[0]))
        has_size = layer.name in self.convolutions or UNEVEN in (layer.note or "")
        if layer.filters is not None and not has_size:
            notes.append(f"product with {self.n} tokens: no input size given")
        ways = [start_way(way, self.engine) for way in self.ways(layer, launches)]
        note = "; ".join(note for note in notes if note)
        return _Run(contestant, pattern, density, ways, note)

    def _planned(self, layer: Layer, contestant: Contestant) -> _Planned:
        if not KERNELS[contestant.kernel].prunes:
            return _Planned(None, (self.dense_plan(layer),))
        kept = self.kept(self.maker, layer, contestant, self.sparsity)
        if kept.density == 0.0:
            raise BadInput(f"{kept.pattern} at this sparsity removes all of a matrix of {kept.m}x{kept.k}")
        return _Planned(kept, self.launches(layer, contestant.kernel, kept))

    def _plan_again(self, layer: Layer, contestant: Contestant, way: int) -> KernelPlan:
        return self.ways(layer, self._planned(layer, contestant).launches)[way].launches[0]

    def _odd_rows_note(self, layer: Layer, dense: KernelPlan) -> str | None:
        """Says what rows that are not padded would cost: cuBLAS loads these two or four bytes at a time."""
        m, k = (-(-size // TOKENS_TOGETHER) * TOKENS_TOGETHER for size in layer.shape)
        if (m, k) == layer.shape or layer.filters is not None:
            return None
        as_is = plan_dense(*layer.shape, dense.n, dense.dtype, self.engine.gpu, is_padded=False)
        seconds = self.engine.estimate(as_is).seconds
        if self.engine.estimate(dense).seconds > WORTH_PADDING * seconds:
            return None
        return f"rows padded to {m}x{k}: not aligned as they are, {1e6 * seconds:.3g} us (closed form)"

    def _padding_note(
        self,
        layer: Layer,
        kernel: str,
        kept: PrunedMap | TwoParts,
        launches: tuple[KernelPlan, ...],
    ) -> str | None:
        """Says what padded tokens would save, where that is worth a line: odd N loads one by one."""
        n = self.tokens_of(layer)
        padded = -(-n // TOKENS_TOGETHER) * TOKENS_TOGETHER
        if n == padded or isinstance(kept, TwoParts) or KERNELS[kernel].most_tokens is None:
            return None
        plan = fastest_plan(kernel, kept, n=padded, dtype=launches[0].dtype, gpu=self.engine.gpu)
        seconds = self.engine.estimate(plan).seconds
        if seconds > WORTH_PADDING * self.engine.estimated_seconds(launches):
            return None
        return f"padded to {padded} tokens it would take {1e6 * seconds:.3g} us (closed-form model)"

    def _experts_note(self, layer: Layer) -> str | None:
        if layer.experts is None:
            return None
        got, shared = self.tokens_of(layer), f"{self.experts_per_token} of {layer.experts} experts"
        return f"each token goes to {shared}, evenly: {got} of {self.n} tokens (--experts-per-token)"

    def _sparsity_note(self, kept: PrunedMap | TwoParts) -> str:
        """Says where a pattern is too coarse for a layer."""
        removed = 1.0 - kept.density
        wanted = sparsity_for(parse_pattern(kept.pattern), self.sparsity, natural=False)
        if wanted is None and self.natural:
            wanted = DEFAULT_SPARSITY
        if wanted is None or abs(removed - wanted) <= FAR_FROM_WANTED:
            return ""
        return f"{kept.pattern} removes {removed:.0%}, not {wanted:.0%}"

    def _prediction(self, layer: Layer, run: _Run, way: RunningWay, dense_seconds: float) -> Prediction:
        plan, seconds = way.way.launches[0], way.seconds
        again = partial(self._plan_again, layer, run.contestant, run.ways.index(way))
        engine = self.engine
        guessed = max(KERNELS[launch.kernel].guessed_costs(engine.gpu) for launch in way.way.launches)
        interval = interval_s(
            run.contestant.kernel,
            seconds,
            gpu=engine.gpu.name,
            engine=engine.name,
            state=engine.state,
            tokens=plan.n,
            guessed_costs=guessed,
            guessed_gpu=guessed_share(engine.gpu),
        )
        return Prediction(
            layer=layer.name,
            m=plan.m,
            k=plan.k,
            n=self.tokens_of(layer) if isinstance(plan.source, ConvGrid) else plan.n,
            dtype=plan.dtype,
            pattern=run.pattern,
            sparsity=1.0 - run.density,
            kernel=run.contestant.kernel,
            engine=self.engine.name,
            state=self.engine.state,
            seconds=seconds,
            seconds_low=interval.low_s,
            seconds_high=interval.high_s,
            speedup_over_dense=dense_seconds / seconds,
            bound=way.longest.bound,
            note="; ".join(note for note in (run.note, way.way.note, interval.warning) if note),
            planned=partial(_itself, plan) if self.holds_plans else again,
            result=way.outcomes[0].result(),
            gpu=engine.gpu,
        )


def _itself(plan: KernelPlan) -> KernelPlan:
    return plan


def _zero_rows_note(plan: KernelPlan) -> str:
    rows = zero_row_count(plan)
    return f"a second launch writes {rows} rows of zeros, its time included" if rows else ""


def _copies_note(plan: KernelPlan, gpu: GpuSpec) -> str:
    if not padded_copy_seconds(plan, gpu):
        return ""
    return f"copies of B and C to padded rows, their time included (N = {plan.n})"


def _named(layer: Layer, error: BadInput) -> BadInput:
    """Raises an error again with the name of its layer."""
    text = str(error)
    return error if layer.name in text else type(error)(f"{layer.name}: {text}")
