"""`explain`: break down the time of one layer, in sections as in a GPU profiler, and advise changes."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from prunecast.arguments import checked
from prunecast.codesign.advice import Advice, LayerCase, advise
from prunecast.codesign.checked_settings import settings_of
from prunecast.codesign.explain_sections import TIME_PARTS, Section, sections_of, verdict_of
from prunecast.codesign.layer_job import LayerJob, start_layer
from prunecast.codesign.predict import GpuRequest, predict_each
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.prepare_job import WHOLE_MODELS, layer_job, provenance_of
from prunecast.codesign.provenance import Provenance, RowsDigest
from prunecast.codesign.result import Result
from prunecast.codesign.table import PredictionTable
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS
from prunecast.kernels.tile.kernel import STSPMM, TILE_WISE
from prunecast.patterns import TileMap
from prunecast.patterns.sources import Layer
from prunecast.settings import LayerSettings, PredictSettings
from prunecast.text import Cells
from prunecast.workload.engines import Progress, silent
from prunecast.workload.layer_launches import seconds_of
from prunecast.workload.layers import Source, name_of
from prunecast.workload.pruned_maps import MapMaker
from prunecast.workload.workload import WorkloadLayer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation(Result):
    """A prediction with a breakdown of its time and advice.

    Parameters
    ----------
    prediction : the prediction that is explained
    verdict : one sentence that names the limit of the time
    sections : speed of light, roofline, occupancy and work distribution over SMs; with the simulator also
        warp stalls and the parts of the time
    advice : changes that are predicted to save more than 1 % of the time, the best first
    provenance : tool, GPU, weights and settings
    model : predictions of all layers of the model, and of its whole pass, with the same settings; None for a
        layer of no known model
    alike_s : seconds of all layers of the model that have the size of this one, each with the explained
        kernel; None as for `model`
    remarks : remarks on the whole model, as those of `predict`, or the reason why it is not predicted
    """

    prediction: Prediction
    verdict: str
    sections: tuple[Section, ...]
    advice: tuple[Advice, ...]
    provenance: Provenance
    model: PredictionTable | None = None
    alike_s: float | None = None
    remarks: tuple[str, ...] = ()

    def plot(self) -> "Figure":
        """Draw the parts of the time, or for a closed-form prediction the roofline, as a new figure."""
        from prunecast.codesign.pictures.comparisons import draw_bars

        parts = next((section.facts for section in self.sections if section.title == TIME_PARTS), None)
        if parts is None:
            return self.prediction.plot_roofline().figure  # type: ignore[return-value]
        times = [[float(fact.value)] for fact in parts]
        title = f"{self.prediction.layer}: {TIME_PARTS.lower()}"
        names = [fact.name for fact in parts]
        return draw_bars(names, [self.prediction.kernel], times, title, are_parts=True)

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one row for each fact of each section."""
        return [
            {"section": section.title, **fact._asdict()}
            for section in self.sections
            for fact in section.facts
        ]

    def cells(self) -> list[Cells]:
        """Return the facts as a table of texts."""
        return [{name: str(value) for name, value in row.items()} for row in self.frame_rows()]

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the layer (`verdict`), and the remarks on the whole model."""
        return (self.verdict, *self.remarks)

    def document(self) -> dict[str, Any]:
        """Return the JSON object of `prunecast explain --json`."""
        whole = None if self.model is None else self.model.whole
        return {
            **self.provenance.document(),
            "predictions": [self.prediction.row()],
            "verdict": self.verdict,
            "sections": [
                {"title": section.title, "facts": [fact._asdict() for fact in section.facts]}
                for section in self.sections
            ],
            "advice": [asdict(line) for line in self.advice],
            "remarks": list(self.remarks),
            **({} if whole is None else {"whole_model": whole.document()}),
        }


@checked
def explain(
    weights: Source,
    *,
    gpu: str | GpuSpec,
    kernel: str | None = None,
    progress: Progress = silent,
    **options: Unpack[LayerSettings],
) -> Explanation:
    """Explain the predicted time of one layer with one kernel.

    If the layer is of a known model, the whole model is predicted too, as by `predict` without `target` and
    `ignore`.

    Parameters
    ----------
    weights, gpu : as in `predict`
    kernel : name of the kernel. None selects the sparse kernel that is fastest by the closed form, among
        those that run the requested pattern (without a request, the tile-wise pattern)
    progress : called with the progress
    options : other settings of `predict`, except `kernels`

    Raises
    ------
    BadInput : in the same cases as `predict`; also if `target` and `ignore` leave more than one layer
    """
    if "kernels" in options:
        raise TypeError("explain: wanted one kernel as kernel=, got kernels=")
    settings = settings_of(weights, {"gpu": gpu, **options}, "explain")
    if kernel is not None:
        settings["kernels"] = (kernel,)
    job = layer_job(weights, settings, progress)
    layer, *others = job.launches.layers.values()
    if others:
        names = ", ".join(each.name for each in (layer, *others)[:3])
        one = "name one with target" if len(job.workload.passes) == 1 else "wanted a target, and one pass"
        raise BadInput(f"explain takes one layer, got {1 + len(others)} ({names}, ...): {one}")
    if kernel is None:
        job = _with_fastest(job, layer, settings["pattern"])
    progress("predicting", 0, 1)
    prediction = [row for row in start_layer(job, layer)() if isinstance(row, Prediction)][-1]
    progress("trying changes", 0, 1)
    # Changes can be predicted for a matrix product, not for an implicit convolution.
    advice: tuple[Advice, ...] = ()
    if prediction.plan.source is None:
        kept = None
        if not KERNELS[prediction.kernel].is_baseline:
            wanted = job.candidates_of.get(layer.name, job.candidates)[-1]
            kept = job.launches.maker.map_of(layer.name, wanted.pattern, job.sparsity, natural=wanted.natural)
        sizes = {name: getattr(prediction, name) for name in ("kernel", "m", "k", "dtype")}
        case = LayerCase(**sizes, n=prediction.plan.n, kept=kept, engine=job.engine)
        advice = advise(case, prediction.seconds, _tiled(layer, prediction))
    model, remarks = _predict_model(weights, job, settings, progress)
    graph, size = next(iter(job.workload.graphs), None), (*layer.shape, layer.n)
    alike = 0.0 if graph is None else sum(o.runs for o in graph.products.values() if (o.m, o.k, o.n) == size)
    return Explanation(
        prediction=prediction,
        verdict=verdict_of(prediction, job.engine.gpu),
        sections=sections_of(prediction, job.engine.gpu),
        advice=advice,
        provenance=provenance_of(job, settings, name_of(weights), RowsDigest([layer]).hexdigest()),
        model=model,
        alike_s=None if model is None else alike * prediction.seconds,
        remarks=remarks,
    )


def _predict_model(
    weights: Source, job: LayerJob, settings: PredictSettings, progress: Progress
) -> tuple[PredictionTable | None, tuple[str, ...]]:
    """Return the predictions of the whole model to which the layer of a job belongs, and remarks on it.

    Without a known model, there are neither. A model with layers that cannot be predicted with the settings
    of the explained one has a remark with the reason.
    """
    if job.workload.form not in WHOLE_MODELS:
        return None, ()
    request = GpuRequest({**settings, "target": (), "ignore": ()}, None)
    try:
        (table,) = predict_each(weights, [request], crossovers=False, progress=progress)
    except BadInput as error:
        return None, (f"the whole model is not predicted: {error}",)
    assert table.whole is not None
    return table, table.whole.remarks


def _with_fastest(job: LayerJob, layer: WorkloadLayer, pattern: str | None) -> LayerJob:
    """Return the job with two kernels: dense, and the sparse kernel with the least closed-form time.

    If neither a pattern nor a recipe is given, only kernels with the tile-wise pattern are considered. A job
    without such kernels is returned unchanged.

    Raises
    ------
    BadInput : no kernel can run the layer
    """
    known = job.candidates_of.get(layer.name)
    natural = None if known or pattern else TILE_WISE.natural_pattern
    sparse = [one for one in known or job.candidates if not KERNELS[one.kernel].is_baseline]
    able = [one for one in sparse if natural in (None, one.pattern)]
    if not able:
        return job
    seconds, why = {}, None
    for one in able:
        try:
            sequences = job.launches.sequences(layer, job.plan(layer, one)[1])
            seconds[one] = seconds_of(sequences, job.engine.estimated_seconds)
        except BadInput as error:
            why = why or error
    if why is not None and not seconds:
        raise why
    chosen = (job.candidates[0], min(seconds, key=lambda one: seconds[one]))
    return replace(job, strict=True, candidates=chosen, candidates_of={layer.name: chosen} if known else {})


def _tiled(layer: Layer, prediction: Prediction) -> TileMap | None:
    """Return the tile map of the layer pruned to tiles; None if the predicted kernel already runs tiles.

    The layer is pruned to the sparsity of the prediction, or to the default sparsity if the prediction is
    dense.
    """
    if KERNELS[prediction.kernel].takes is TileMap:
        return None
    sparsity = None if KERNELS[prediction.kernel].is_baseline else prediction.sparsity
    maker = MapMaker({layer.name: layer}, "layer")
    kept = maker.map_of(layer.name, STSPMM.natural_pattern, sparsity, natural=True)
    return kept if isinstance(kept, TileMap) else None
