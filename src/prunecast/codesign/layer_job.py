"""One layer, all its kernels: prune, plan, run, and find where each kernel overtakes dense."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple

from prunecast.codesign.candidates import Candidate
from prunecast.codesign.crossover import Crossover, crossing
from prunecast.codesign.engines import Engine, Outcome
from prunecast.codesign.interval import interval_s
from prunecast.codesign.plans import PrunedMap, plan_pruned
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.pruned_maps import DEFAULT_SPARSITY, MapMaker, sparsity_for
from prunecast.codesign.skipped import Skipped
from prunecast.errors import BadInput
from prunecast.kernels import PLANNERS, KernelPlan
from prunecast.patterns import parse_pattern
from prunecast.patterns.sources import Layer

__all__ = ["LayerJob", "LayerRows", "StartedLayer", "kernel_dtype"]


FAR_FROM_WANTED = 0.05
"""Difference between wanted and achieved sparsity that deserves a note."""


class LayerRows(NamedTuple):
    """What one layer adds to the table."""

    predictions: list[Prediction]
    skipped: list[Skipped]


class _Run(NamedTuple):
    plan: KernelPlan
    outcome: Future[Outcome]
    note: str


class StartedLayer(NamedTuple):
    """A layer whose kernels are being run."""

    layer: Layer
    runs: list[_Run | BadInput]
    """One per candidate; BadInput says why it cannot run this layer."""


def kernel_dtype(layer: Layer, asked: str | None) -> str:
    """The format a layer is computed in: as asked, or bf16 for bf16 weights and fp16 for all others."""
    return asked or ("bf16" if layer.dtype == "bf16" else "fp16")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerJob:
    """The settings that all layers share.

    Parameters
    ----------
    engine : what predicts
    n : tokens
    dtype : as asked for, or None
    candidates : kernels and patterns, dense first
    sparsity : as asked for, or None
    natural : the patterns came with the kernels: cut them to fit, and leave 2:4 its own sparsity
    strict : a kernel that cannot run a layer is an error; else it is skipped
    maker : makes the maps
    """

    engine: Engine
    n: int
    dtype: str | None
    candidates: tuple[Candidate, ...]
    sparsity: float | None
    natural: bool
    strict: bool
    maker: MapMaker

    def start(self, layer: Layer) -> StartedLayer:
        """Plan all kernels of one layer and begin their runs. Raises BadInput if one that must run cannot."""
        runs = [self._start(layer, candidate) for candidate in self.candidates]
        for candidate, run in zip(self.candidates, runs, strict=True):
            if isinstance(run, BadInput) and self._must_run(candidate):
                raise _named(layer, run) from run
        return StartedLayer(layer, runs)

    def collect(self, started: StartedLayer, tick: Callable[[], None]) -> LayerRows:
        """Wait for the runs of one layer; `tick` is called after each."""
        layer, rows = started.layer, LayerRows([], [])
        for candidate, run in zip(self.candidates, started.runs, strict=True):
            try:
                if isinstance(run, BadInput):
                    raise run
                outcome = run.outcome.result()
            except BadInput as error:
                if self._must_run(candidate):
                    raise _named(layer, error) from error
                rows.skipped.append(Skipped(layer=layer.name, kernel=candidate.kernel, reason=str(error)))
            else:
                dense = rows.predictions[0].seconds if rows.predictions else outcome.seconds
                rows.predictions.append(self._prediction(layer, run, outcome, dense))
            tick()
        return rows

    def crossovers(self, layer: Layer) -> list[Crossover]:
        """Where each kernel with a choice of sparsity overtakes dense, by the closed-form model.

        A kernel that cannot run the layer has no crossover.
        """
        engine = replace(self.engine, name="model")
        alone = MapMaker({layer.name: layer}, "layer")
        dense_seconds = engine.run(self._dense_plan(layer)).seconds
        found = []
        for candidate in self.candidates[1:]:
            pattern = self.maker.fit(layer.name, candidate.pattern, natural=self.natural).pattern
            if sparsity_for(pattern, None, natural=self.natural) is None:
                continue
            with contextlib.suppress(BadInput):
                sparsity = crossing(self._seconds_at(alone, candidate, engine), dense_seconds)
                name = pattern.canonical
                found.append(
                    Crossover(layer=layer.name, kernel=candidate.kernel, pattern=name, sparsity=sparsity)
                )
        return found

    def _must_run(self, candidate: Candidate) -> bool:
        return self.strict or candidate.kernel == "dense"

    def _start(self, layer: Layer, candidate: Candidate) -> _Run | BadInput:
        """Plan one kernel and begin its run, or say why it cannot run this layer."""
        try:
            return self._begin(layer, candidate)
        except BadInput as error:
            return error

    def _begin(self, layer: Layer, candidate: Candidate) -> _Run:
        dtype = kernel_dtype(layer, self.dtype)
        notes = [layer.note, f"{layer.dtype} weights run as {dtype}" if dtype != layer.dtype else None]
        if candidate.kernel == "dense":
            plan = self._dense_plan(layer)
        else:
            fitted = self.maker.map_of(layer.name, candidate.pattern, self.sparsity, natural=self.natural)
            notes += [fitted.note, self._sparsity_note(fitted.kept)]
            plan = plan_pruned(candidate.kernel, fitted.kept, n=self.n, dtype=dtype, gpu=self.engine.gpu)
        return _Run(plan, self.engine.start(plan), "; ".join(note for note in notes if note))

    def _sparsity_note(self, kept: PrunedMap) -> str:
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
        return PLANNERS["dense"](*layer.weights.shape, self.n, dtype, self.engine.gpu)

    def _prediction(self, layer: Layer, run: _Run, outcome: Outcome, dense_seconds: float) -> Prediction:
        plan = run.plan
        interval = interval_s(plan.kernel, outcome.seconds)
        return Prediction(
            layer=layer.name,
            m=plan.m,
            k=plan.k,
            n=plan.n,
            dtype=plan.dtype,
            pattern=plan.pattern,
            sparsity=plan.sparsity,
            kernel=plan.kernel,
            engine=self.engine.name,
            state=self.engine.state,
            seconds=outcome.seconds,
            seconds_low=interval.low_s,
            seconds_high=interval.high_s,
            speedup_over_dense=dense_seconds / outcome.seconds,
            bound=outcome.bound,
            note=run.note,
            plan=plan,
            result=outcome,
        )

    def _seconds_at(self, alone: MapMaker, candidate: Candidate, engine: Engine) -> Callable[[float], float]:
        """Time of a kernel on the one layer of `alone`, as a function of sparsity."""
        (layer,) = alone.layers.values()
        dtype = kernel_dtype(layer, self.dtype)

        def seconds(sparsity: float) -> float:
            kept = alone.map_of(layer.name, candidate.pattern, sparsity, natural=self.natural).kept
            plan = plan_pruned(candidate.kernel, kept, n=self.n, dtype=dtype, gpu=engine.gpu)
            return engine.run(plan).seconds

        return seconds


def _named(layer: Layer, error: BadInput) -> BadInput:
    """The same error, saying which layer it is about."""
    text = str(error)
    return error if layer.name in text else type(error)(f"{layer.name}: {text}")
