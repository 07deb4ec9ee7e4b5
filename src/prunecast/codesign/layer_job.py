"""One layer, all its kernels: prune, plan, run, and find where each kernel overtakes dense."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from prunecast.codesign.candidates import Candidate
from prunecast.codesign.crossover import Crossover, crossing
from prunecast.codesign.engines import Engine, Outcome
from prunecast.codesign.interval import interval_s
from prunecast.codesign.plans import plan_for
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.pruned_maps import MapMaker, fit_pattern, sparsity_for
from prunecast.codesign.table import Skipped
from prunecast.errors import BadInput
from prunecast.kernels.plan import KernelPlan
from prunecast.kernels.planners import PLANNERS
from prunecast.patterns.sources import Layer

__all__ = ["LayerJob", "LayerRows", "kernel_dtype"]


class LayerRows(NamedTuple):
    """What one layer adds to the table."""

    predictions: list[Prediction]
    skipped: list[Skipped]


class _Run(NamedTuple):
    plan: KernelPlan
    outcome: Outcome
    notes: tuple[str, ...]


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
    natural : the patterns came with the kernels: cut them to fit, and leave 2:4 its own sparsity
    strict : a kernel that cannot run a layer is an error; else it is skipped
    maker : makes the maps
    """

    engine: Engine
    n: int
    dtype: str | None
    candidates: tuple[Candidate, ...]
    natural: bool
    strict: bool
    maker: MapMaker

    def predict(self, layer: Layer, tick: Callable[[], None]) -> LayerRows:
        """Run all kernels on one layer; `tick` is called after each."""
        rows = LayerRows([], [])
        for candidate in self.candidates:
            try:
                run = self._run(layer, candidate)
            except BadInput as error:
                if self.strict or candidate.kernel == "dense":
                    raise _named(layer, error) from error
                rows.skipped.append(Skipped(layer=layer.name, kernel=candidate.kernel, reason=str(error)))
            else:
                dense = rows.predictions[0].seconds if rows.predictions else run.outcome.seconds
                rows.predictions.append(self._prediction(layer, candidate, run, dense))
            tick()
        return rows

    def crossovers(self, layer: Layer) -> list[Crossover]:
        """Where each kernel with a choice of sparsity overtakes dense, by the closed-form model."""
        engine = Engine(name="model", gpu=self.engine.gpu, state=self.engine.state, launch=self.engine.launch)
        dense_seconds = engine.run(self._dense_plan(layer)).seconds
        found = []
        for candidate in self.candidates[1:]:
            pattern = fit_pattern(candidate.pattern, *layer.weights.shape).pattern
            if sparsity_for(pattern, 0.5, natural=True) is None:
                continue
            found.append(
                Crossover(
                    layer=layer.name,
                    kernel=candidate.kernel,
                    pattern=pattern.canonical,
                    sparsity=crossing(self._seconds_at(layer, candidate, engine), dense_seconds),
                )
            )
        return found

    def _run(self, layer: Layer, candidate: Candidate) -> _Run:
        notes = [layer.note, self._dtype_note(layer)]
        if candidate.kernel == "dense":
            plan = self._dense_plan(layer)
        else:
            fitted = self.maker.map_of(layer.name, candidate.pattern, natural=self.natural)
            notes.append(fitted.note)
            plan = self._plan(layer, candidate.kernel, fitted.kept)
        return _Run(plan, self.engine.run(plan), tuple(note for note in notes if note))
