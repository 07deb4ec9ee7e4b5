"""`predict`: predict the time of each layer with each kernel that can run it."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import NamedTuple, Unpack

from prunecast.arguments import checked
from prunecast.choice import kept_estimate
from prunecast.codesign.checked_settings import settings_of, with_settings
from prunecast.codesign.crossover import Crossover, layer_crossovers
from prunecast.codesign.layer_job import LayerJob, Row, start_layer
from prunecast.codesign.padding import padded_workload, with_padding_remark
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.prepare_job import WHOLE_MODELS, layer_job, provenance_of
from prunecast.codesign.provenance import RowsDigest
from prunecast.codesign.table import PredictionTable
from prunecast.codesign.whole_model import whole_model
from prunecast.errors import BadInput
from prunecast.settings import PredictSettings
from prunecast.workload.engines import Progress, silent
from prunecast.workload.layers import Skipped, Source, name_of

LARGEST_PRICE = 1e9
"""Upper limit of `price`. Kind: choice, above the price of a GPU hour in any currency."""
MOST_AHEAD = 2**26
"""Maximum number of weights in layers that are planned but whose results have not been collected. It applies
to models that are too large to keep all plans in memory. Kind: choice, as `MOST_PLANNED`."""


@with_settings
@checked
def predict(
    weights: Source,
    *,
    crossovers: bool | None = None,
    price: float | None = None,
    progress: Progress = silent,
    **settings: Unpack[PredictSettings],
) -> PredictionTable:
    """Predict every layer of a model, dense and pruned.

    Parameters
    ----------
    weights : a file or folder, one matrix (M, K), a mapping of names to such matrices, or the name of a
        standard model (`graph.WORKLOADS`) with random weights. Without a workload, a standard model runs 8
        images, or 8 sequences of 512 tokens
    settings : see `PredictSettings`
    crossovers : True to find also the sparsity from which each kernel is faster than dense, which needs
        longer than the prediction. With None, crossovers are found for single layers, but not for whole
        models. Pruned folders with a recipe have no crossovers
    price : price of one GPU for an hour, in any currency, for the cost of a million tokens of a whole model
    progress : called with the progress

    Raises
    ------
    BadInput : an argument cannot be used, or a requested kernel cannot run a layer. With the kernels `all`,
        such a kernel is skipped instead
    """
    asked = GpuRequest(settings_of(weights, settings), price)
    (table,) = predict_each(weights, [asked], crossovers=crossovers, progress=progress)
    return table


class GpuRequest(NamedTuple):
    """The settings of a prediction on one GPU, and the price of that GPU for an hour (or None)."""

    settings: PredictSettings
    price: float | None


def predict_each(
    weights: Source,
    asked: Sequence[GpuRequest],
    *,
    crossovers: bool | None = None,
    progress: Progress = silent,
) -> list[PredictionTable]:
    """Return the predictions of a model on several GPUs, one table for each request.

    Each table equals that of `predict`. Weights are loaded or drawn once, and pruned once for all GPUs.

    Parameters
    ----------
    asked : the requests, whose settings differ only in the GPU
    weights, crossovers, progress : as in `predict`
    """
    for one in asked:
        if one.price is not None and not 0.0 < one.price < LARGEST_PRICE:
            raise BadInput(f"price must be above 0, got {one.price}")
    jobs: list[LayerJob] = []
    for one in asked:
        like = jobs[0] if jobs else None
        jobs.append(
            layer_job(
                weights,
                one.settings,
                progress,
                quick_lists=True,
                quick_losers=crossovers is not True,
                several=len(asked) > 1,
                like=like,
            )
        )
    layers, loaded = jobs[0].launches.layers, jobs[0].workload
    in_model = loaded.form in WHOLE_MODELS
    priced = [one.price for one in asked if one.price is not None]
    if priced and not in_model:
        raise BadInput(f"price {priced[0]:g} is of a token or image of a whole model, got matrices")
    ticks = count()

    def tick() -> None:
        # Each kernel ticks when it is planned, which needs most of the time of a closed-form prediction, and
        # when it is predicted
        kernels = len(layers) * sum(len(job.candidates) for job in jobs)
        progress("predicting", next(ticks) // 2, kernels)

    tick()

    digest, waiting = RowsDigest(layers.values()), Waiting()
    rows_of: dict[str, list[list[Row]]] = {}
    # Predict rows with the same weights (in several passes) one after the other, so that they share maps
    alike: dict[int, list[str]] = {}
    for name, layer in layers.items():
        alike.setdefault(id(layer.load), []).append(name)
    try:
        # Simulations run in worker threads while this thread plans and searches crossovers.
        for name in chain.from_iterable(alike.values()):
            planned = layers[name].size + sum(layers[other].size for other, _ in waiting)
            if not jobs[0].holds_plans and planned > MOST_AHEAD:
                while waiting:
                    _collect_first(waiting, rows_of)
                kept_estimate.cache_clear()  # the cache keeps plans in memory
            waiting.append((name, [start_layer(job, layers[name], tick) for job in jobs]))
            digest.add_read(layers[name])
        wanted = not in_model if crossovers is None else crossovers
        # Weights that are already pruned cannot be pruned to other sparsities by their magnitudes
        if jobs[0].candidates_of and crossovers:
            why = "the weights are pruned already: --pattern or --sparsity prunes them again"
            note = Skipped(layer="crossovers", kernel=None, reason=why)
            jobs = [replace(job, workload=job.workload.noting(note)) for job in jobs]
        wanted = wanted and not jobs[0].candidates_of
        crossed = [_find_crossovers(job, progress) if wanted else () for job in jobs]
        while waiting:
            _collect_first(waiting, rows_of)
        tables = []
        for place, (job, one) in enumerate(zip(jobs, asked, strict=True)):
            rows = [row for name in layers for row in rows_of[name][place]]
            tables.append(_table(job, one, rows, crossed[place], weights, digest.hexdigest()))
    finally:
        for job in jobs:
            job.engine.stop()
    if len(tables) > 1:  # GPUs are compared with the workload that was requested
        return tables

    def predict_padded(workload: str) -> PredictionTable:
        settings: PredictSettings = {**asked[0].settings, "tokens": None, "workload": workload}
        progress("padding tokens", 0, 1)
        (padded,) = predict_each(
            weights, [asked[0]._replace(settings=settings)], crossovers=False, progress=progress
        )
        return padded

    return [with_padding_remark(tables[0], padded_workload(loaded) if in_model else "", predict_padded)]


Waiting = deque[tuple[str, list[Callable[[], list[Row]]]]]
"""Queue of planned layers: name, and for each GPU a function that waits for the predictions."""


def _collect_first(waiting: Waiting, rows_of: dict[str, list[list[Row]]]) -> None:
    """Wait for the rows of the first layer and move them to `rows_of`, so that its plans can be freed."""
    name, collects = waiting.popleft()
    rows_of[name] = [collect() for collect in collects]


def _table(
    job: LayerJob,
    asked: GpuRequest,
    rows: Sequence[Row],
    crossed: tuple[Crossover, ...],
    weights: Source,
    weights_hash: str,
) -> PredictionTable:
    """Return the table of one GPU, with the times of the whole model if its graph is known."""
    settings, layers, loaded = asked.settings, job.launches.layers, job.workload
    in_model = loaded.form in WHOLE_MODELS
    predictions = tuple(row for row in rows if isinstance(row, Prediction))
    whole = whole_model(job, predictions, asked.price) if in_model else None
    counts = in_model or settings["workload"] is not None
    return PredictionTable(
        predictions=predictions,
        crossovers=crossed,
        skipped=(*loaded.skipped, *(row for row in rows if not isinstance(row, Prediction))),
        provenance=provenance_of(job, settings, name_of(weights), weights_hash),
        convolutions={
            name: layer.convolution for name, layer in layers.items() if layer.convolution is not None
        },
        runs={name: layer.runs for name, layer in layers.items()} if counts else {},
        whole=whole,
    )


def _find_crossovers(job: LayerJob, progress: Progress) -> tuple[Crossover, ...]:
    found: list[Crossover] = []
    layers = job.launches.layers
    for done, layer in enumerate(layers.values()):
        progress("finding crossovers", done, len(layers))
        found.extend(layer_crossovers(job.launches, layer, job.candidates[1:]))
    return tuple(found)
