"""`Settings`: the checked arguments of a prediction; `layer_job`: the job that predicts a set of weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any, ParamSpec, Self, TypeVar

from prunecast.arguments import check_fields
from prunecast.codesign.layer_job import LayerJob
from prunecast.codesign.provenance import Provenance, WeightsDigest
from prunecast.codesign.recipe import Recipe
from prunecast.codesign.recipe_maps import RecipeLayers, left_dense, recipe_layers, recipe_of
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec, at_power_limit, load_gpu
from prunecast.kernels import DTYPE_BYTES
from prunecast.kernels.libraries.experts.routing import DEFAULT_ROUTING, check_routing
from prunecast.kernels.libraries.scaled.call import SCALES
from prunecast.launch import L2_STATES
from prunecast.patterns import SCOPES, Pattern, parse_pattern
from prunecast.patterns.pattern import check_sparsity
from prunecast.patterns.sources import Layer
from prunecast.patterns.sources.read import MOST_HELD
from prunecast.workload.candidates import candidates, check_rows_stay, run_in_torch, zeros_candidates
from prunecast.workload.engines import Engine, Progress, cache_state
from prunecast.workload.graph import RUNTIMES, Pass, parse_workload
from prunecast.workload.graph.config import checkpoint_shape
from prunecast.workload.graph.model_graph import checked_tokens
from prunecast.workload.layer_launches import LayerLaunches
from prunecast.workload.layers import ConvSettings, Source, load_layers
from prunecast.workload.pruned_maps import MapMaker, sparsity_for
from prunecast.workload.table_rows import rows_of
from prunecast.workload.workload import (
    BATCH,
    TOKENS,
    Workload,
    check_batch,
    is_onnx,
    is_standard,
    load_workload,
)

P = ParamSpec("P")
R = TypeVar("R")
MATRICES = ConvSettings()
"""Filters count as matrices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of `predict`, which describes them.

    Raises
    ------
    BadInput : a value that cannot be used, whatever the weights are
    """

    gpu: str | GpuSpec
    tokens: int | None = None
    workload: str | None = None
    runtime: str = "engine"
    sparsity: float | None = None
    pattern: str | None = None
    kernels: str | Sequence[str] = "all"
    engine: str = "simulator"
    state: str = "burst"
    launch: str = "graph"
    l2: str | None = None
    power_limit: float | None = None
    dtype: str | None = None
    scope: str = "layer"
    target: str | Sequence[str] = ()
    ignore: str | Sequence[str] = ()
    convolutions: ConvSettings = MATRICES
    experts_per_token: int = 2
    routing: str = DEFAULT_ROUTING
    scales: str = "tensor"

    def __post_init__(self) -> None:
        check_fields(self, "predict")
        if self.tokens is not None:
            checked_tokens(self.tokens)
        if self.tokens is not None and self.workload is not None:
            raise BadInput(f"tokens and a workload exclude each other, got {self.tokens} and {self.workload}")
        check_choice("runtime", self.runtime, RUNTIMES)
        if self.l2 is not None:
            check_choice("l2", self.l2, L2_STATES)
        if self.experts_per_token < 1:
            raise BadInput(f"experts-per-token must be at least 1, got {self.experts_per_token}")
        check_routing(self.routing)
        check_choice("scales", self.scales, SCALES)
        if self.sparsity is not None:
            check_sparsity(self.sparsity)
        if self.pattern is not None:
            pattern = parse_pattern(self.pattern)
            pattern.sparsity_to_prune(sparsity_for(pattern, self.sparsity, natural=False))
        check_choice("scope", self.scope, SCOPES)
        if self.dtype is not None:
            check_choice("dtype", self.dtype, DTYPE_BYTES)

    @classmethod
    def of(cls, weights: Source, *, convolutions: ConvSettings | None = None, **settings: Any) -> Self:
        """Return the settings, with a default workload for a standard model without workload and tokens.

        Raises
        ------
        BadInput : a batch without effect
        """
        said = cls(convolutions=MATRICES if convolutions is None else convolutions, **settings)
        batch, stated = said.convolutions.batch, said.workload or said.tokens
        check_batch(weights, batch, other=stated, has_images=bool(said.convolutions.input_size))
        if stated is not None or not is_standard(weights):
            return said
        return replace(said, workload=f"batch:{batch or BATCH}")

    def passes(self) -> tuple[Pass, ...]:
        """Return the forward passes (prefill, decode) with their token counts."""
        if self.workload is None:
            return (Pass(1, self.columns, routing=self.routing),)
        return tuple(run._replace(routing=self.routing) for run in parse_workload(self.workload))

    @property
    def columns(self) -> int:
        """N of layers that are not convolutions, the largest of all passes."""
        if self.workload is not None:
            return max(run.columns for run in parse_workload(self.workload))
        return TOKENS if self.tokens is None else self.tokens


def with_settings(function: Callable[P, R]) -> Callable[P, R]:
    """Show the fields of `Settings` as keywords of a function whose `**settings` fill and check them."""
    own = signature(function)
    named = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    every = sorted((*signature(Settings).parameters.values(), *named), key=lambda one: one.kind)
    function.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    return function


def layer_job(
    weights: Source, settings: Settings, progress: Progress, *, quick_lists: bool = False
) -> LayerJob:
    """Return the job of predicting weights: find the GPU, the kernels and the layers.

    Parameters
    ----------
    quick_lists : as of `Engine`

    Raises
    ------
    BadInput : an unknown name, unreadable weights, or a kernel that cannot run the pattern
    """
    pattern = None if settings.pattern is None else parse_pattern(settings.pattern)
    is_asked = settings.pattern is not None or settings.sparsity is not None
    recipe = None if is_asked else recipe_of(weights)
    least = min(run.columns for run in settings.passes())
    chosen = candidates(settings.kernels, None if pattern is None else pattern.canonical, least)
    if settings.pattern == "zeros" and settings.kernels == "all":
        chosen = zeros_candidates(least)
    if settings.runtime == "torch":
        check_rows_stay(pattern)
        chosen = run_in_torch(chosen, asked=settings.kernels != "all")
    gpu = load_gpu(settings.gpu) if isinstance(settings.gpu, str) else settings.gpu
    if settings.power_limit is not None:
        gpu = at_power_limit(gpu, settings.power_limit)
    engine = Engine(
        name=settings.engine,
        gpu=gpu,
        state=settings.state,
        launch=settings.launch,
        quick_lists=quick_lists,
        progress=progress,
    )
    workload = workload_of(weights, settings, recipe)
    rows = rows_of(workload)
    known = RecipeLayers({}, {})
    if recipe is not None:
        asked = settings.kernels if settings.kernels == "all" else [one.kernel for one in chosen]
        known = recipe_layers(recipe, rows, asked, least)
        if settings.runtime == "torch":
            in_torch = {row: run_in_torch(own, asked=asked != "all") for row, own in known.candidates.items()}
            known = known._replace(candidates=in_torch)
    if pattern is not None:
        for layer in rows.values():
            _check_fits(pattern, layer)
    in_model = settings.runtime == "engine" and (workload.has_graph or settings.workload is not None)
    l2 = cache_state(settings.l2, workload.model_weights, settings.dtype, in_model=in_model)
    launches = LayerLaunches(
        engine=replace(engine, l2=l2),
        layers=rows,
        dtype=settings.dtype,
        natural=pattern is None and recipe is None,
        maker=MapMaker(rows, settings.scope, given=known.maps),
        product=settings.convolutions.product,
        scales=settings.scales if settings.runtime == "engine" else None,
    )
    return LayerJob(
        workload=workload,
        launches=launches,
        candidates=chosen,
        candidates_of=known.candidates,
        sparsity=settings.sparsity,
        strict=settings.kernels != "all",
        tokens=settings.columns,
        experts_per_token=settings.experts_per_token,
        holds_plans=sum(layer.size for layer in rows.values()) <= MOST_HELD,
    )


def workload_of(weights: Source, settings: Settings, recipe: Recipe | None = None) -> Workload:
    """Load the layers of weights for the passes of the settings. Raise BadInput as `load_workload`.

    Layers that a recipe left dense are launched separately from those that it pruned.
    """
    convolutions = settings.convolutions
    passes = settings.passes()
    if is_onnx(weights):
        if settings.workload is not None:
            raise BadInput(f"{weights}: an .onnx file says its sizes: wanted tokens or batch, got a workload")
        passes = (Pass(convolutions.batch or 1, settings.columns),)
    if settings.workload is not None and convolutions.input_size and not is_standard(weights):
        raise BadInput(
            f"input sizes and a workload exclude each other, got {convolutions.input_size[0]} and "
            f"{settings.workload}: give --batch"
        )
    stated = {"tokens": settings.tokens, "batch": convolutions.batch}
    return load_workload(
        weights,
        passes,
        stated={name: size for name, size in stated.items() if size is not None},
        runtime=settings.runtime,
        target=settings.target,
        ignore=settings.ignore,
        convolutions=convolutions,
        experts_per_token=settings.experts_per_token,
        apart=() if recipe is None else left_dense(recipe, weights),
    )


def predicted_layers(weights: Source, origin: Provenance, names: Sequence[str]) -> Mapping[str, Layer]:
    """Return the layers of rows of a table. Raise BadInput."""
    if is_onnx(weights):
        return load_layers(weights, target=names).layers
    has_model = is_standard(weights) or checkpoint_shape(weights) is not None
    target = () if has_model or origin.workload is not None else names
    settings = Settings(gpu="", workload=origin.workload, runtime=origin.runtime, target=target)
    return rows_of(workload_of(weights, settings))


def _check_fits(pattern: Pattern, layer: Layer) -> None:
    """Raise BadInput if a requested pattern does not fit a layer: it is neither changed nor is the layer
    skipped.
    """
    (m, k), least = layer.shape, pattern.smallest
    if m < least.rows or k < least.columns:
        raise BadInput(
            f"{pattern.canonical} needs a matrix of {least} or more, got {m}x{k} in {layer.name!r}; "
            "leave it out with ignore"
        )


def provenance_of(job: LayerJob, settings: Settings, source: str) -> Provenance:
    """Return the origin of this job's results, as files contain it."""
    digest = WeightsDigest()
    for layer in job.launches.layers.values():
        digest.add(layer.name, layer.weights)
    return Provenance(
        gpu=job.engine.gpu.name,
        spec_hash=job.engine.gpu.fingerprint,
        weights_hash=digest.hexdigest(),
        tokens=job.tokens,
        launch=job.engine.launch,
        l2=job.engine.l2,
        power_limit_w=settings.power_limit,
        workload=settings.workload,
        runtime=settings.runtime,
        source=source,
        pattern=settings.pattern,
        sparsity=settings.sparsity,
        scope=settings.scope,
    )
