"""Types of the JSON objects that commands print with `--json` and write with `-o FILE.json`.

They are the source of the published JSON Schema, docs/reference/json_schema.json (`scripts/json_schema`).
The end of a name gives the unit: `_seconds`, `_us`, `_bytes`, `_hz`, `_mhz` or `_w`. Other times are in
seconds. Shares (`sparsity`, `removed`, `retained_importance`) are between 0 and 1. A command may add fields;
the fields that are defined here keep their meaning within one `schema_version`.
"""

from typing import Any, NotRequired

from typing_extensions import TypedDict

Seconds = dict[str, float]
"""Name of a part -> seconds."""


class HeaderJson(TypedDict):
    """Fields of every object: the version of the schema, and of the tool."""

    schema_version: int
    version: str


class ProvenanceJson(HeaderJson):
    """Origin of a prediction: GPU and its spec, weights, settings, and the kind of its intervals."""

    gpu: str
    spec_hash: str
    source: str | None
    weights_hash: str
    seed: int | None
    tokens: int
    launch: str
    l2: str
    asked: dict[str, Any]
    interval: str


class PredictionJson(TypedDict):
    """Predicted time of one product (M, K) x (K, N) with one kernel, with the bounds of a 90 % interval."""

    layer: str
    m: int
    k: int
    n: int
    dtype: str
    pattern: str
    sparsity: float
    kernel: str
    engine: str
    state: str
    seconds: float
    seconds_low: float
    seconds_high: float
    speedup_over_dense: float
    bound: str
    note: str


class CrossoverJson(TypedDict):
    """Least sparsity at which a kernel is faster than dense, and the density left; null if there is none."""

    layer: str
    kernel: str
    pattern: str
    sparsity: float | None
    density: float | None


class SkippedJson(TypedDict):
    """A layer, or one of its kernels, that was not predicted, with the reason."""

    layer: str
    kernel: str | None
    reason: str


class MemoryBytesJson(TypedDict):
    """Bytes of GPU memory of a pass."""

    weights: float
    cache: float
    activations: float


class MemoryJson(TypedDict):
    """GPU memory of a pass, whether it fits, and the largest batch that fits."""

    memory_bytes: MemoryBytesJson
    fits: bool
    largest_batch: int


class PowerJson(TypedDict):
    """Power in watts of a pass that is repeated for seconds, and the time of the pass then."""

    watts: float
    seconds: float


class OutcomeJson(MemoryJson):
    """A pass of a model with one choice of kernels; `seconds_fused` is the time of products and attention."""

    seconds: float
    seconds_low: float
    seconds_high: float
    seconds_fused: float
    seconds_by_kind: Seconds
    kernels_by_kind: dict[str, list[str]]
    power: PowerJson
    cost_per_million: NotRequired[float]


class PhaseJson(TypedDict):
    """A pass of the workload: its sequences, tokens and cached tokens, dense and with the fastest kernels."""

    batch: int
    tokens: int
    cached: int
    all_logits: bool
    share: float
    label: str
    routing: str
    gpus: int
    padded: bool
    has_images: bool
    generates: bool
    dense: OutcomeJson
    best: OutcomeJson


class PassTimeJson(TypedDict):
    """Mean time of the passes of a model, in total and by kind of operation."""

    seconds: float
    seconds_by_kind: Seconds


class WholeModelJson(TypedDict):
    """Predicted times of a whole model, including attention, norms and transposes."""

    dense: PassTimeJson
    best: PassTimeJson
    gpu_memory_bytes: float
    phases: list[PhaseJson]


class PredictJson(ProvenanceJson):
    """Output of `predict`; `runs` is how often a pass runs each layer."""

    predictions: list[PredictionJson]
    crossovers: list[CrossoverJson]
    skipped: list[SkippedJson]
    runs: NotRequired[Seconds]
    whole_model: NotRequired[WholeModelJson]


class ComparedRowJson(TypedDict):
    """One layer and kernel in a comparison: time in each prediction, and its ratio to the first."""

    layer: str
    kernel: str
    n: int
    pattern: str
    seconds: list[float]
    ratio: list[float]


