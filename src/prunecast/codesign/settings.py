"""`Settings`: what is asked of a prediction, checked; and the job that it makes of a set of weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from prunecast.arguments import check_fields
from prunecast.codesign.layer_job import LayerJob
from prunecast.codesign.provenance import Provenance, WeightsDigest
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec, at_power_limit, load_gpu
from prunecast.kernels import DTYPE_BYTES
from prunecast.launch import L2_STATES
from prunecast.patterns import SCOPES, Pattern, parse_pattern
from prunecast.patterns.pattern import check_sparsity
from prunecast.patterns.sources import Layer
from prunecast.patterns.sources.read import MOST_HELD
from prunecast.workload.contestants import (
    check_has_form,
    check_rows_stay,
    contestants,
    run_in_torch,
    zeros_contestants,
)
from prunecast.workload.engines import Engine, Progress, cache_state
from prunecast.workload.graph import RUNTIMES, WORKLOADS, ModelGraph, Pass, load_pass, parse_workload
from prunecast.workload.graph.config import CONFIG, KINDS, checkpoint_shape, shape_of_config
from prunecast.workload.graph.model_graph import check_tokens
from prunecast.workload.graph.workloads import transformer_graph
from prunecast.workload.layers import (
    ConvSettings,
    Skipped,
    Source,
    conv_shapes,
    image_sizes,
    load_layers,
)
from prunecast.workload.onnx_model.read_model import image_inputs, read_onnx_model
from prunecast.workload.pruned_maps import MapMaker, sparsity_for
from prunecast.workload.workload_layers import (
    WorkloadLayers,
    check_sizes_count,
    layers_of_checkpoint,
    layers_of_model,
    layers_of_onnx,
    layers_of_passes,
)

TOKENS = 4096
"""Tokens of all layers, where nothing says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of `predict`, which explains them.

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
    convolutions: ConvSettings = field(default_factory=ConvSettings)
    experts_per_token: int = 2

    def __post_init__(self) -> None:
        check_fields(self, "predict")
        if self.tokens is not None:
            check_tokens(self.tokens)
        if self.tokens is not None and self.workload is not None:
            raise BadInput(f"tokens and a workload exclude each other, got {self.tokens} and {self.workload}")
        check_choice("runtime", self.runtime, RUNTIMES)
        if self.l2 is not None:
            check_choice("l2", self.l2, L2_STATES)
        if self.experts_per_token < 1:
            raise BadInput(f"experts-per-token must be at least 1, got {self.experts_per_token}")
        if self.sparsity is not None:
            check_sparsity(self.sparsity)
        if self.pattern is not None:
            pattern = parse_pattern(self.pattern)
            pattern.sparsity_to_prune(sparsity_for(pattern, self.sparsity, natural=False))
        check_choice("scope", self.scope, SCOPES)
        if self.dtype is not None:
            check_choice("dtype", self.dtype, DTYPE_BYTES)

    def said_of(self, weights: Source) -> "Settings":
        """The settings, with the workload that a standard model gets where neither it nor tokens are given.

        Raises
        ------
        BadInput : a batch that nothing would have
        """
        _check_batch_counts(weights, self)
        if self.workload is not None or self.tokens is not None or not is_model(weights):
            return self
        return replace(self, workload=f"batch:{self.convolutions.batch or 8}")

    def passes(self) -> tuple[Pass, ...]:
        """What layers are run on."""
        return (Pass(1, self.columns),) if self.workload is None else parse_workload(self.workload)

    @property
    def columns(self) -> int:
        """N of layers that are no convolution, the most of all passes."""
        if self.workload is not None:
            return max(run.columns for run in parse_workload(self.workload))
        return TOKENS if self.tokens is None else self.tokens


class Prepared(NamedTuple):
    """A job, its layers inside, what the source left out, and the workload where there is one."""

    job: LayerJob
    skipped: tuple[Skipped, ...]
    workload: WorkloadLayers | None


def prepare(weights: Source, settings: Settings, progress: Progress) -> Prepared:
    """Find the GPU, the kernels and the layers.

    Raises
    ------
    BadInput : an unknown name, unreadable weights, or a kernel that cannot run the pattern
    """
    pattern = None if settings.pattern is None else parse_pattern(settings.pattern)
    least = min(run.columns for run in settings.passes())
    chosen = contestants(settings.kernels, None if pattern is None else pattern.canonical, least)
    if settings.pattern == "zeros" and settings.kernels == "all":
        chosen = zeros_contestants(least)
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
        progress=progress,
    )
    workload = _workload(weights, settings)
    loaded = (
        workload.loaded if workload else load_layers(weights, target=settings.target, ignore=settings.ignore)
    )
    if pattern is not None:
        for layer in loaded.layers.values():
            _check_fits(pattern, layer)
    elements = workload.weights if workload else sum(layer.size for layer in loaded.layers.values())
    in_model = workload is not None and settings.runtime == "engine"
    l2 = cache_state(settings.l2, elements, settings.dtype, in_model=in_model)
    engine = replace(engine, l2=l2)
    job = LayerJob(
        engine=engine,
        n=settings.columns,
        dtype=settings.dtype,
        contestants=chosen,
        sparsity=settings.sparsity,
        natural=pattern is None,
        strict=settings.kernels != "all",
        holds_plans=sum(layer.size for layer in loaded.layers.values()) <= MOST_HELD,
        maker=MapMaker(loaded.layers, settings.scope),
        convolutions=workload.convolutions
        if workload
        else conv_shapes(tuple(loaded.layers.values()), settings.convolutions),
        tokens=workload.tokens if workload else {},
        product=settings.convolutions.product,
        experts_per_token=settings.experts_per_token,
    )
    return Prepared(job, loaded.skipped, workload)


