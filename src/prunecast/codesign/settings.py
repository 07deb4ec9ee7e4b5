"""`checked_settings`: the checked settings of a prediction; `layer_job`: the job that predicts weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar, cast, get_type_hints

from prunecast.arguments import checked_items
from prunecast.codesign.layer_job import LayerJob
from prunecast.codesign.provenance import Provenance, WeightsDigest
from prunecast.codesign.recipe import Recipe
from prunecast.codesign.recipe_maps import (
    RecipeLayers,
    left_dense,
    pruned_modules,
    recipe_layers,
    recipe_of,
)
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec, at_power_limit, load_gpu
from prunecast.kernels import DTYPE_BYTES, KERNELS
from prunecast.kernels.libraries.collectives.call import check_gpus
from prunecast.kernels.libraries.experts.routing import check_routing
from prunecast.kernels.libraries.scaled.call import SCALES
from prunecast.launch import L2_STATES
from prunecast.patterns import SCOPES, Pattern, parse_pattern
from prunecast.patterns.pattern import check_sparsity
from prunecast.patterns.sources import Layer
from prunecast.patterns.sources.read import MOST_HELD
from prunecast.settings import SETTINGS, PredictSettings
from prunecast.workload.candidates import (
    candidates,
    check_rows_stay,
    run_in_torch,
    runs_in_torch,
    zeros_candidates,
)
from prunecast.workload.conv_settings import ConvSettings
from prunecast.workload.engines import Engine, Progress, cache_state
from prunecast.workload.graph import RUNTIMES, Pass, parse_workload
from prunecast.workload.graph.model_graph import checked_tokens
from prunecast.workload.layer_launches import LayerLaunches
from prunecast.workload.layers import Skipped, Source, load_layers
from prunecast.workload.load import (
    BATCH,
    EXPERTS_PER_TOKEN,
    TOKENS,
    check_batch,
    has_model,
    is_onnx,
    is_standard,
    load_workload,
)
from prunecast.workload.pruned_maps import MapMaker, no_taller_than, sparsity_for
from prunecast.workload.table_rows import rows_of
from prunecast.workload.workload import Workload

P = ParamSpec("P")
R = TypeVar("R")
MATRICES = ConvSettings()
"""Filters count as matrices."""
_KINDS = get_type_hints(PredictSettings, localns={"ConvSettings": ConvSettings, "GpuSpec": GpuSpec})
KEYWORDS = [
    Parameter(name, Parameter.KEYWORD_ONLY, default=SETTINGS[name].default, annotation=kind)
    for name, kind in _KINDS.items()
]
"""The settings as keywords of a function."""


def with_settings(function: Callable[P, R]) -> Callable[P, R]:
    """Show and describe the settings as keywords of a function that accepts them as `**settings`."""
    own = signature(function)
    named = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    every = sorted((*named, *KEYWORDS), key=lambda one: (one.kind, one.default is not Parameter.empty))
    function.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    lines = "\n".join(f"    {name} : {one.help} Default: {one.words}" for name, one in SETTINGS.items())
    function.__doc__ = (function.__doc__ or "").replace("    settings : see `PredictSettings`", lines)
    return function


def checked_settings(given: Mapping[str, Any]) -> PredictSettings:
    """Return all settings, with defaults for those not given.

    Raises
    ------
    TypeError : an unknown name, no GPU, or a value of another type
    BadInput : a value that cannot be used, whatever the weights are
    """
    try:
        bound = Signature(KEYWORDS).bind(**given)
    except TypeError as error:
        raise TypeError(f"predict: {error}") from None
    bound.apply_defaults()
    if bound.arguments["convolutions"] is None:
        bound.arguments["convolutions"] = MATRICES
    said = cast(PredictSettings, checked_items(bound.arguments, _KINDS, "predict"))
    tokens, workload, sparsity = said["tokens"], said["workload"], said["sparsity"]
    if tokens is not None:
        checked_tokens(tokens)
    if tokens is not None and workload is not None:
        raise BadInput(f"tokens and a workload exclude each other, got {tokens} and {workload}")
    per_token = said["experts_per_token"]
    if per_token is not None and per_token < 1:
        raise BadInput(f"experts-per-token must be at least 1, got {per_token}")
    check_routing(said["routing"])
    choices = {"runtime": RUNTIMES, "l2": L2_STATES, "scales": SCALES, "scope": SCOPES, "dtype": DTYPE_BYTES}
    for name, known in choices.items():
        value = bound.arguments[name]
        if value is not None:
            check_choice(name, value, known)
    if sparsity is not None:
        check_sparsity(sparsity)
    if said["pattern"] is not None:
        pattern = parse_pattern(said["pattern"])
        pattern.sparsity_to_prune(sparsity_for(pattern, sparsity, natural=False))
    return said


def settings_of(weights: Source, given: Mapping[str, Any]) -> PredictSettings:
    """Return the settings for weights; a model without workload and tokens gets a default one.

    Raises TypeError and BadInput as `checked_settings`, and BadInput for a batch without effect.
    """
    said = checked_settings(given)
    convolutions, stated = said["convolutions"], said["workload"] or said["tokens"]
    batch = convolutions.batch
    check_batch(weights, batch, other=stated, has_images=bool(convolutions.input_size))
    if stated is None and has_model(weights):
        said["workload"] = f"batch:{batch or BATCH}"
    return said


def passes_of(weights: Source, settings: PredictSettings) -> tuple[Pass, ...]:
    """Return the forward passes (prefill, decode) with their token counts."""
    workload, routing, gpus = settings["workload"], settings["routing"], settings["tensor_parallel"]
    if workload is None:
        has_batch = is_onnx(weights) or settings["runtime"] == "torch"
        batch = (settings["convolutions"].batch or 1) if has_batch else 1
        return (Pass(batch, columns_of(settings), routing=routing, gpus=gpus),)
    return tuple(run._replace(routing=routing, gpus=gpus) for run in parse_workload(workload))


def columns_of(settings: PredictSettings) -> int:
    """Return N of layers that are not convolutions, the largest of all passes."""
    if settings["workload"] is not None:
        return max(run.columns for run in parse_workload(settings["workload"]))
    return TOKENS if settings["tokens"] is None else settings["tokens"]


WHOLE_MODELS = ("standard", "checkpoint", "onnx", "module")
"""Forms of a workload whose model graph is known."""


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
    """Return the job of predicting weights: find the GPU, the kernels and the layers.

    Parameters
    ----------
    quick_lists : as of `Engine`
    quick_losers : predict kernels of a whole model that cannot win by the closed form
    several : other jobs will be `like` this one
    like : a job of the same weights and settings on another GPU, whose layers and maps are used again

    Raises
    ------
    BadInput : an unknown name, unreadable weights, or a kernel that cannot run the pattern
    """
    pattern = None if settings["pattern"] is None else parse_pattern(settings["pattern"])
    is_asked = settings["pattern"] is not None or settings["sparsity"] is not None
    recipe = None if is_asked else recipe_of(weights)
    least = min(run.columns for run in passes_of(weights, settings))
    chosen = candidates(settings["kernels"], None if pattern is None else pattern.canonical, least)
    if settings["pattern"] == "zeros" and settings["kernels"] == "all":
        chosen = zeros_candidates(least)
    if settings["runtime"] == "torch":
        check_rows_stay(pattern)
        run_in_torch(chosen, asked=settings["kernels"] != "all")
    gpu = load_gpu(settings["gpu"]) if isinstance(settings["gpu"], str) else settings["gpu"]
    if settings["tensor_parallel"] != 1:
        check_gpus(settings["tensor_parallel"], gpu)
    if settings["power_limit"] is not None:
        gpu = at_power_limit(gpu, settings["power_limit"])
    engine = Engine(
        name=settings["engine"],
        gpu=gpu,
        state=settings["state"],
        launch=settings["launch"],
        quick_lists=quick_lists,
        progress=progress,
    )
    workload = workload_of(weights, settings, recipe) if like is None else like.workload
    if like is None and recipe is not None and recipe.gpu not in ("", gpu.name):
        why = f"its patterns were chosen by times on {recipe.gpu}, these are times on {gpu.name}"
        workload = replace(
            workload, skipped=(*workload.skipped, Skipped(layer="recipe", kernel=None, reason=why))
        )
    is_torch = workload.runtime == "torch"
    if is_torch:
        chosen = run_in_torch(chosen, asked=settings["kernels"] != "all")
    rows = rows_of(workload) if like is None else like.launches.layers
    known = RecipeLayers({}, {})
    if recipe is not None:
        asked = settings["kernels"] if settings["kernels"] == "all" else [one.kernel for one in chosen]
        known = recipe_layers(recipe, rows, asked, least)
        if is_torch:
            in_torch = {row: run_in_torch(own, asked=asked != "all") for row, own in known.candidates.items()}
            known = known._replace(candidates=in_torch)
    if pattern is not None:
        for layer in rows.values():
            _check_fits(pattern, layer)
    in_model = not is_torch and (workload.has_graph or settings["workload"] is not None)
    l2 = cache_state(settings["l2"], workload.model_weights, settings["dtype"], in_model=in_model)
    engine = replace(engine, l2=l2)
    launches = LayerLaunches(
        engine=engine,
        layers=rows,
        dtype=settings["dtype"],
        natural=pattern is None and recipe is None,
        maker=MapMaker(
            rows, settings["scope"], of_layer=several or len(workload.passes) > 1, given=known.maps
        )
        if like is None
        else like.launches.maker,
        product=settings["convolutions"].product,
        in_planes=is_torch,
        scales=None if is_torch else settings["scales"],
    )
    return LayerJob(
        workload=workload,
        launches=launches,
        candidates=chosen,
        candidates_of=known.candidates,
        sparsity=settings["sparsity"],
        strict=settings["kernels"] != "all",
        tokens=columns_of(settings),
        experts_per_token=settings["experts_per_token"] or EXPERTS_PER_TOKEN,
        holds_plans=sum(layer.size for layer in rows.values()) <= MOST_HELD,
        for_losers=replace(engine, name="model") if quick_losers and workload.form in WHOLE_MODELS else None,
    )


def workload_of(weights: Source, settings: PredictSettings, recipe: Recipe | None = None) -> Workload:
    """Load the layers of weights for the passes of the settings. Raise BadInput as `load_workload`.

    Layers that a recipe left dense are launched separately from those that it pruned.
    """
    convolutions = settings["convolutions"]
    passes = passes_of(weights, settings)
    if is_onnx(weights) and settings["workload"] is not None:
        raise BadInput(f"{weights}: an .onnx file says its sizes: wanted tokens or batch, got a workload")
    if settings["workload"] is not None and convolutions.input_size and not is_standard(weights):
        raise BadInput(
            f"input sizes and a workload exclude each other, got {convolutions.input_size[0]} and "
            f"{settings['workload']}: give --batch"
        )
    stated = {"tokens": settings["tokens"], "batch": convolutions.batch}
    return load_workload(
        weights,
        passes,
        stated={name: size for name, size in stated.items() if size is not None},
        runtime=settings["runtime"] or usual_runtime(settings, recipe),
        target=settings["target"],
        ignore=settings["ignore"],
        convolutions=convolutions,
        experts_per_token=settings["experts_per_token"],
        apart=() if recipe is None else left_dense(recipe, weights),
        own_tiles=recipe is not None or settings["pattern"] == "zeros",
    )


OF_ENGINES = ("fp8", "int8")
"""Formats of products that only an inference engine is predicted with."""


def usual_runtime(settings: PredictSettings, recipe: Recipe | None) -> str | None:
    """Return `engine` if what was asked for runs only there; None for torch where its launches are known."""
    kernels = [] if settings["kernels"] == "all" else settings["kernels"]
    named = [kernels] if isinstance(kernels, str) else kernels
    patterns = [settings["pattern"]] if settings["pattern"] else []
    if recipe is not None:
        patterns = [recipe.pattern_of(module) for module in pruned_modules(recipe)]
    in_torch = all(runs_in_torch(parse_pattern(each).canonical) for each in patterns)
    in_torch = in_torch and all(KERNELS[name].in_torch for name in named)
    return None if in_torch and settings["dtype"] not in OF_ENGINES else "engine"


def predicted_layers(weights: Source, origin: Provenance, names: Sequence[str]) -> Mapping[str, Layer]:
    """Return the layers of rows of a table. Raise BadInput."""
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
    """Raise BadInput if a requested pattern does not fit a layer: it is neither changed nor is the layer
    skipped.
    """
    (m, k), least = layer.shape, no_taller_than(pattern.canonical, layer.shape[0]).smallest
    if m < least.rows or k < least.columns:
        raise BadInput(
            f"{pattern.canonical} needs a matrix of {least} or more, got {m}x{k} in {layer.name!r}; "
            "leave it out with ignore"
        )


def weights_hash_of(job: LayerJob) -> str:
    """Return the digest of the weights of all layers of a job."""
    digest = WeightsDigest()
    for layer in job.launches.layers.values():
        digest.add(layer.name, layer.weights)
    return digest.hexdigest()


def provenance_of(job: LayerJob, settings: PredictSettings, source: str, weights_hash: str) -> Provenance:
    """Return the origin of this job's results, as files contain it."""
    return Provenance(
        gpu=job.engine.gpu.name,
        spec_hash=job.engine.gpu.fingerprint,
        weights_hash=weights_hash,
        tokens=job.tokens,
        launch=job.engine.launch,
        l2=job.engine.l2,
        power_limit_w=settings["power_limit"],
        workload=settings["workload"],
        runtime=job.workload.runtime,
        tensor_parallel=settings["tensor_parallel"],
        source=source,
        pattern=settings["pattern"],
        sparsity=settings["sparsity"],
        scope=settings["scope"],
    )
