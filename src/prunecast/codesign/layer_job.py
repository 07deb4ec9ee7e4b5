"""One layer, all its kernels: prune, plan, run, and find where each kernel overtakes dense."""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.contestants import Contestant
from prunecast.codesign.crossover import Crossover, crossing
from prunecast.codesign.engines import Engine
from prunecast.codesign.interval import interval_s
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.pruned_already import zeros_note
from prunecast.codesign.pruned_maps import DEFAULT_SPARSITY, Guide, MapMaker, sparsity_for, sparsity_range
from prunecast.codesign.skipped import Skipped
from prunecast.codesign.two_parts import blocks_in_two, launches_in_two, remainder_note
from prunecast.codesign.ways import RunningWay, Way, conv_ways, fastest, seconds_of, start_way
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, ConvShape, KernelPlan, plan_dense
from prunecast.kernels.further_launches import zero_row_count
from prunecast.kernels.tile.kernel import STSPMM
from prunecast.kernels.two_part import TwoParts
from prunecast.launch.floor import padded_copy_seconds
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.dense_block import DenseBlockPattern
from prunecast.patterns.sources import Layer

FAR_FROM_WANTED = 0.05
"""Difference between wanted and achieved sparsity that deserves a note."""


TF32 = "fp32 products run as TF32 on the tensor cores: in true fp32, torch's default, they take longer"


class LayerRows(NamedTuple):
    """What one layer adds to the table."""

    predictions: list[Prediction]
    skipped: list[Skipped]


class _Run(NamedTuple):
    """One kernel of one layer."""

    kernel: str
    pattern: str
    density: float
    ways: list[RunningWay]
    """The fastest one counts."""
    note: str


class StartedLayer(NamedTuple):
    """A layer whose kernels are being run."""

    layer: Layer
    runs: list[_Run | BadInput]
    """One per contestant; BadInput says why it cannot run this layer."""


