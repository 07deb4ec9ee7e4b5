"""`layer_job`: prepare a prediction, which means to find the GPU, the kernels and the layers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prunecast.codesign.checked_settings import MATRICES, checked_settings, passes_of
from prunecast.codesign.layer_job import LayerJob
from prunecast.codesign.provenance import Provenance
from prunecast.codesign.recipe import Recipe
from prunecast.codesign.recipe_maps import (
    RecipeLayers,
    left_dense,
    pruned_modules,
    recipe_layers,
    recipe_of,
)
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, at_power_limit, load_gpu
from prunecast.kernels import KERNELS
from prunecast.kernels.libraries.collectives.call import check_gpus
from prunecast.launch import Conditions
from prunecast.patterns import Pattern, parse_pattern
from prunecast.patterns.sources import Layer
from prunecast.settings import SETTINGS, PredictSettings
from prunecast.workload.candidates import (
    Candidate,
    candidates,
    check_rows_stay,
    run_in_torch,
    runs_in_torch,
    zeros_candidates,
)
from prunecast.workload.engines import Engine, Progress, cache_state
from prunecast.workload.layer_launches import LayerLaunches
from prunecast.workload.layers import Skipped, Source, has_model, is_onnx, is_standard, load_layers
from prunecast.workload.load import EXPERTS_PER_TOKEN, load_workload
from prunecast.workload.pruned_maps import MapMaker, no_taller_than
from prunecast.workload.table_rows import rows_of
from prunecast.workload.workload import Workload, WorkloadLayer

WHOLE_MODELS = ("standard", "checkpoint", "onnx", "module")
"""Values of `Workload.form` for which the model graph is known."""
MOST_PLANNED = 2**27
"""Largest number of weights of a model whose predictions keep all plans in memory: a map of 2:4 needs two
bytes for each weight. Kind: choice."""


def layer_job(
    weights: Source,
    settings: PredictSettings,
    progress: Progress,
    *,
    quick_lists: bool = False,
    quick_losers: bool = False,
    several: bool = False,
    like: LayerJob | None = None,
) -> LayerJob:
    """Return the job that predicts `weights` with `settings`: its GPU, kernels and layers.

    Parameters
    ----------
    progress : called with the progress
    quick_lists : use the closed form for long launches of kernels that run any mask (CSR), see `Engine`
    quick_losers : in a whole model, use the closed form for kernels that are too slow to be the fastest
    several : True if this job will be passed as `like` to later calls
    like : job with the same weights and settings on another GPU, whose layers and sparsity maps are reused

    Raises
    ------
    BadInput : a name is unknown, the weights cannot be read, or a kernel cannot run the pattern
    """
    pattern = None if settings["pattern"] is None else parse_pattern(settings["pattern"])
    canonical = None if pattern is None else pattern.canonical
    candidates(settings["kernels"], canonical)  # refuse unknown kernels before the weights are read
    is_asked = settings["pattern"] is not None or settings["sparsity"] is not None
    recipe = None if is_asked else recipe_of(weights)
    if settings["runtime"] == "torch":
        check_rows_stay(pattern)
    gpu = _gpu_of(settings)
    if like is None:
        workload = workload_of(weights, settings, recipe, gpu=gpu.name)
        rows: Mapping[str, WorkloadLayer] = rows_of(workload)
    else:
        workload, rows = like.workload, like.launches.layers
    least = min((layer.n for layer in rows.values()), default=1)  # any layer may have few tokens
    if settings["pattern"] == "zeros" and settings["kernels"] == "all":
        chosen = zeros_candidates(least)
    else:
        chosen = candidates(settings["kernels"], canonical, least)
    is_torch = workload.runtime == "torch"
    _check_effects(workload, settings, chosen)
    if is_torch:
        able = run_in_torch(chosen, asked=settings["kernels"] != "all")
        if like is None and len(able) == 1:  # nothing to compare with dense
            why = "{} has no kernel in torch: --runtime engine predicts it".format
            left = (one.kernel for one in chosen if one not in able)
            workload = workload.noting(*(Skipped(layer="torch", kernel=k, reason=why(k)) for k in left))
        chosen = able
    known = RecipeLayers({}, {})
    if recipe is not None:
        asked = "all" if settings["kernels"] == "all" else [one.kernel for one in chosen]
        known = recipe_layers(recipe, rows, asked, least, is_torch=is_torch)
    if pattern is not None:
        for layer in rows.values():
            _check_fits(pattern, layer)
    in_model = not is_torch and (bool(workload.graphs) or settings["workload"] is not None)
    l2 = cache_state(settings["l2"], workload.model_weights, settings["dtype"], in_model=in_model)
    engine = Engine(
        name=settings["engine"],
        gpu=gpu,
        conditions=Conditions(settings["state"], settings["launch"], l2),
        quick_lists=quick_lists,
        progress=progress,
    )
    of_layer = several or len(workload.passes) > 1
    launches = LayerLaunches(
        engine=engine,
        layers=rows,
        dtype=settings["dtype"],
        maker=MapMaker(rows, settings["scope"], of_layer=of_layer, given=known.maps)
        if like is None
        else like.launches.maker,
        product=settings["convolutions"].product,
        in_torch=is_torch,
        scales=None if is_torch else settings["scales"],
    )
    return LayerJob(
        workload=workload,
        launches=launches,
        candidates=chosen,
        candidates_of=known.candidates,
        sparsity=settings["sparsity"],
        strict=settings["kernels"] != "all",
        tokens=max(run.columns for run in passes_of(weights, settings)),
        experts_per_token=settings["experts_per_token"] or EXPERTS_PER_TOKEN,
        holds_plans=sum(layer.size for layer in rows.values()) <= MOST_PLANNED,
        for_losers=replace(engine, name="model") if quick_losers and workload.form in WHOLE_MODELS else None,
    )


def _check_effects(workload: Workload, settings: PredictSettings, chosen: Sequence[Candidate]) -> None:
    """Raise BadInput for settings that have no effect on any layer of a workload.

    `chosen` are the kernels to predict.
    """
    if settings["pattern"] != "dense" and all(KERNELS[one.kernel].is_baseline for one in chosen):
        pruned = {"pattern": settings["pattern"], "sparsity": settings["sparsity"] or None}
        for name, value in pruned.items():
            if value is not None:
                raise BadInput(f"{name} {value} has no effect: the kernel dense runs all weights")
    routing, product = settings["routing"], settings["convolutions"].product
    operations = [operation for graph in workload.graphs for operation in graph]
    layers = workload.layers.values()
    if routing != SETTINGS["routing"].default and all(one.experts is None for one in operations):
        raise BadInput(f"routing {routing} has no effect: wanted a model by name or folder with experts")
    has_filters = any(layer.convolution is not None for layer in layers)
    has_filters = has_filters or any(one.convolution is not None for one in operations)
    if product != MATRICES.product and not has_filters:
        raise BadInput(f"conv {product} has no effect: no layer is a convolution with an input size")


def _gpu_of(settings: PredictSettings) -> GpuSpec:
    """Return the requested GPU at the requested power limit."""
    gpu = load_gpu(settings["gpu"]) if isinstance(settings["gpu"], str) else settings["gpu"]
    if settings["tensor_parallel"] != 1:
        check_gpus(settings["tensor_parallel"], gpu)
    if settings["power_limit"] is not None:
        gpu = at_power_limit(gpu, settings["power_limit"])
    return gpu


def workload_of(
    weights: Source, settings: PredictSettings, recipe: Recipe | None = None, *, gpu: str = ""
) -> Workload:
    """Load the layers of `weights` for the passes that `settings` request.

    Layers that a recipe left dense do not share launches with layers that it pruned. If the recipe was made
    for another GPU than `gpu`, a note is added to the list of skipped tensors.

    Raises
    ------
    BadInput : in the same cases as `load_workload`; also if both input sizes and a workload are given
    """
    convolutions = settings["convolutions"]
    passes = passes_of(weights, settings)
    if settings["workload"] is not None and convolutions.input_size and not is_standard(weights):
        raise BadInput(
            f"input sizes and a workload exclude each other, got {convolutions.input_size[0]} and "
            f"{settings['workload']}: give --batch"
        )
    workload = load_workload(
        weights,
        passes,
        stated={"tokens": settings["tokens"], "batch": convolutions.batch},
        runtime=settings["runtime"] or usual_runtime(settings, recipe),
        target=settings["target"],
        ignore=settings["ignore"],
        convolutions=convolutions,
        experts_per_token=settings["experts_per_token"],
        apart=() if recipe is None else left_dense(recipe, weights),
        own_tiles=recipe is not None or settings["pattern"] == "zeros",
    )
    if recipe is None or recipe.gpu in ("", gpu):
        return workload
    why = f"its patterns were chosen by times on {recipe.gpu}, these are times on {gpu}"
    note = Skipped(layer="recipe", kernel=None, reason=why)
    return replace(workload, skipped=(*workload.skipped, note))


OF_ENGINES = ("fp8", "int8")
"""Number formats that are predicted only with the runtime `engine`."""


def usual_runtime(settings: PredictSettings, recipe: Recipe | None) -> str | None:
    """Return `engine` if torch cannot run the requested kernels, patterns or dtype.

    Otherwise return None: the runtime is then torch if its launches are known for the model.
    """
    kernels = [] if settings["kernels"] == "all" else settings["kernels"]
    named = [kernels] if isinstance(kernels, str) else kernels
    patterns = [settings["pattern"]] if settings["pattern"] else []
    if recipe is not None:
        patterns = [recipe.pattern_of(module) for module in pruned_modules(recipe)]
    in_torch = all(runs_in_torch(parse_pattern(each).canonical) for each in patterns)
    in_torch = in_torch and all(KERNELS[name].in_torch for name in named)
    return None if in_torch and settings["dtype"] not in OF_ENGINES else "engine"


def predicted_layers(weights: Source, origin: Provenance, names: Sequence[str]) -> Mapping[str, Layer]:
    """Load the layers of a prediction table again; return row name -> layer.

    Parameters
    ----------
    origin : provenance of the table
    names : names of the rows

    Raises
    ------
    BadInput : the weights cannot be read
    """
    if is_onnx(weights):
        return load_layers(weights, target=names).layers
    target = () if has_model(weights) or origin.workload is not None else names
    given: dict[str, Any] = {
        "gpu": "",
        "workload": origin.workload,
        "runtime": origin.runtime,
        "target": target,
        "tensor_parallel": origin.tensor_parallel,
    }
    return rows_of(workload_of(weights, checked_settings(given)))


def _check_fits(pattern: Pattern, layer: Layer) -> None:
    """Raise BadInput if a layer is smaller than the requested pattern needs."""
    (m, k), least = layer.shape, no_taller_than(pattern.canonical, layer.shape[0]).smallest
    if m < least.rows or k < least.columns:
        raise BadInput(
            f"{pattern.canonical} needs a matrix of {least} or more, got {m}x{k} in {layer.name!r}; "
            "leave it out with ignore"
        )


def provenance_of(job: LayerJob, settings: PredictSettings, source: str, weights_hash: str) -> Provenance:
    """Return the provenance of the predictions of a job."""
    return Provenance(
        gpu=job.engine.gpu.name,
        spec_hash=job.engine.gpu.fingerprint,
        weights_hash=weights_hash,
        tokens=job.tokens,
        conditions=job.engine.conditions,
        power_limit_w=settings["power_limit"],
        workload=settings["workload"],
        runtime=job.workload.runtime,
        tensor_parallel=settings["tensor_parallel"],
        source=source,
        pattern=settings["pattern"],
        sparsity=settings["sparsity"],
        scope=settings["scope"],
    )