def _check_batch_counts(weights: Source, settings: Settings) -> None:
    """Refuse a batch that nothing would have. Raises BadInput."""
    batch, said = settings.convolutions.batch, settings.workload or settings.tokens
    if batch is None or _is_onnx(weights):
        return
    if is_model(weights) and said is not None:
        raise BadInput(f"batch and tokens or a workload exclude each other, got {batch} and {said}")
    if not is_model(weights) and not settings.convolutions.input_size:
        raise BadInput(f"batch {batch} is of images: convolutions need --input, matrices --tokens")


def is_model(weights: Source) -> bool:
    """Whether this is the name of a standard model, or the configuration of one."""
    if isinstance(weights, str | Path) and Path(weights).name == CONFIG and Path(weights).exists():
        return True
    return isinstance(weights, str) and weights in WORKLOADS and not Path(weights).exists()


def _graphs(weights: Source, runtime: str) -> Callable[[Pass], ModelGraph]:
    """The graph of each pass of a standard model. Raises BadInput for a configuration of unknown type."""
    name = f"{weights}"
    if name in WORKLOADS:
        return partial(load_pass, name, runtime=runtime)
    shape = shape_of_config(Path(name))
    if shape is None:
        raise BadInput(f"{name}: its model_type is none of {', '.join(KINDS)}")
    return partial(transformer_graph, name, shape, runtime=runtime)


def _workload(weights: Source, settings: Settings) -> WorkloadLayers | None:
    """The layers of a standard model, or of a file for the passes of a workload; None for a file alone."""
    passes = settings.passes()
    if is_model(weights):
        if settings.convolutions.input_size:
            raise BadInput(f"{weights} says the sizes of its inputs: leave out --input")
        graphs = [(run, make(run)) for make in (_graphs(weights, settings.runtime),) for run in passes]
        return layers_of_model(graphs, target=settings.target, ignore=settings.ignore)
    shape = checkpoint_shape(weights)
    if isinstance(weights, str | Path) and shape is not None:
        loaded = load_layers(weights, target=settings.target, ignore=settings.ignore)
        found = layers_of_checkpoint(Path(weights), shape, loaded, passes, settings.runtime)
        if found is not None:
            return found
    check_has_form(settings.runtime, weights)
    if _is_onnx(weights):
        return _of_onnx(str(weights), settings)
    if settings.workload is None:
        return None
    loaded = load_layers(weights, target=settings.target, ignore=settings.ignore)
    return layers_of_passes(loaded, passes, settings.experts_per_token)


def _is_onnx(weights: Source) -> bool:
    return isinstance(weights, str | Path) and Path(weights).suffix.lower() == ".onnx"


def _of_onnx(path: str, settings: Settings) -> WorkloadLayers:
    """The layers of an ONNX file with the sizes that follow from its inputs, which `--input` may replace."""
    convolutions = settings.convolutions
    if settings.workload is not None:
        raise BadInput(f"{path}: an .onnx file says its sizes: wanted tokens or batch, got a workload")
    for name in ("stride", "padding"):
        if given := getattr(convolutions, name):
            raise BadInput(f"{path}: an .onnx file says its strides and pads: leave out --{name} {given[0]}")
    images = image_sizes(convolutions, image_inputs(path)) if convolutions.input_size else None
    model = read_onnx_model(path, batch=convolutions.batch or 1, tokens=settings.columns, images=images)
    check_sizes_count(path, model, tokens=settings.tokens, batch=convolutions.batch)
    return layers_of_onnx(path, model, load_layers(path, target=settings.target, ignore=settings.ignore))


def predicted_layers(weights: Source, origin: Provenance, names: Sequence[str]) -> Mapping[str, Layer]:
    """The layers of rows of a table: of a file those called so, of a workload all. Raises BadInput."""
    settings = Settings(gpu="", workload=origin.workload, runtime=origin.runtime)
    found = None if _is_onnx(weights) else _workload(weights, settings)
    return found.loaded.layers if found else load_layers(weights, target=names).layers


def _check_fits(pattern: Pattern, layer: Layer) -> None:
    """A pattern that was asked for is not changed behind the user's back, and no layer silently left out."""
    (m, k), least = layer.shape, pattern.smallest
    if m < least.rows or k < least.columns:
        raise BadInput(
            f"{pattern.canonical} needs a matrix of {least} or more, got {m}x{k} in {layer.name!r}; "
            "leave it out with ignore"
        )


def provenance_of(job: LayerJob, settings: Settings) -> Provenance:
    """What a file of this job's results must say about its origin."""
    digest = WeightsDigest()
    for layer in job.maker.layers.values():
        digest.add(layer.name, layer.weights)
    return Provenance(
        gpu=job.engine.gpu.name,
        spec_hash=job.engine.gpu.fingerprint,
        weights_hash=digest.hexdigest(),
        tokens=job.n,
        launch=job.engine.launch,
        l2=job.engine.l2,
        power_limit_w=settings.power_limit,
        workload=settings.workload,
        runtime=settings.runtime,
        pattern=settings.pattern,
        sparsity=settings.sparsity,
        scope=settings.scope,
    )