class ComparedGpuJson(TypedDict):
    """One GPU: time of a pass, tokens or images per second, memory, joules per token, and the evidence."""

    gpu: str
    dense_seconds: float
    seconds: float
    seconds_low: float
    seconds_high: float
    per_s: float | None
    memory_bytes: float | None
    gpu_bytes: float
    fits: bool | None
    largest_batch: int | None
    joules: float | None
    cost_per_million: float | None
    evidence: str


class CompareJson(HeaderJson):
    """Output of `compare`."""

    columns: list[str]
    rows: list[ComparedRowJson]
    unmatched: list[str]
    gpus: NotRequired[list[ComparedGpuJson]]


class FactJson(TypedDict):
    """Name, value and unit of one quantity in an explanation."""

    name: str
    value: float | int | str
    unit: str


class SectionJson(TypedDict):
    """Section of an explanation: facts about one subject."""

    title: str
    facts: list[FactJson]


class AdviceJson(TypedDict):
    """A change, the time with it, and the share of the time that it saves."""

    change: str
    seconds: float
    gain: float


class ExplainJson(ProvenanceJson):
    """Output of `explain`."""

    predictions: list[PredictionJson]
    verdict: str
    sections: list[SectionJson]
    advice: list[AdviceJson]


class PrunedLayerJson(TypedDict):
    """Effect of pruning on one layer."""

    layer: str
    m: int
    k: int
    sparsity: float | None
    retained_importance: float


class PruneJson(HeaderJson):
    """Output of `prune` with a pattern, and content of its recipe.json."""

    pattern: str
    sparsity: float | None
    scope: str
    criterion: str
    seed: int | None
    weights_hash: str
    guided_by: NotRequired[Any]
    weights: str
    tiles: str | None
    removed: NotRequired[list[dict[str, Any]]]
    layers: list[PrunedLayerJson]
    skipped: list[SkippedJson]


class TargetsJson(TypedDict):
    """Requested limits of the pruned model."""

    latency_share: float | None
    latency_s: float | None
    speedup: float | None
    sparsity: float | None


class UniformJson(TypedDict):
    """Result of removing the same share from every layer, for comparison."""

    pattern: str
    removed: float
    seconds: float
    retained_importance: float


class MemoryChangeJson(TypedDict):
    """Memory of a pass before and after pruning."""

    batch: int
    dense: MemoryJson
    pruned: MemoryJson


class ChosenLayerJson(TypedDict):
    """The chosen pattern and kernel of one matrix; times are those of all `copies`."""

    layer: str
    m: int
    k: int
    n: int
    pattern: str
    kernel: str
    sparsity: float | None
    removed: float
    retained_importance: float
    seconds: float
    dense_seconds: float
    copies: int


class FrontPointJson(TypedDict):
    """A point of the Pareto front of time and retained importance."""

    seconds: float
    retained_importance: float
    sparsity: float


class PruneToTimeJson(HeaderJson):
    """Output of `prune` with a latency budget, and content of its recipe.json."""

    source: str
    weights: str | None
    tiles: str | None
    gpu: str
    spec_hash: str
    engine: str
    l2: str
    dtype: str
    criterion: str
    offered: str
    workload: str | None
    runtime: str
    targets: TargetsJson
    uniform: list[UniformJson]
    unpruned_seconds: float | None
    removed: NotRequired[list[dict[str, Any]]]
    seconds: float
    dense_seconds: float
    retained_importance: float
    sparsity: float
    memory: list[MemoryChangeJson]
    gpu_memory_bytes: float
    layers: list[ChosenLayerJson]
    front: list[FrontPointJson]


class PlainJson(FrontPointJson):
    """The result of the search without a study."""


class TrialJson(TypedDict):
    """A trial of a study; `reason` says why it has no result."""

    trial: int
    patterns: dict[str, str]
    seconds: float | None
    retained_importance: float | None
    sparsity: float | None
    same_as: int | None
    reason: str


class StudyJson(TypedDict):
    """All trials of a study."""

    name: str
    space_version: int
    seed: int
    best_trial: int
    plain: PlainJson
    trials: list[TrialJson]
    pareto: list[dict[str, Any]]


class SearchJson(PruneToTimeJson):
    """Output of `search`: the best trial, and the study."""

    study: StudyJson


