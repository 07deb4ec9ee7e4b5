"""`predict`: the time of each layer with each kernel that can run it."""

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Unpack

from prunecast.arguments import checked
from prunecast.codesign.crossover import Crossover, layer_crossovers
from prunecast.codesign.layer_job import LayerJob, LayerRows, start_layer
from prunecast.codesign.settings import layer_job, passes_of, provenance_of, settings_of, with_settings
from prunecast.codesign.table import PredictionTable
from prunecast.codesign.whole_model import whole_model
from prunecast.errors import BadInput
from prunecast.settings import PredictSettings
from prunecast.workload.engines import Progress, silent
from prunecast.workload.layers import Source, name_of

LARGEST_PRICE = 1e9
"""Kind: choice, above any currency's price of a GPU hour."""
LAYERS_AHEAD = 2
"""Layers of a large checkpoint that are planned before the results of earlier ones are collected."""


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
    weights : a file, one matrix (M, K), a mapping of names to such matrices, or one of `graph.WORKLOADS` with
        random weights; without a workload the latter runs 8 images, or 8 sequences of 512 tokens
    settings : see `PredictSettings`
    crossovers : also find the sparsity from which each kernel beats dense, which takes longer than the
        prediction; None for layers without a model around them. Folders with a recipe have none
    price : of an hour of one GPU, in any currency, for the cost of a million tokens of a whole model
    progress : called with the progress

    Raises
    ------
    BadInput : any of these cannot be used. With `all`, a kernel that cannot run a layer is skipped instead
    """
    if price is not None and not 0.0 < price < LARGEST_PRICE:
        raise BadInput(f"price must be above 0, got {price}")
    said = settings_of(weights, settings)
    job = layer_job(weights, said, progress, quick_lists=True)
    layers, loaded = job.launches.layers, job.workload
    ticks = count(1)

    def tick() -> None:
        progress("predicting", next(ticks), len(layers) * len(job.candidates))

    waiting: deque[Callable[[], LayerRows]] = deque()
    found: list[LayerRows] = []
    try:
        # Simulations run in worker threads while this thread plans and searches crossovers.
        for layer in layers.values():
            waiting.append(start_layer(job, layer, tick))
            if not job.holds_plans and len(waiting) > LAYERS_AHEAD:
                found.append(waiting.popleft()())
        in_model = loaded.form in ("standard", "checkpoint", "onnx")
        wanted = not in_model if crossovers is None else crossovers
        # Of weights that are pruned already, fewer cannot be found by their magnitudes
        crossed = _find_crossovers(job, progress) if wanted and not job.candidates_of else ()
        found += [collect() for collect in waiting]
        predictions = tuple(row for part in found for row in part.predictions)
        whole = whole_model(job, passes_of(said), predictions, price) if in_model else None
    finally:
        job.engine.stop()
    counts = in_model or said["workload"] is not None
    return PredictionTable(
        predictions=predictions,
        crossovers=crossed,
        skipped=(*loaded.skipped, *(row for part in found for row in part.skipped)),
        provenance=provenance_of(job, said, name_of(weights)),
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