def kernel_dtype(layer: Layer, asked: str | None) -> str:
    """The format a layer is computed in: as asked, or bf16 for bf16 weights and fp16 for all others."""
    return asked or ("bf16" if layer.dtype == "bf16" else "fp16")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerJob:
    """The settings that all layers share.

    Parameters
    ----------
    engine : what predicts
    n : tokens of layers that are no convolution
    dtype : as asked for, or None
    contestants : kernels and patterns, dense first
    sparsity : as asked for, or None
    natural : the patterns came with the kernels: cut them to fit, and leave 2:4 its own sparsity
    strict : a kernel that cannot run a layer is an error; else it is skipped
    maker : makes the maps
    convolutions : layer -> the convolution that it is, where that is known
    product : one of `convolutions.PRODUCTS`
    experts_per_token : experts that each token goes to, of those that share a layer's tokens
    tokens : layer -> its own tokens, where a file says them
    """

    engine: Engine
    n: int
    dtype: str | None
    contestants: tuple[Contestant, ...]
    sparsity: float | None
    natural: bool
    strict: bool
    maker: MapMaker
    convolutions: Mapping[str, ConvShape] = field(default_factory=dict)
    product: str = "best"
    experts_per_token: int = 2
    tokens: Mapping[str, int] = field(default_factory=dict)

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

    def crossovers(self, layer: Layer) -> list[Crossover]:
        """Where each kernel with a choice of sparsity overtakes dense, by the closed-form model.

        A kernel that cannot run the layer has no crossover, nor has a pattern that is guided by time: each of
        its points is a search.
        """
        engine = replace(self.engine, name="model")
        alone = MapMaker({layer.name: layer}, "layer", remember=True)
        dense_seconds = seconds_of(self._ways(layer, (self._dense_plan(layer),)), engine)
        found = []
        for contestant in self.contestants[1:]:
            pattern = self.maker.fit(layer.name, contestant.pattern, natural=self.natural).pattern
            if sparsity_for(pattern, None, natural=self.natural) is None or pattern.needs_times:
                continue
            with contextlib.suppress(BadInput):
                allowed = sparsity_range(pattern)
                sparsity = crossing(
                    self._seconds_at(alone, contestant, engine),
                    dense_seconds,
                    lowest=allowed.low,
                    highest=allowed.high,
                )
                name = pattern.canonical
                found.append(
                    Crossover(layer=layer.name, kernel=contestant.kernel, pattern=name, sparsity=sparsity)
                )
        return found

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
        notes += [self._experts_note(layer), TF32 if dtype == "fp32" else None]
        is_dense = not KERNELS[contestant.kernel].prunes and contestant.pattern == "dense"
        if is_dense and len(self.contestants) > 1:
            notes.append(zeros_note(layer))
        if not KERNELS[contestant.kernel].prunes:
            launches: tuple[KernelPlan, ...] = (self._dense_plan(layer),)
            pattern, density = "dense", 1.0
        else:
            fitted = self.maker.fit(layer.name, contestant.pattern, natural=self.natural)
            kept = self._kept(self.maker, layer, contestant, self.sparsity)
            pattern, density = kept.pattern, kept.density
            notes += [fitted.note, self._sparsity_note(kept)]
            launches = self._launches(layer, contestant.kernel, kept, self.engine)
            notes.append(remainder_note(launches, kept) if KERNELS[contestant.kernel].parts else None)
            notes += [_zero_rows_note(launches[0]), _copies_note(launches[0], self.engine.gpu)]
        if layer.filters is not None and layer.name not in self.convolutions:
            notes.append(f"product with {self.n} tokens: no input size given")
        ways = [start_way(way, self.engine) for way in self._ways(layer, launches)]
        note = "; ".join(note for note in notes if note)
        return _Run(contestant.kernel, pattern, density, ways, note)

    def _kept(
        self, maker: MapMaker, layer: Layer, contestant: Contestant, sparsity: float | None
    ) -> PrunedMap | TwoParts:
        """What is kept of a layer for one kernel; dense blocks in two parts are pruned by predicted time."""
        pattern = maker.fit(layer.name, contestant.pattern, natural=self.natural).pattern
        if not KERNELS[contestant.kernel].parts or not isinstance(pattern, DenseBlockPattern):
            guide = self._guide(maker, contestant.kernel)
            return maker.map_of(
                layer.name, contestant.pattern, sparsity, natural=self.natural, guide=guide
            ).kept
        told = sparsity_for(pattern, sparsity, natural=self.natural)
        return blocks_in_two(
            maker.importance(layer.name, pattern),
            pattern.sparsity_to_prune(told),
            pattern.clusters,
            self._tokens(layer),
            kernel_dtype(layer, self.dtype),
            replace(self.engine, name="model"),
        )

    def _guide(self, maker: MapMaker, kernel: str) -> Guide:
        """Times of the kernel by the closed-form model; of `stspmm` for kernels that run elements."""
        model = replace(self.engine, name="model")
        guide = kernel if KERNELS[kernel].takes is TileMap else STSPMM.name

        def seconds(name: str, tiles: TileMap) -> float:
            layer = maker.layers[name]
            return seconds_of(self._ways(layer, self._launches(layer, guide, tiles, model)), model)

        return Guide(guide, seconds)

    def _launches(
        self, layer: Layer, kernel: str, kept: PrunedMap | TwoParts, engine: Engine
    ) -> tuple[KernelPlan, ...]:
        """What `kernel` launches for what is kept of a layer, B being a matrix."""
        n, dtype = self._tokens(layer), kernel_dtype(layer, self.dtype)
        if KERNELS[kernel].parts or isinstance(kept, TwoParts):
            return launches_in_two(kept, n, dtype, replace(engine, name="model"))
        return (fastest_plan(kernel, kept, n=n, dtype=dtype, gpu=engine.gpu),)

    def _ways(self, layer: Layer, launches: tuple[KernelPlan, ...]) -> list[Way]:
        return conv_ways(launches, self.convolutions.get(layer.name), self.product, self.engine)

    def _tokens(self, layer: Layer) -> int:
        conv = self.convolutions.get(layer.name)
        if conv is not None:
            return conv.n
        return self.tokens.get(layer.name) or layer.tokens(self.n, self.experts_per_token)

    def _experts_note(self, layer: Layer) -> str | None:
        if layer.experts is None:
            return None
        got, shared = self._tokens(layer), f"{self.experts_per_token} of {layer.experts} experts"
        return f"each token goes to {shared}, evenly: {got} of {self.n} tokens (--experts-per-token)"

    def _sparsity_note(self, kept: PrunedMap | TwoParts) -> str:
        """Says where a pattern is too coarse for a layer. Raises BadInput where nothing is left of it."""
        removed = 1.0 - kept.density
        if removed == 1.0:
            raise BadInput(f"{kept.pattern} at this sparsity removes all of a matrix of {kept.m}x{kept.k}")
        wanted = sparsity_for(parse_pattern(kept.pattern), self.sparsity, natural=False)
        if wanted is None and self.natural:
            wanted = DEFAULT_SPARSITY
        if wanted is None or abs(removed - wanted) <= FAR_FROM_WANTED:
            return ""
        return f"{kept.pattern} removes {removed:.0%}, not {wanted:.0%}"

    def _dense_plan(self, layer: Layer) -> KernelPlan:
        dtype = kernel_dtype(layer, self.dtype)
        m, k = layer.weights.shape
        return plan_dense(m, k, self._tokens(layer), dtype, self.engine.gpu)

    def _prediction(self, layer: Layer, run: _Run, way: RunningWay, dense_seconds: float) -> Prediction:
        plan, seconds = way.way.launches[0], way.seconds
        engine = self.engine
        guessed = max(KERNELS[launch.kernel].guessed_costs(engine.gpu) for launch in way.way.launches)
        interval = interval_s(
            run.kernel,
            seconds,
            gpu=engine.gpu.name,
            engine=engine.name,
            state=engine.state,
            tokens=plan.n,
            guessed_costs=guessed,
        )
        return Prediction(
            layer=layer.name,
            m=plan.m,
            k=plan.k,
            n=plan.n,
            dtype=plan.dtype,
            pattern=run.pattern,
            sparsity=1.0 - run.density,
            kernel=run.kernel,
            engine=self.engine.name,
            state=self.engine.state,
            seconds=seconds,
            seconds_low=interval.low_s,
            seconds_high=interval.high_s,
            speedup_over_dense=dense_seconds / seconds,
            bound=way.longest.bound,
            note="; ".join(note for note in (run.note, way.way.note, interval.warning) if note),
            plan=plan,
            result=way.outcomes[0].result(),
            gpu=engine.gpu,
        )

    def _seconds_at(
        self, alone: MapMaker, contestant: Contestant, engine: Engine
    ) -> Callable[[float], float]:
        """Time of a kernel on the one layer of `alone`, as a function of sparsity."""
        (layer,) = alone.layers.values()

        def seconds(sparsity: float) -> float:
            kept = self._kept(alone, layer, contestant, sparsity)
            if kept.density == 0.0:
                return math.inf  # nothing is left of the layer, which `predict` refuses
            return seconds_of(
                self._ways(layer, self._launches(layer, contestant.kernel, kept, engine)), engine
            )

        return seconds


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