class ValidatedRowJson(TypedDict):
    """A measured case and its prediction; `error` is predicted over measured, less 1."""

    case: str
    m: int
    k: int
    n: int
    dtype: str
    pattern: str
    sparsity: float
    distribution: str
    kernel: str
    engine: str
    state: str
    use: str
    measured_seconds: float | None
    predicted_seconds: float | None
    error: float | None
    spread: float | None
    boards: int
    board_spread: float | None
    clock_mhz: float | None
    predicted_clock_mhz: float | None
    predicted_cycles: float | None
    power_w: float | None
    throttle: str | None
    bound: str | None
    counts: bool
    marks: str
    note: str


class FamilyJson(TypedDict):
    """Errors of predictions for one kernel, state, engine and use (`fit` or `judge`)."""

    kernel: str
    state: str
    engine: str
    use: str
    cases: int
    mape: float
    p90: float
    bias: float
    worst: float
    worst_case: str
    spearman: float | None


class ValidateJson(HeaderJson):
    """Output of `validate` for a suite or records."""

    gpu: str
    spec_hash: str
    records: list[str]
    rows: list[ValidatedRowJson]
    families: list[FamilyJson]


class ValidatedModelRowJson(TypedDict):
    """Measured and predicted microseconds of a model, dense or sparse, or their ratio."""

    what: str
    variant: str
    measured_us: float
    predicted_us: float
    error: float


class ValidateModelJson(HeaderJson):
    """Output of `validate --model`."""

    case: str
    gpu: str
    engine: str
    rows: list[ValidatedModelRowJson]
    predicted_seconds: dict[str, Seconds]
    measured: dict[str, Any]


class QuantityJson(TypedDict):
    """A measured quantity of a GPU and how it was measured."""

    quantity: str
    value: float | int
    how: str


class CalibrateJson(HeaderJson):
    """Output of `calibrate`."""

    base: str
    spec: str
    quantities: list[QuantityJson]


class GpuSummaryJson(TypedDict):
    """Main quantities of a known GPU."""

    name: str
    title: str
    compute_capability: float
    sm_count: int
    max_clock_hz: float
    dram_peak_bytes_per_s: float
    l2_bytes: int
    tensor_fp16_peak_flop_per_s: float
    checked_against: str
    spec_hash: str


class GpusJson(HeaderJson):
    """Output of `gpus`."""

    gpus: list[GpuSummaryJson]


class GpuQuantityJson(TypedDict):
    """A number of a GPU with its unit, kind and source."""

    quantity: str
    value: Any
    unit: str
    kind: str
    source: str


class GpuJson(HeaderJson):
    """Output of `gpus NAME`."""

    gpu: str
    title: str
    spec_hash: str
    quantities: list[GpuQuantityJson]


class KernelCostJson(TypedDict):
    """A fitted cost of a kernel on an architecture."""

    kernel: str
    cost: str
    value: float | int
    unit: str
    kind: str
    date: str
    meaning: str
    source: str
    worth: str


class GpuKernelsJson(HeaderJson):
    """Output of `gpus NAME --kernels`."""

    gpu: str
    architecture: str
    costs: list[KernelCostJson]


class PatternFamilyJson(TypedDict):
    """A family of patterns and the kernels that run it."""

    family: str
    example: str
    kernels: list[str]
    meaning: str


class PatternsJson(HeaderJson):
    """Output of `patterns`."""

    patterns: list[PatternFamilyJson]


class SweptCaseJson(TypedDict):
    """A case of a sweep; `error` is the reason if it cannot be run."""

    key: str
    gpu: str
    m: int
    k: int
    n: int
    dtype: str
    pattern: str
    sparsity: float | None
    kernel: str
    engine: str
    state: str
    launch: str
    seed: int
    seconds: float | None
    sparsity_reached: float | None
    bound: str | None
    error: str | None
    speedup_over_dense: float | None


class SweepJson(HeaderJson):
    """Output of `sweep`."""

    rows: list[SweptCaseJson]


DOCUMENTS: dict[str, tuple[type, ...]] = {
    "predict": (PredictJson,),
    "compare": (CompareJson,),
    "explain": (ExplainJson,),
    "prune": (PruneJson, PruneToTimeJson),
    "search": (SearchJson,),
    "validate": (ValidateJson, ValidateModelJson),
    "calibrate": (CalibrateJson,),
    "gpus": (GpusJson, GpuJson, GpuKernelsJson),
    "patterns": (PatternsJson,),
    "sweep": (SweepJson,),
}
"""Command -> the types of the JSON objects that it prints."""
